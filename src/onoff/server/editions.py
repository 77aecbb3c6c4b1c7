"""Editions, for both stores: how many digests are kept, how the rate of change is counted, what a new life is."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping

from onoff.errors import InvalidWire
from onoff.wire import FRAME_OVERHEAD, LIFE_BYTES, MAX_ANSWER, Catalogue

KEPT_DIGESTS = 1 << 16  # a reader whose edition is older than so many changes gets everything
HOURS = 24  # over which change is averaged


def new_life() -> bytes:
    """The random id of a new history."""
    return secrets.token_bytes(LIFE_BYTES)


def current_hour() -> int:
    """Hours since 1970."""
    return int(time.time() // 3600)


def changed_per_hour(hours: Mapping[int, int], born: int) -> int:
    """The mean of the bytes that changed in an hour, over the last day or the age of the store.

    hours: Bytes by hour since 1970; hours without a change may be left out.
    """
    now = current_hour()
    span = max(1, min(HOURS, now - born + 1))
    return sum(size for hour, size in hours.items() if now - span < hour <= now) // span


def may_overflow(catalogue: Catalogue) -> bool:
    """Whether messages within the limit can make an answer longer than `MAX_ANSWER`."""
    return catalogue.frame_size is None and catalogue.n * (FRAME_OVERHEAD + catalogue.limit) > MAX_ANSWER


def check_message(catalogue: Catalogue, body: bytes) -> None:
    """Refuse a message that is longer than the catalogue allows."""
    if len(body) > catalogue.limit:
        raise InvalidWire(f"a message of {len(body)} bytes", hint=f"at most {catalogue.limit} bytes")


def check_total(catalogue: Catalogue, others: int, body: bytes) -> None:
    """Refuse a message that would make an answer with all sources too long.

    Raises
    ------
    InvalidWire
        If the answer would be longer than `MAX_ANSWER`.
    """
    total = catalogue.n * FRAME_OVERHEAD + others + len(body)
    if total > MAX_ANSWER:
        raise InvalidWire(
            f"all messages together would make an answer of {total} bytes",
            hint=f"at most {MAX_ANSWER}: publish shorter messages, or take sources out",
        )
