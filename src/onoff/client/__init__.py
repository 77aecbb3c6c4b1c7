"""The user's side: exactly one query per request, across crashes, retries and restores.

client      Client and AsyncClient: all of these together; Hooks: what may be watched or replaced
core        the state machine: events in, commands out; the record of the last request, doubts
journal     where the record is kept
runner      carries out the steps of a core, one request at a time; builds the next table in advance
copies      the latest message of every source on this machine: of a message server (the mirror), of web sites
message     what a request gives back
forecast    what requests will cost in bytes
consent     what was opened while OFF, remembered by consent, to learn a model from
unmodelled  a session without a model
"""

from onoff.client.client import AsyncClient, Client, Hooks, default_journal, upstream_of
from onoff.client.copies import (
    CopiesFile,
    MemoryCopies,
    MemoryMirror,
    Mirror,
    MirrorClient,
    Refresh,
    SourceState,
    WebSources,
)
from onoff.client.forecast import Forecast
from onoff.client.journal import Journal, MemoryJournal
from onoff.client.message import Copy, Message, Sent
from onoff.client.runner import Attempt, BuildProgress
from onoff.upstream import Doubt

__all__ = [
    "AsyncClient",
    "Attempt",
    "BuildProgress",
    "Client",
    "CopiesFile",
    "Copy",
    "Doubt",
    "Forecast",
    "Hooks",
    "Journal",
    "MemoryCopies",
    "MemoryJournal",
    "MemoryMirror",
    "Message",
    "Mirror",
    "MirrorClient",
    "Refresh",
    "Sent",
    "SourceState",
    "WebSources",
    "default_journal",
    "upstream_of",
]
