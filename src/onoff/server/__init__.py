"""The message server: N sources, each with a latest message; a query names a set, the answer is those messages.

It stands on `wire`, `system` and the HTTP client of `upstream`, and imports nothing of chains, schemes or clients: it
cannot compute what a query says about its sender. A change to `http` or `connections` may touch who else is served
meanwhile and for how long, one to a store what survives a crash; one to `answers`, `changes` or `sums` what readers
get, which has to stay a function of the request and of what was published, and of nothing else. `running()` starts one
in a thread; `onoff serve` is the command.

    app          what each path answers, and its description; who may publish, and who may see the counts
    http         one request and one reply: the strict form of heads, limits, refusals, counts
    connections  uvicorn's protocol behind the strict parser, and the fast path
    answers      from the bytes of a query to the bytes of its answer, by frames that are ready
    changes      the last editions, and what changed since one; `sums` adds their frames up
    store        what every store promises; `sqlite` and `valkey` are the two that there are
    admin        a store opened, its catalogue, publishers and backups
    feeds        sources that are polled; `feed_reader` parses what came, in processes with limits
    following    a server that is a copy of another one
    run          one process, several workers, or a thread
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onoff.server.run import Running, running

__all__ = ["Running", "running"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from onoff.server import run

        return getattr(run, name)
    raise AttributeError(name)
