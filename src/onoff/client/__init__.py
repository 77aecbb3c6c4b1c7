"""The user's side: exactly one query per request, across crashes, retries and restores.

record        what must be remembered: the last request, as it was stored
doubt         reasons why the record may be out of date
core          the state machine: events in, commands out; servers: the same for several servers
commands      what the core asks for
exchange      a request and its reply, as values
journal       where the record is kept
driver        carries out commands that need a server
runner        carries out requests, one at a time: a core, its journal and a background thread
builder       builds the next table in advance
transport     HTTP
retrying      repeat a command until its reply is valid
mirror        every message on this machine; refreshing: what changed; mirrored: MirrorClient
forecast      what requests will cost in bytes
open_record   what was opened while OFF, remembered by consent, to learn a model from
client        Client: all of these together; setup: what it is made from; unmodelled: without a model
asynchronous  AsyncClient: the client for asyncio
catalogue     fetch a catalogue; operators: whether servers look like one operator
publish       put a message
"""

from onoff.client.client import AsyncClient, Client, default_journal
from onoff.client.copies import MemoryMirror, Mirror, MirrorClient, Refresh, SourceState
from onoff.client.core import Doubt
from onoff.client.forecast import Forecast
from onoff.client.journal import Journal, MemoryJournal
from onoff.client.message import Copy, Message, Sent
from onoff.client.runner import Attempt, BuildProgress

__all__ = [
    "AsyncClient",
    "Attempt",
    "BuildProgress",
    "Client",
    "Copy",
    "Doubt",
    "Forecast",
    "Journal",
    "MemoryJournal",
    "MemoryMirror",
    "Message",
    "Mirror",
    "MirrorClient",
    "Refresh",
    "Sent",
    "SourceState",
    "default_journal",
]
