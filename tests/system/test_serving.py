"""OrderlyServer: no connection is open when it has shut down, however late it came and whatever it was doing."""

import asyncio
import contextlib
import logging
import socket

import pytest
import uvicorn
from tests.support.waiting import PATIENCE

from onoff.system.serving import OrderlyServer

PROTOCOLS = ("h11", "httptools")
WITHOUT_ITS_BODY = b"POST / HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
TO_BE_READ = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
LONG = bytes(2**26)
"""More than fits in the buffers between a server and a client that does not read."""


async def app(scope, receive, send):
    """Answers at length, after the whole body of the request."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": LONG})


def server_with(protocol, seconds):
    """A server that waits so long for connections to end."""
    settings = {"http": protocol, "ws": "none", "lifespan": "off", "log_config": None}
    return OrderlyServer(uvicorn.Config(app, timeout_graceful_shutdown=seconds, **settings))


async def started(server):
    """The server under way, and its port."""
    listening = socket.create_server(("127.0.0.1", 0))
    task = asyncio.create_task(server.serve([listening]))
    while not server.started:
        await asyncio.sleep(0.001)
    return task, listening.getsockname()[1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_connection_that_comes_during_the_shutdown_is_ended_and_not_waited_for(protocol, caplog):
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)

    async def stop_while_one_comes():
        server = server_with(protocol, PATIENCE)
        task, _ = await started(server)
        make, loop = server.config.http_protocol_class, asyncio.get_running_loop()
        state = {"config": server.config, "server_state": server.server_state, "app_state": {}}
        shutdown = server.shutdown

        async def shutdown_with_a_late_one(sockets=None):
            coming = loop.create_task(loop.connect_accepted_socket(lambda: make(**state), theirs))
            await shutdown(sockets)  # which looks at all connections before this one is made
            await coming

        server.shutdown = shutdown_with_a_late_one
        server.should_exit = True
        await task
        assert not server.server_state.connections

    with contextlib.closing(ours), caplog.at_level(logging.ERROR):
        asyncio.run(stop_while_one_comes())
        assert ours.recv(1) == b""
    assert caplog.text == ""  # uvicorn would say there that time was up


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("request_head", [WITHOUT_ITS_BODY, TO_BE_READ])
def test_a_connection_that_has_not_ended_in_time_is_closed(protocol, request_head):
    async def stop_during_a_request():
        server = server_with(protocol, 0)
        task, port = await started(server)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_head)
        assert await reader.readuntil(b" ") == b"HTTP/1.1 "  # under way, and no more is read
        server.should_exit = True
        await task
        assert not server.server_state.connections
        writer.transport.abort()

    asyncio.run(stop_during_a_request())
