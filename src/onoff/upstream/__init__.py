"""Where messages come from, and what asking for a set of them looks like from outside.

An upstream is given a set and the copies, and *not* what is wanted: code that never has the secret cannot leak it. It
stands on `wire` alone; the client stands on it. What changes here may change what
leaves the machine, and so the exact audit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from onoff.upstream.transport import Origin


@dataclass(frozen=True, slots=True)
class WebCopy:
    """The latest known message of a source, as a site gave it.

    etag, modified  its validators, as the site wrote them
    fetched         when the site last confirmed it, in seconds since 1970; it is fresh until `fresh_until`
    place           where it has moved for good; None: where the list says
    """

    body: bytes = field(repr=False)
    media_type: str
    etag: str | None
    modified: str | None
    fetched: float
    fresh_until: float
    place: str | None = None


class Copies(Protocol):
    """What is known of every source, durable: the latest copy of each, and when each host was asked."""

    def get(self, name: str) -> WebCopy | None:
        """The copy of a source; None where there is none."""

    def keep(self, copies: Mapping[str, WebCopy]) -> None:
        """Keep these copies, all or none of them."""

    def sent(self, host: Origin, since: float) -> Sequence[float]:
        """When this host was asked since a time, ascending."""

    def note_sent(self, requests: Sequence[tuple[Origin, float]]) -> None:
        """Requests went out to these hosts at these times."""
