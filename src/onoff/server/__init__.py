"""The message server: N sources, each with a latest message; a query names a set, the answer is those messages.

It imports `onoff.wire` and `onoff.errors` and nothing of chains, schemes or clients: it cannot compute what a
query says about its sender. `running()` starts one in a thread; `onoff serve` is the command.
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
