"""The form of a certificate in files and in JSON output: plain numbers and lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any

from onoff.errors import InvalidTable
from onoff.model.certificate import (
    Certificate,
    GroupCertificate,
    HittingBound,
    LeakCertificate,
    LeakLimit,
    PartsBound,
    RowCertificate,
    RowGroup,
    SetCertificate,
    SimpleBound,
)


def to_json(certificate: Certificate) -> dict[str, Any]:
    """Plain numbers and lists; `from_json` gives the same certificate back."""
    values = {field.name: getattr(certificate, field.name) for field in fields(certificate)}
    if isinstance(certificate, PartsBound):
        values["proofs"] = [to_json(proof) for proof in certificate.proofs]
    if isinstance(certificate, GroupCertificate):
        values["groups"] = [asdict(group) for group in certificate.groups]
    if isinstance(certificate, LeakCertificate):
        values["limit"] = asdict(certificate.limit)
    return {"kind": certificate.kind, **values}


def from_json(given: Any) -> Certificate:
    """The certificate of a document; what it proves is not checked. Raises InvalidTable where it is not one."""
    named = dict(given) if isinstance(given, dict) else {}
    kind = named.pop("kind", None)
    try:
        if kind == SimpleBound.kind and isinstance(named["name"], str):
            source = named["source"]
            return SimpleBound(named["name"], None if source is None else _whole(source))
        if kind == HittingBound.kind:
            return HittingBound(_whole(named["least"]))
        if kind == PartsBound.kind:
            return PartsBound(_lists(named["parts"]), tuple(from_json(proof) for proof in named["proofs"]))
        if kind == SetCertificate.kind:
            return SetCertificate(
                t=_whole(named["t"]),
                sets=_lists(named["sets"]),
                weights=_wholes(named["weights"]),
                tree=_wholes(named["tree"]),
                leaves=tuple(tuple((at, units) for at, units in _lists(leaf)) for leaf in named["leaves"]),
                scale=_whole(named["scale"]),
            )
        if kind == RowCertificate.kind:
            return RowCertificate(_wholes(named["rows"]), _lists(named["phi"]), _whole(named["scale"]))
        if kind == GroupCertificate.kind:
            return GroupCertificate(tuple(map(_group, named["groups"])), _whole(named["scale"]))
        if kind == LeakCertificate.kind:
            limit, prices, thresholds = limit_from_json(named["limit"]), _lists(named["prices"]), named["thresholds"]
            return LeakCertificate(limit, prices, _whole(named["allowance"]), _lists(thresholds))
    except (KeyError, TypeError, ValueError):
        pass
    raise InvalidTable(f"not a certificate of the kind {kind!r} in whole numbers")


def in_plain_integers(certificate: Certificate) -> Certificate:
    """The same certificate, made anew of plain tuples and Python integers, which are exact whatever is done with them.

    Raises InvalidTable where it has other numbers: fractions would be cut, and those of numpy wrap around.
    """
    try:
        return from_json(to_json(certificate))
    except (AttributeError, TypeError):  # not even a certificate
        raise InvalidTable(f"a {type(certificate).__name__} is no certificate") from None


def limit_from_json(given: Any) -> LeakLimit:
    """The limit of a document. Raises KeyError or TypeError where it is not one."""
    leak, ratio = (None if given[name] is None else _whole(given[name]) for name in ("leak", "ratio"))
    return LeakLimit(leak, ratio, _wholes(given["weights"]))


def _group(given: dict[str, Any]) -> RowGroup:
    rows, sources, shares = (_wholes(given[name]) for name in ("rows", "sources", "shares"))
    return RowGroup(rows, sources, shares, _lists(given["phi"]))


def _whole(value: Any) -> int:
    if type(value) is not int:  # a bool is one, and a class derived from it may calculate as it likes
        raise TypeError(value)
    return value


def _wholes(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(map(_whole, values))


def _lists(values: Sequence[Iterable[Any]]) -> tuple[tuple[int, ...], ...]:
    return tuple(map(_wholes, values))
