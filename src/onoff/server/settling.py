"""Telling whoever waits for a future what became of it."""

from __future__ import annotations

import asyncio
from typing import Any


def settle(done: asyncio.Future[Any], outcome: Any) -> None:
    """Give `done` its outcome, an exception as such, unless whoever waited has gone."""
    if done.done():
        return
    if isinstance(outcome, Exception):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)
