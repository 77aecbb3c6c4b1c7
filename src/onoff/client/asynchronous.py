"""AsyncClient: the client for asyncio. The same methods as `Client`, each run in a thread.

Requests queue as they do in `Client`. Cancelling the wait does not cancel the request: it counts as sent.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from onoff.client.client import Client
from onoff.client.forecast import Forecast
from onoff.client.message import Copy, Message
from onoff.client.mirrored import Refresh, SourceState


class AsyncClient:
    """`Client`, with the same arguments.

    >>> from onoff import MarkovChain
    >>> chain = MarkovChain([[0.9, 0.1], [0.2, 0.8]])
    >>> client = AsyncClient("http://127.0.0.1:8470", chain, journal="/nonexistent/journal")
    >>> client
    <AsyncClient: 2 sources>
    >>> asyncio.run(client.close())
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._client = Client(*arguments, **options)

    def __repr__(self) -> str:
        return f"<Async{repr(self._client)[1:]}"

    async def get(self, source: str | int, *, private: bool, max_age: float | None = None) -> Message:
        """See `Client.get`.

        Parameters
        ----------
        source, private, max_age
            As for `Client.get`.
        """
        return await asyncio.to_thread(self._client.get, source, private=private, max_age=max_age)

    async def refresh(self) -> Refresh:
        """See `Client.refresh`."""
        return await asyncio.to_thread(self._client.refresh)

    async def read(self, source: str | int) -> Message:
        """See `Client.read`."""
        return await asyncio.to_thread(self._client.read, source)

    async def copy(self, source: str | int) -> Copy:
        """See `Client.copy`."""
        return await asyncio.to_thread(self._client.copy, source)

    async def sources(self) -> tuple[SourceState, ...]:
        """See `Client.sources`."""
        return await asyncio.to_thread(self._client.sources)

    async def forecast(self) -> Forecast:
        """See `Client.forecast`."""
        return await asyncio.to_thread(self._client.forecast)

    async def retry(self) -> Message:
        """See `Client.retry`."""
        return await asyncio.to_thread(self._client.retry)

    async def status(self) -> dict[str, Any]:
        """See `Client.status`."""
        return await asyncio.to_thread(self._client.status)

    async def expected_cost(self, *, private: bool, wait: bool = True) -> float | None:
        """See `Client.expected_cost`."""
        return await asyncio.to_thread(self._client.expected_cost, private=private, wait=wait)

    async def close(self) -> None:
        """See `Client.close`."""
        await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
