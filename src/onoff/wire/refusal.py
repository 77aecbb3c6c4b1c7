"""What the server says besides frames: why it refuses, and the last step that it saw in a session.

Every refusal is problem+json. A 409 is one of three: `EPOCH_CHANGED` (with `epoch`, the new one); `STEP_CONFLICT`
(with `step` and `sha256`, the last step that the server saw in this session and the digest of its bytes): the same
step with other bytes, or a step before the last; or `EDITION_GONE` (with `edition`, the newest that the server has): a
sum was asked of an edition that it does not hold. The same step with the same bytes is answered again.

`Seen` says what `STEP_CONFLICT` would, so that a client whose state was restored from an earlier one learns it
before it asks anything: JSON with `step` and `sha256`, both null if unknown.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from onoff.errors import InvalidWire
from onoff.wire.query import STEP_LIMIT

EPOCH_CHANGED: Final = "urn:onoff:epoch-changed"
STEP_CONFLICT: Final = "urn:onoff:step-conflict"
EDITION_GONE: Final = "urn:onoff:edition-gone"

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Problem:
    """A refusal as RFC 9457 has it, with a hint that says what to do.

    `epoch` comes with `EPOCH_CHANGED`; `step` and `sha256` with `STEP_CONFLICT`; `edition` with `EDITION_GONE`.
    """

    status: int
    title: str
    hint: str = ""
    type: str = "about:blank"
    epoch: int | None = None
    step: int | None = None
    sha256: str | None = None
    edition: int | None = None


_PROBLEM_FIELDS: dict[str, type] = {
    "type": str,
    "title": str,
    "status": int,
    "hint": str,
    "epoch": int,
    "step": int,
    "sha256": str,
    "edition": int,
}


def encode_problem(problem: Problem) -> bytes:
    """The problem+json of a refusal."""
    fields = {name: getattr(problem, name) for name in _PROBLEM_FIELDS}
    return json.dumps({k: v for k, v in fields.items() if v is not None}, separators=(",", ":")).encode()


def decode_problem(data: bytes) -> Problem:
    """The refusal in `data`. Unknown members are passed over, as RFC 9457 asks."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidWire("a refusal that is not JSON", hint="is this a message server?") from None
    if not isinstance(fields, dict):
        raise InvalidWire("a refusal that is not an object", hint="is this a message server?")
    known = {k: v for k, v in fields.items() if k in _PROBLEM_FIELDS}
    if any(type(v) is not _PROBLEM_FIELDS[k] for k, v in known.items()) or not {"status", "title"} <= known.keys():
        raise InvalidWire("a refusal whose members have other types", hint="is this a message server?")
    problem = Problem(**known)
    if problem.type == EPOCH_CHANGED and problem.epoch is None:
        raise InvalidWire("a changed epoch that is not named", hint="is this a message server?")
    if problem.type == STEP_CONFLICT and (problem.step is None or problem.sha256 is None):
        raise InvalidWire("a step conflict that does not say with what", hint="is this a message server?")
    if problem.type == EDITION_GONE and problem.edition is None:
        raise InvalidWire("an edition that is gone, and none in its place", hint="is this a message server?")
    return problem


@dataclass(frozen=True, slots=True)
class Seen:
    """The last step that the server saw in a session, and the SHA-256 of its bytes in hex."""

    step: int
    sha256: str


def encode_seen(seen: Seen | None) -> bytes:
    """The JSON of what was seen last, of the same form where nothing was."""
    step, sha256 = (None, None) if seen is None else (seen.step, seen.sha256)
    return json.dumps({"step": step, "sha256": sha256}, separators=(",", ":")).encode()


def decode_seen(data: bytes) -> Seen | None:
    """What was seen last, in its one form."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidWire("a last step that is not JSON", hint="is this a message server?") from None
    match fields:
        case {"step": None, "sha256": None}:
            seen = None
        case {"step": int(step), "sha256": str(sha256)} if 0 <= step < STEP_LIMIT and _SHA256.fullmatch(sha256):
            seen = Seen(int(step), sha256)  # true is not 1 in the form below
        case _:
            raise InvalidWire("a last step without step and sha256", hint="is this a message server?")
    if encode_seen(seen) != data:
        raise InvalidWire("a last step that is not in its one form", hint="the server or the line is faulty")
    return seen
