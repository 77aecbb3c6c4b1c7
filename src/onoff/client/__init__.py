"""The user's side: one query per request, ever, across crashes, retries and restores.

record        what must be remembered: the last request, as it was stored
doubt         why that cannot be relied on
core          the state machine: events in, commands out
commands      what it asks for
exchange      a request and its reply, as values
journal       where the record is kept
durable       a core together with its journal
driver        carries out commands
builder       has the next table at hand; background: in a thread
transport     HTTP
client        Client: all of these together
asynchronous  the same from an event loop
catalogue     fetch a catalogue
publish       put a message
"""

from onoff.client.asynchronous import AsyncClient
from onoff.client.builder import Progress
from onoff.client.client import Client, default_journal
from onoff.client.doubt import Doubt
from onoff.client.driver import Attempt
from onoff.client.journal import Journal, MemoryJournal
from onoff.client.message import Message, Sent

__all__ = [
    "AsyncClient",
    "Attempt",
    "Client",
    "Doubt",
    "Journal",
    "MemoryJournal",
    "Message",
    "Progress",
    "Sent",
    "default_journal",
]
