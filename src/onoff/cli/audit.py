"""`onoff audit`: does it leak?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console

from onoff.audit.exact import ExactAudit, audit_exact
from onoff.chain import MarkovChain
from onoff.cli.output import Json, emit, table
from onoff.errors import PrivacyBreach
from onoff.pattern import parse

app = App(name="audit", help="Check that what the server sees tells nothing about private requests.")


@app.command
def exact(
    chain: Path,
    /,
    *,
    scheme: str = "auto",
    pattern: Annotated[str, Parameter(help="Privacy over time, such as 'ON OFF*3 ON'.")] = "ON OFF OFF ON OFF",
    memory: str = "last-query",
    everything: Annotated[bool, Parameter(help="Ask for all sources while ON, even impossible ones.")] = False,
    json: Json = False,
) -> int:
    """Enumerate every request path and every random branch, and decide by equality.

    Examples
    --------
    onoff audit exact chain.json --scheme greedy --pattern 'ON OFF OFF OFF'

    onoff audit exact chain.json --scheme naive --json
    """
    audit = audit_exact(MarkovChain.load(chain), scheme, parse(pattern), memory, everything=everything)
    emit(audit.as_dict(), json, lambda console: _show_exact(console, audit))
    return 0 if audit.private else PrivacyBreach.exit_code


def _show_exact(console: Console, audit: ExactAudit) -> None:
    lines = [
        (step["t"], "ON" if step["private"] else "OFF", step["cost"], step["bits"], step["joint"], naive)
        for step, naive in zip(audit.as_dict()["steps"], audit.naive, strict=True)
    ]
    columns = ("t", "privacy", "messages", "bits leaked", "known in all", "naive switching leaks")
    console.print(table(columns, lines))
    if audit.private:
        note = f" (rounding {audit.rounding:.2g})" if audit.rounding else ""
        console.print(f"No step tells anything about private requests: exactly 0 bits{note}.")
    else:
        console.print(f"LEAK of {audit.leak:.6g} bits. {audit.breach}")
