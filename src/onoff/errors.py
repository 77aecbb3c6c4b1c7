"""Everything that onoff raises on purpose.

    OnOffError                       exit 1   something failed
    ├── InvalidInput (ValueError)    exit 3   what you gave cannot be used
    │   ├── InvalidChain                      not a transition matrix, or not a chain file
    │   ├── InvalidModel                      not a model of requests, or not a model file
    │   ├── InvalidPattern                    not a pattern of ON and OFF
    │   ├── InvalidTable                      not a query table: sums, signs or sources are wrong
    │   ├── InvalidWire                       bytes or names that the wire does not allow
    │   ├── CatalogueMismatch                 the chain names sources that the server does not have
    │   ├── UnknownSource                     no source of that name
    │   └── UnknownScheme                     no scheme or memory of that name
    ├── MissingExtra                 exit 1   an optional part is not installed
    ├── Stopped                      exit 1   a long computation was stopped before it was done
    ├── StoreUnavailable             exit 1   the server's store of messages does not answer
    │   └── StoreFull                         it has no room for what was to be written
    ├── JournalError                 exit 1   the client's journal cannot be used; nothing was sent
    │   ├── JournalBusy                       another process, or another client in this one, has it open
    │   ├── JournalUnusable                   not a journal, or one of a newer version
    │   └── JournalWriteFailed                the disk is full, or gives errors
    ├── MirrorError                  exit 1   the client's copy of the messages cannot be used
    │   ├── MirrorBusy                        another process, or another client in this one, has it open
    │   └── MirrorEmpty                       nothing was fetched yet
    ├── ServerUnreachable            exit 4   no answer, or not one of a message server
    │   ├── ServerMissing                     of several servers one does not answer; all are needed
    │   └── BadAnswer                         an answer that is not in its one form, or a refusal
    ├── SourceFailed                 exit 1   a site has no answer for the wanted source; all of the set was asked for
    └── PrivacyBreach                exit 5   a privacy check failed

Some parts derive their own errors from OnOffError (exit 1): the gateway's Busy, Changed and Superseded,
the client's NoChanges, the budget's OverBudget, the adapters' NotListed (exit 3), the sweep's ClusterLost, and
ShuttingDown.

Each carries a message that names what is wrong and where, and a `hint` that says what to do.
No message, argument or repr of an error ever holds a private request.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class OnOffError(Exception):
    """Base of every error that onoff raises on purpose.

    >>> error = OnOffError("row 2 sums to 0.9", hint="divide it by its sum")
    >>> str(error), error.exit_code
    ('row 2 sums to 0.9 (divide it by its sum)', 1)
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidInput(OnOffError, ValueError):
    """What was given cannot be used; nothing was sent or written."""

    exit_code = 3


class InvalidChain(InvalidInput):
    """Not a transition matrix, or not a file that holds one."""


class InvalidModel(InvalidInput):
    """Not a model of requests, not a file that holds one, or too little to learn one from."""


class InvalidPattern(InvalidInput):
    """Not a pattern of ON and OFF."""


class InvalidTable(InvalidInput):
    """Not a query table: its sums, signs or sources are wrong."""


class InvalidWire(InvalidInput):
    """Bytes, names or sizes that are not in the one form the wire allows."""


class CatalogueMismatch(InvalidInput):
    """The chain names sources that are not in the server's catalogue."""


class UnknownSource(InvalidInput):
    """No source of that name."""


class UnknownScheme(InvalidInput):
    """No scheme, memory or option of that name."""


class MissingExtra(OnOffError):
    """An optional part of onoff is not installed; `extra` is what pip calls it."""

    def __init__(self, message: str, *, extra: str) -> None:
        super().__init__(message, hint=f"pip install 'onoff-privacy[{extra}]'; in a clone of onoff: make setup")


class JournalError(OnOffError):
    """The client's journal cannot be used; nothing was sent."""


class JournalBusy(JournalError):
    """The journal is open elsewhere: it has one writer at a time."""


class JournalUnusable(JournalError):
    """The file at the journal's path is not a journal, or one of a newer version."""


class JournalWriteFailed(JournalError):
    """The journal could not be written, so the query was not sent."""


class Stopped(OnOffError):
    """A long computation was told to stop before it was done: there is no result."""


class MirrorError(OnOffError):
    """The client's copy of the messages cannot be used; it can always be fetched again."""


class MirrorBusy(MirrorError):
    """Another process, or another client in this one, has the copy open."""


class MirrorEmpty(MirrorError):
    """Nothing was fetched yet, so there is nothing to read."""


class StoreUnavailable(OnOffError):
    """The store of messages does not answer; what was asked of it may be asked again."""


class StoreFull(StoreUnavailable):
    """The store has no room; nothing was written, and it answers as before."""


class ServerUnreachable(OnOffError):
    """There is no answer at the address, or not one of a message server."""

    exit_code = 4


class ServerMissing(ServerUnreachable):
    """Of several servers one does not answer, and all are needed. `answered`: the places of those that do."""

    def __init__(self, message: str, *, hint: str | None = None, answered: tuple[int, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.answered = answered


class BadAnswer(ServerUnreachable):
    """The server refused, or its answer is not in its one form; nothing of it was used."""


class SourceFailed(OnOffError):
    """A site gave no answer for the source that was wanted. All of the set was asked for, and the request was made.

    status: The HTTP status that the site answered with; 0 where there was none.
    """

    def __init__(self, message: str, *, hint: str | None = None, status: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class PrivacyBreach(OnOffError):
    """A privacy check failed: what the server sees depends on what must stay hidden."""

    exit_code = 5


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the known word closest to `word`, or the first few of them."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    listed = ", ".join(repr(k) for k in known[:8])
    return f"known: {listed}{', ...' if len(known) > 8 else ''}"
