"""OrderlyServer: uvicorn that leaves no connection open when it has shut down.

Apart from `sockets`, which every command may need: uvicorn takes a moment to import.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

import uvicorn

LATE_LOOK_SECONDS: Final = 0.02


class OrderlyServer(uvicorn.Server):
    """uvicorn that ends connections which come while it shuts down, and closes what has not ended in time.

    uvicorn tells all connections to end, and waits until they have. One that was accepted before and is made after that
    is told nothing: it is waited for until the time is up, and left open. A page whose event stream ends connects again
    at once, so this does happen.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        late = asyncio.create_task(self._end_late_connections())
        try:
            await super().shutdown(sockets)
        finally:
            late.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # in which they are closed

    async def _end_late_connections(self) -> None:
        known = set(self.server_state.connections)
        while True:
            await asyncio.sleep(LATE_LOOK_SECONDS)
            for connection in self.server_state.connections - known:
                known.add(connection)
                connection.shutdown()
