"""What a client must remember, and nothing else: the last request it stored.

The last query *is* the pending one: as soon as it is stored it counts as sent, so there is nothing older to keep.
`wanted` is secret, and `memory` where a model has one; everything else is known to the server, or is about the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Record:
    """One request as it was stored before it was sent.

    server, chain, origin  the address, the digest of the chain or model, and where it came from
    session, step          the server's name for this request
    query                  the bytes to send, as often as it takes
    asked                  the same set as a bitmap over the sources of the chain: the last query
    wanted                 secret: which of them was wanted
    private, note          how it was asked, and why everything was, if it was
    pending                not answered yet
    others                 what goes to the second and further servers, one after the other, each as long as `query`
    mirror                 read from the mirror: nothing was sent for it, `query` and `step` are those last sent
    memory                 what the session's memory needs beyond `asked` and `wanted`, in bytes of its own; secret
    """

    server: str
    chain: str
    origin: str
    session: bytes
    step: int
    query: bytes
    asked: bytes
    wanted: int = field(repr=False)
    private: bool
    note: str | None = None
    pending: bool = True
    memory: bytes = field(default=b"", repr=False)
    mirror: bool = False
    others: bytes = field(default=b"", repr=False)
