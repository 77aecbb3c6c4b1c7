"""Starting and stopping a server: one process, several workers, or a thread of this process.

Several workers share one store; each has its own event loop, and its own listening socket on the same port, over which
the kernel distributes connections. The parent process restarts workers that die, and stops them when it ends: a worker
whose parent is gone stops too.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

import uvicorn

from onoff.server.admin import edit_catalogue, new_publisher, opened, prepare_to_follow
from onoff.server.app import MAX_IN_FLIGHT, MessageServer, MetricsAccess
from onoff.server.connections import QueryProtocol
from onoff.server.feeds import Feed, poll_feeds
from onoff.server.following import Follower
from onoff.server.http import MAX_CONNECTIONS, MAX_PER_ADDRESS, Metrics, shared_table
from onoff.system import sockets
from onoff.system.files import optional
from onoff.system.interrupts import held_back
from onoff.system.logs import LogFormat, log_to_stderr
from onoff.system.serving import OrderlyServer

log = logging.getLogger("onoff.server")

KEEP_ALIVE_SECONDS = 75
BACKLOG = 2048
STOP_SECONDS = 3
SWITCH_SECONDS = 0.0002


@dataclass(frozen=True)
class Settings:
    """The settings of a server process."""

    store: str
    feeds: tuple[Feed, ...] = ()
    feed_seconds: float = 300.0
    workers: int = 1
    max_connections: int = MAX_CONNECTIONS
    max_per_address: int = MAX_PER_ADDRESS
    max_in_flight: int = MAX_IN_FLIGHT
    access: MetricsAccess = field(default_factory=MetricsAccess)
    follow: str | None = None  # the address of the leader
    log_format: LogFormat = "text"


def listen_for_workers(host: str, port: int, *, workers: int = 1) -> socket.socket:
    """A listening socket for so many workers; port 0 takes a free one."""
    return sockets.listen(host, port, backlog=BACKLOG, shared=workers > 1)


def address(sock: socket.socket) -> str:
    return f"http://{sockets.authority(sock)}"


async def serve(
    settings: Settings,
    sock: socket.socket,
    metrics: Metrics,
    *,
    first: bool = True,
    ready: Callable[[uvicorn.Server], None] = lambda server: None,
) -> None:
    """Serve until shutdown. The first worker also polls the feeds, or follows the leader."""
    async with opened(settings.store) as store:
        app = MessageServer(
            store,
            metrics,
            max_in_flight=settings.max_in_flight,
            max_connections=settings.max_connections,
            max_per_address=settings.max_per_address,
            access=settings.access,
            leader=settings.follow,
        )
        await app.answerer.shelf.refresh(store)
        server = OrderlyServer(_uvicorn_config(app))
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(_announce(server, ready))]
            if first and settings.feeds:
                beside.append(tasks.create_task(poll_feeds(store, settings.feeds, metrics, settings.feed_seconds)))
            if first and settings.follow:
                beside.append(tasks.create_task(Follower(store, settings.follow, metrics).run()))
            await server.serve([sock])
            await app.close()
            for task in beside:
                task.cancel()


def _uvicorn_config(app: MessageServer) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=QueryProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )


async def _announce(server: uvicorn.Server, ready: Callable[[uvicorn.Server], None]) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    ready(server)


def serve_here(settings: Settings, sock: socket.socket) -> None:
    """Serve in this process until SIGINT or SIGTERM."""
    if settings.workers > 1:
        _supervise(settings, sock)
    else:
        with contextlib.suppress(KeyboardInterrupt):
            _run(lambda: serve(settings, sock, Metrics(), ready=lambda _: notify_ready()))


def _run(start: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop = optional("uvloop")  # there is none for Windows

    # So that the thread that waits for the disk gets the interpreter at once, not after five milliseconds.
    sys.setswitchinterval(SWITCH_SECONDS)
    with contextlib.ExitStack() as stack:
        with held_back():  # a coroutine that never ran, or a loop that nobody closes, would be complained of
            work = stack.enter_context(contextlib.closing(start()))
            runner = stack.enter_context(asyncio.Runner(loop_factory=getattr(uvloop, "new_event_loop", None)))
        runner.run(work)


def notify_ready() -> None:
    """Notify systemd, if it started us, that the service is up."""
    where = os.environ.get("NOTIFY_SOCKET")
    if where:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"READY=1", "\0" + where[1:] if where.startswith("@") else where)


# Several workers.


def _supervise(settings: Settings, first: socket.socket) -> None:
    context = multiprocessing.get_context("spawn")
    stopping = threading.Event()
    counts = shared_table(context, settings.workers)
    with contextlib.ExitStack() as stack:
        others = [sockets.listen_beside(first, backlog=BACKLOG) for _ in range(settings.workers - 1)]
        socks = [
            first,
            *map(stack.enter_context, others),
        ]  # open here too: none is lost while a worker restarts

        def start(number: int) -> BaseProcess:
            args = (settings, socks[number], counts, number)
            worker = context.Process(target=_worker, args=args, daemon=True)
            with _ctrl_c_kept_from_children():
                worker.start()
            return worker

        for signum in (signal.SIGTERM, signal.SIGINT):  # before there is a worker that would have to be ended
            signal.signal(signum, lambda *_: stopping.set())
        workers = {number: start(number) for number in range(settings.workers)}
        notify_ready()
        while not stopping.is_set():
            dead = wait([worker.sentinel for worker in workers.values()], timeout=0.2)
            for number, worker in list(workers.items()):
                if worker.sentinel in dead and not stopping.is_set():
                    log.warning("worker %d ended with %s, starting it again", number, worker.exitcode)
                    time.sleep(0.2)  # a worker that cannot start must not spin
                    workers[number] = start(number)
        for worker in workers.values():
            worker.terminate()
        for worker in workers.values():
            worker.join(STOP_SECONDS + 2)


@contextlib.contextmanager
def _ctrl_c_kept_from_children() -> Iterator[None]:
    """Processes that are started here never get SIGINT, from their first instruction on.

    A terminal sends it to every process of a command, even to one that is still being loaded.
    """
    resource_tracker.ensure_running()  # where multiprocessing has to start it first, it unblocks the signal
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _worker(settings: Settings, sock: socket.socket, counts: ctypes.Array[ctypes.c_uint64], number: int) -> None:
    log_to_stderr("onoff.server", settings.log_format)
    metrics = Metrics(counts, worker=number)

    def follow_parent(server: uvicorn.Server) -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        asyncio.get_running_loop().add_reader(parent.sentinel, lambda: setattr(server, "should_exit", True))

    _run(lambda: serve(settings, sock, metrics, first=number == 0, ready=follow_parent))


# In a thread.


@dataclass
class Running:
    """A server that runs in a thread of this process."""

    url: str
    token: str
    settings: Settings
    metrics: Metrics = field(repr=False)

    def publish(self, name: str, body: bytes, media_type: str = "text/plain; charset=utf-8") -> int:
        """Publish over HTTP as any publisher would; return the version."""
        headers = {"authorization": f"Bearer {self.token}", "content-type": media_type}
        path = f"/v1/sources/{quote(name, safe='')}/message"
        with urlopen(UrlRequest(self.url + path, body, headers, method="PUT"), timeout=30) as reply:
            return int(json.load(reply)["version"])


@contextlib.contextmanager
def running(
    sources: Sequence[str] | Mapping[str, bytes],
    *,
    store: str | Path | None = None,
    frame_size: int | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    feeds: Sequence[Feed] = (),
    follow: str | None = None,
    **settings: float,
) -> Iterator[Running]:
    """A server on a free port of loopback, ready to answer, stopped at the end of the block.

    `sources` are names, or names and their first messages. Without `store` everything is thrown away at the end. A
    server that is to `follow` another one gets sources and messages from there; it may take a moment to have them.
    """
    with contextlib.ExitStack() as stack:
        if store is None:
            store = f"{stack.enter_context(tempfile.TemporaryDirectory(prefix='onoff-'))}/messages.db"
        chosen = Settings(str(store), feeds=tuple(feeds), follow=follow, **settings)  # type: ignore[arg-type]
        if follow is not None:
            asyncio.run(prepare_to_follow(chosen.store, follow))
        token = "" if follow is not None else asyncio.run(_prepare(chosen.store, sources, frame_size))
        sock = stack.enter_context(listen_for_workers(host, port))
        started: list[uvicorn.Server] = []
        failed: list[BaseException] = []
        up = threading.Event()
        metrics = Metrics()

        def ready(server: uvicorn.Server) -> None:
            started.append(server)
            up.set()

        def run() -> None:
            try:
                _run(lambda: serve(chosen, sock, metrics, ready=ready))
            except BaseException as error:
                failed.append(error)
            finally:
                up.set()

        thread = threading.Thread(target=run, name="onoff-server", daemon=True)
        thread.start()
        up.wait()
        try:
            if failed:
                raise failed[0]
            yield Running(address(sock), token, chosen, metrics)
        finally:
            for server in started:
                server.should_exit = True
            thread.join()
        if failed:
            raise failed[0]


async def _prepare(where: str, sources: Sequence[str] | Mapping[str, bytes], frame_size: int | None) -> str:
    async with opened(where, frame_size=frame_size) as store:
        await edit_catalogue(store, add=list(sources), frame_size=frame_size)
        if isinstance(sources, Mapping):
            now = time.time_ns() // 1_000_000
            for name, body in sources.items():
                await store.publish(name, "text/plain; charset=utf-8", body, now)
        return await new_publisher(store, "local")
