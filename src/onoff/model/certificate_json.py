"""The form of a certificate in files and in JSON output: plain numbers and lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from onoff.errors import InvalidTable
from onoff.model.certificate import (
    Certificate,
    HittingBound,
    PartsBound,
    RowCertificate,
    SetCertificate,
    SimpleBound,
)


def to_json(certificate: Certificate) -> dict[str, Any]:
    """Plain numbers and lists; `from_json` gives the same certificate back."""
    match certificate:
        case SimpleBound(name, source):
            return {"kind": "simple", "name": name, "source": source}
        case HittingBound():
            kind = "hits"
        case PartsBound(parts, proofs):
            return {"kind": "parts", "parts": parts, "proofs": [to_json(proof) for proof in proofs]}
        case SetCertificate():
            kind = "sets"
        case RowCertificate():
            kind = "rows"
    return {"kind": kind, **{name: getattr(certificate, name) for name in certificate.__dataclass_fields__}}


def from_json(given: Any) -> Certificate:
    """The certificate of a document. Raises InvalidTable where it is none; whether it proves anything is not asked."""
    fields = dict(given) if isinstance(given, dict) else {}
    kind = fields.pop("kind", None)
    try:
        if kind == "simple" and isinstance(fields["name"], str):
            source = fields["source"]
            return SimpleBound(fields["name"], None if source is None else _whole(source))
        if kind == "hits":
            return HittingBound(_whole(fields["least"]))
        if kind == "parts":
            return PartsBound(_lists(fields["parts"]), tuple(from_json(proof) for proof in fields["proofs"]))
        if kind == "sets":
            return SetCertificate(
                t=_whole(fields["t"]),
                sets=_lists(fields["sets"]),
                weights=_wholes(fields["weights"]),
                tree=_wholes(fields["tree"]),
                leaves=tuple(tuple((at, units) for at, units in _lists(leaf)) for leaf in fields["leaves"]),
                scale=_whole(fields["scale"]),
            )
        if kind == "rows":
            return RowCertificate(_wholes(fields["rows"]), _lists(fields["phi"]), _whole(fields["scale"]))
    except (KeyError, TypeError, ValueError):
        pass
    raise InvalidTable(f"not a certificate of the kind {kind!r}")


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _wholes(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(map(_whole, values))


def _lists(values: Sequence[Iterable[Any]]) -> tuple[tuple[int, ...], ...]:
    return tuple(map(_wholes, values))
