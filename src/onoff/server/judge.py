"""The verdict on a query, given what is on the shelf: one synchronous function for all paths.

Order of judgement: form of the head, epoch, form of the bitmap, step. What is refused before its step is looked at
leaves no trace in the store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from onoff import wire
from onoff.errors import InvalidWire, StoreUnavailable
from onoff.server.shelf import Shelf
from onoff.server.store import LastStep
from onoff.wire import QUERY_HEAD_BYTES, Problem

Answer = list[bytes]  # its frames, at least one


Admit = Callable[[bytes, int, bytes], LastStep | None]  # session, step, digest: the conflicting step, if any


def judge(body: bytes, shelf: Shelf, admit: Admit) -> Answer | Problem:
    """The frames that the query in `body` asks for; or why it is refused."""
    try:
        epoch, session, step = wire.decode_query_head(body)
        if epoch != shelf.epoch:
            return epoch_changed(shelf.epoch)
        frames = wire.select(body[QUERY_HEAD_BYTES:], shelf.frames)
    except InvalidWire as error:
        return invalid(error)
    conflict = admit(session, step, hashlib.sha256(body).digest())
    return frames if conflict is None else step_conflict(conflict)


def invalid(error: InvalidWire) -> Problem:
    return Problem(400, error.message, error.hint or "")


def epoch_changed(epoch: int) -> Problem:
    return Problem(
        409,
        "the catalogue is not the one of the query",
        "fetch /v1/catalogue and start a new session",
        wire.EPOCH_CHANGED,
        epoch=epoch,
    )


def step_conflict(last: LastStep) -> Problem:
    return Problem(
        409,
        "this session has already sent another query for this step, or a later step",
        "start a new session and ask for everything",
        wire.STEP_CONFLICT,
        step=last.step,
        sha256=last.digest.hex(),
    )


def unavailable(error: StoreUnavailable) -> Problem:
    del error  # its text may name files and hosts, which must not reach the client
    return Problem(503, "the store of messages does not answer", "send the same request again in a moment")


def edition_gone(newest: int) -> Problem:
    """The refusal of what is asked of an edition that is not held."""
    return Problem(
        409,
        "the edition of the query is not held",
        "see /v1/edition of all servers and ask the same of another edition",
        wire.EDITION_GONE,
        edition=newest,
    )
