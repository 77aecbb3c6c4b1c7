"""The user's side: exactly one query per request, across crashes, retries and restores.

It stands on `session`, which draws, and on `upstream`, which asks; it has no socket of its own. A change to `core` or
`journal` may touch the promise that nothing is sent that is not stored, and nothing is drawn twice: the exact audit of
the shipped client decides. No other file here may make anything leave but by steps that `runner` carries out, or by a
refresh, which is not told what is wanted.

client      Client and AsyncClient: all of these together
core        the state machine: events in, commands out; the record of the last request, doubts
journal     where the record is kept
runner      carries out the steps of a core, one request at a time; Hooks: what may be watched or replaced
copies      what is known of every source, and what brings it up to date
stores      where copies are kept
message     what a request gives back
forecast    what requests will cost in bytes
consent     what was opened while OFF, remembered by consent, to learn a model from
"""

from onoff.client.client import AsyncClient, Client, default_journal, upstream_of
from onoff.client.copies import KeptCopies, MirrorClient, Refresh, SourceState, WebSources
from onoff.client.forecast import Forecast
from onoff.client.journal import Journal, MemoryJournal
from onoff.client.message import Copy, Message, ServerView
from onoff.client.runner import Attempt, BuildProgress, Hooks
from onoff.client.stores import CopiesFile, MemoryCopies, MemoryMirror, Mirror
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
    "KeptCopies",
    "MemoryCopies",
    "MemoryJournal",
    "MemoryMirror",
    "Message",
    "Mirror",
    "MirrorClient",
    "Refresh",
    "ServerView",
    "SourceState",
    "WebSources",
    "default_journal",
    "upstream_of",
]
