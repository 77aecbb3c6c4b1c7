"""Settling a future with a result or an exception."""

from __future__ import annotations

import asyncio
from typing import Any


def settle(done: asyncio.Future[Any], outcome: Any) -> None:
    """Set the result of `done`, or the exception if `outcome` is one; do nothing if it is already done or cancelled."""
    if done.done():
        return
    if isinstance(outcome, Exception):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)
