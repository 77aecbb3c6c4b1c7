"""What was measured on real readers: kept in the model's file, and shown beside every claim of zero bits.

Zero bits hold for people who behave like the model. `onoff audit traces --save` measures what others give away and puts
the outcome into the file of the model, under "about": "measured". Page, demo and doctor read it from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onoff.errors import InvalidInput
from onoff.model.chain import LARGEST_FILE
from onoff.model.contexts import Model, RequestModel
from onoff.model.origin import about_of
from onoff.system.files import atomic_write, read_limited

if TYPE_CHECKING:
    from onoff.audit.traces import TraceAudit

IF_YOU_ARE_LIKE_THE_MODEL = "0 bits if you behave like the model"


def summary(audit: TraceAudit, trace: str) -> dict[str, Any]:
    """What is kept of an audit: the last step."""
    last = audit.steps[-1]
    return {
        "trace": trace,
        "users": audit.users,
        "before": audit.before,
        "after": last.k,
        "bits": last.bits,
        "stderr": last.stderr,
        "top1": last.top1,
        "prior_bits": audit.prior_bits,
        "prior_top1": audit.prior_top1,
        "naive_bits": last.naive_bits,
        "naive_top1": last.naive_top1,
        "history": audit.history,
        "difference": last.difference,
        "difference_stderr": last.difference_stderr,
        "control_bits": last.control_bits,
        "control_stderr": last.control_stderr,
        "cost": audit.cost,
        "everything": audit.everything,
    }


def with_measured(about: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says once this was measured: the latest audit, and that of each kind of history."""
    audits = {**about.get("audits", {}), measured.get("history", "none"): dict(measured)}
    return {**about, "measured": dict(measured), "audits": audits}


def save_measured(path: Path, measured: Mapping[str, Any]) -> None:
    """Put a summary into the file of the model. Raises InvalidInput where the file has no place for it."""
    if path.suffix.lower() == ".npz":
        model = RequestModel.load(path)
        RequestModel(**{**model.parts(), "about": with_measured(model.about, measured)}).save(path)
        return
    try:
        document = json.loads(read_limited(path, LARGEST_FILE).decode("utf-8-sig"))
        document["about"] = with_measured(document.get("about") or {}, measured)
    except (UnicodeDecodeError, json.JSONDecodeError, TypeError, AttributeError):
        raise InvalidInput(f"{path}: this format cannot hold measurements", hint="use a .json or .npz model") from None
    with atomic_write(path) as file:
        file.write(json.dumps(document, ensure_ascii=False).encode() + b"\n")


def measured_of(model: Model | Path) -> dict[str, Any] | None:
    """What was measured with a model, or with that of a file; None where nothing was."""
    about = about_of(model) if isinstance(model, Path) else getattr(model, "about", None)
    measured = (about or {}).get("measured")
    return dict(measured) if isinstance(measured, Mapping) else None


def zero_in_words(measured: Mapping[str, Any] | None) -> str:
    """The sentence that accompanies every statement of zero bits.

    >>> zero_in_words(None)
    'Not measured on real readers (`onoff audit traces`).'
    """
    if measured is None:
        return "Not measured on real readers (`onoff audit traces`)."
    return (
        f"{IF_YOU_ARE_LIKE_THE_MODEL}; measured on {measured['users']} real readers: {measured['bits']:.3f} ± "
        f"{measured['stderr']:.3f} bits after {measured['after']} OFF requests "
        f"(naive switching: {measured['naive_bits']:.2f})."
    )
