"""The user's side: one query per request, ever, across crashes, retries and restores.

record        what must be remembered: the last request, as it was stored
core          the machine: events in, commands out
journal       where the record is kept
transport     how bytes reach the server
client        Client, the hands of the machine
asynchronous  the same from an event loop
"""

from onoff.client.asynchronous import AsyncClient
from onoff.client.client import Client, Progress, default_journal
from onoff.client.journal import Journal, MemoryJournal
from onoff.client.message import Message, Sent

__all__ = ["AsyncClient", "Client", "Journal", "MemoryJournal", "Message", "Progress", "Sent", "default_journal"]
