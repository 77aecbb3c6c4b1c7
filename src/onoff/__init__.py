"""Privacy that can be switched ON and OFF.

    chain = onoff.MarkovChain(P, names=[...])       how requests follow one another
    onoff.RequestModel.fit(sequences)               the same with types of people and longer memory
    onoff.bounds(P)                                 what hiding the past must cost, and can cost
    onoff.design(P, scheme="optimal")               a table of queries, exact in integers
    onoff.Session(chain).request(x, private=True)   one request in, one query out
    onoff.Client(url, chain).get(x, private=True)   the same against a message server, safe across crashes

Names are loaded when they are first used, so `import onoff` costs nothing, and a server never loads a chain. Every
error that onoff raises on purpose is here too; `onoff.errors` draws their tree.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from onoff.errors import (
    BadAnswer,
    CatalogueMismatch,
    InvalidChain,
    InvalidInput,
    InvalidModel,
    InvalidPattern,
    InvalidTable,
    InvalidWire,
    JournalBusy,
    JournalError,
    JournalUnusable,
    JournalWriteFailed,
    MirrorBusy,
    MirrorEmpty,
    MirrorError,
    MissingExtra,
    OnOffError,
    PrivacyBreach,
    ServerMissing,
    ServerUnreachable,
    SourceFailed,
    Stopped,
    StoreFull,
    StoreUnavailable,
    UnknownScheme,
    UnknownSource,
)

__version__ = "0.2.0"

logging.getLogger("onoff").addHandler(logging.NullHandler())  # what is said is for whoever uses it to show

if TYPE_CHECKING:
    from onoff.client import AsyncClient, Client, Message
    from onoff.model.bounds import bounds
    from onoff.model.chain import MarkovChain
    from onoff.model.contexts import RequestModel
    from onoff.model.people import OpenHistory, own_law
    from onoff.model.rows import UNIT, Rows
    from onoff.schemes import design
    from onoff.session import Query, Session
    from onoff.tables.table import QueryTable
    from onoff.upstream.web import Web

__all__ = [
    "UNIT",
    "AsyncClient",
    "BadAnswer",
    "CatalogueMismatch",
    "Client",
    "InvalidChain",
    "InvalidInput",
    "InvalidModel",
    "InvalidPattern",
    "InvalidTable",
    "InvalidWire",
    "JournalBusy",
    "JournalError",
    "JournalUnusable",
    "JournalWriteFailed",
    "MarkovChain",
    "Message",
    "MirrorBusy",
    "MirrorEmpty",
    "MirrorError",
    "MissingExtra",
    "OnOffError",
    "OpenHistory",
    "PrivacyBreach",
    "Query",
    "QueryTable",
    "RequestModel",
    "Rows",
    "ServerMissing",
    "ServerUnreachable",
    "Session",
    "SourceFailed",
    "Stopped",
    "StoreFull",
    "StoreUnavailable",
    "UnknownScheme",
    "UnknownSource",
    "Web",
    "bounds",
    "design",
    "own_law",
]

_HOME = {
    "AsyncClient": "client",
    "Client": "client",
    "MarkovChain": "model.chain",
    "Message": "client",
    "OpenHistory": "model.people",
    "Query": "session",
    "QueryTable": "tables.table",
    "RequestModel": "model.contexts",
    "Rows": "model.rows",
    "Session": "session",
    "UNIT": "model.rows",
    "Web": "upstream.web",
    "bounds": "model.bounds",
    "design": "schemes",
    "own_law": "model.people",
}


if not TYPE_CHECKING:  # a type checker reads the imports above, and refuses a name that is not there

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'onoff' has no attribute {name!r}")
        return getattr(import_module(f"onoff.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
