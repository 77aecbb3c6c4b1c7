"""Where a model comes from and how well it is known, as its file says under "about"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from onoff.model.chain import LARGEST_FILE
from onoff.system.files import read_limited

OWN: Final = "own"
"""As "whose" in what a file says of its trace: learnt from the open requests of the person who uses it."""


def about_of(path: Path) -> dict[str, Any]:
    """What the file of a model, which was loaded before, says of it; empty where it says nothing."""
    if path.suffix.lower() == ".npz":
        from onoff.model.files import read_file

        return dict(read_file(path, LARGEST_FILE).get("about") or {})
    try:
        found = json.loads(read_limited(path, LARGEST_FILE).decode("utf-8-sig"))
    except (UnicodeDecodeError, ValueError):  # a matrix
        return {}
    about = found.get("about") if isinstance(found, dict) else None
    return dict(about) if isinstance(about, Mapping) else {}


def origin_in_words(about: Mapping[str, Any]) -> str:
    """What a model was learnt from, in a sentence.

    >>> origin_in_words({"guess": "sticky"})
    'A guess (sticky), learnt from nobody.'
    >>> origin_in_words({"trace": {"users": 3, "requests": 1200}})
    'Learnt from 1,200 requests of 3 people.'
    >>> origin_in_words({})
    'Its file does not say what it was learnt from.'
    """
    if "guess" in about:
        return f"A guess ({about['guess']}), learnt from nobody."
    trace = about.get("trace")
    if not isinstance(trace, Mapping) or not isinstance(trace.get("requests"), int):
        return "Its file does not say what it was learnt from."
    requests = f"{trace['requests']:,} request{'' if trace['requests'] == 1 else 's'}"
    if trace.get("whose") == OWN:
        since = trace.get("since")
        day = f" since {datetime.fromtimestamp(since, UTC):%Y-%m-%d}" if isinstance(since, int | float) else ""
        return f"Learnt from {requests} of your own while OFF{day}."
    users = trace.get("users")
    return f"Learnt from {requests} of {users:,} {'person' if users == 1 else 'people'}."
