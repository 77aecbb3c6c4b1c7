"""Doubt: why the record of the last request may be out of date, so that the next query has to be everything.

Code compares members. The value of each is the sentence that people read; `status`, `onoff state` and the note of a
request show it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Doubt(StrEnum):
    """Found by the journal (the first four), by comparing it with this client, or by asking the server."""

    NEW = "there was no journal"
    COPIED = "the journal was copied or moved from elsewhere"
    DAMAGED = "the journal was damaged and put aside"
    PUT_BACK = "the journal is not the one that was used last"
    NOTHING_STORED = "there is no last request"
    OTHER_CHAIN = "the chain is not the one of the last request"
    OTHER_SERVER = "the server is not the one of the last request"
    OTHER_CATALOGUE = "the server's catalogue has changed"
    UNFIT = "the journal does not fit the chain"
    ROLLED_BACK = "the journal is older than what the server saw"
    FORGOTTEN = "the server does not know this session"
    CONFLICT = "the server saw another request at this step"


HARMLESS: Final = frozenset({Doubt.OTHER_SERVER, Doubt.OTHER_CATALOGUE, Doubt.FORGOTTEN})
"""The server does not have the last step of the journal, but what the journal holds of the past is still right. After
any other doubt there may have been requests that the journal does not know of."""
