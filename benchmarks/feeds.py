"""Reading many feeds: the time beyond their download, and that one hostile feed takes nothing from the others.

    python benchmarks/feeds.py [--feeds 300] [--entries 10]

A site on loopback, in a process of its own, gives every feed. `download` fetches all of them and does nothing else, as
many at once as the server does; `all` polls them until every message is published. `processor` is what both took of the
processors, all processes of ours counted: it hardly moves when others use the machine, as seconds do. JSON on stdout.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Coroutine
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any

from onoff.server.admin import edit_catalogue, opened
from onoff.server.feeds import AT_ONCE, Feed, fetch, poll_feeds
from onoff.server.http import Metrics

ENTRY = (
    "<item><title>Title {k}</title><link>https://example.org/{k}</link>"
    "<pubDate>Mon, 16 Nov 2026 10:{k:02d}:00 GMT</pubDate><description><![CDATA[<p>Some <b>text</b> with a "
    '<a href="https://example.org/{k}">link</a>. {text}</p>]]></description></item>'
)


def feed(entries: int) -> bytes:
    items = "".join(ENTRY.format(k=k, text="lorem ipsum dolor " * 20) for k in range(entries))
    return f'<?xml version="1.0"?><rss version="2.0"><channel><title>F</title>{items}</channel></rss>'.encode()


def site(entries: int, ready: Connection) -> None:
    """Serve the same feed at every path; at /hostile one that takes the parser minutes."""
    good, hostile = feed(entries), b"<rss><channel><item></x>" + b"<div><p>" * 500_000

    class Site(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = hostile if self.path == "/hostile" else good
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        ready.send(server.server_port)
        server.serve_forever()


async def download(feeds: list[Feed]) -> float:
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(url: str) -> None:
        async with turns:
            assert await fetch(url, {})

    start = time.perf_counter()
    await asyncio.gather(*(one(feed.url) for feed in feeds))
    return time.perf_counter() - start


async def poll(feeds: list[Feed], extra: list[Feed]) -> float:
    """Until all of `feeds` are published, `extra` or not."""
    with tempfile.TemporaryDirectory() as folder:
        async with opened(f"{folder}/messages.db") as store:
            await edit_catalogue(store, add=[feed.name for feed in [*extra, *feeds]])
            published, publish = set(), store.publish
            done = asyncio.Event()

            async def counted(name: str, *rest: object) -> object:
                message = await publish(name, *rest)  # type: ignore[arg-type]
                published.add(name)
                if len(published) == len(feeds):
                    done.set()
                return message

            store.publish = counted  # type: ignore[method-assign, assignment]
            start = time.perf_counter()
            polling = asyncio.create_task(poll_feeds(store, [*extra, *feeds], Metrics(), 3600.0))
            await done.wait()
            seconds = time.perf_counter() - start
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
            return seconds


def processor_seconds() -> float:
    """What this process and its children that have ended used so far."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def timed(work: Coroutine[Any, Any, float]) -> tuple[float, float]:
    """Seconds, and seconds of the processors."""
    before = processor_seconds()
    seconds = asyncio.run(work)
    return seconds, processor_seconds() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--feeds", type=int, default=300)
    parser.add_argument("--entries", type=int, default=10)
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=site, args=(options.entries, theirs), daemon=True)
    process.start()
    base = f"http://127.0.0.1:{ours.recv()}"
    feeds = [Feed(f"feed {k}", f"{base}/{k}") for k in range(options.feeds)]
    asyncio.run(download(feeds[:20]))
    rounds = [(timed(download(feeds)), timed(poll(feeds, []))) for _ in range(3)]
    downloaded, whole = min(rounds, key=lambda pair: pair[1][0] - pair[0][0])
    hostile = asyncio.run(poll(feeds, [Feed("hostile", f"{base}/hostile")]))
    process.kill()
    found = {
        "download": downloaded[0],
        "all": whole[0],
        "beyond_download": whole[0] - downloaded[0],
        "with_a_hostile": hostile,
        "processor_download": downloaded[1],
        "processor_all": whole[1],
    }
    rounded = {name: round(value, 3) for name, value in found.items()}
    print(json.dumps({"feeds": options.feeds, "entries": options.entries, **rounded}))


if __name__ == "__main__":
    main()
