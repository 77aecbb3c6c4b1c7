"""The paper reproduced: every table, figure, example, theorem, proposition and observation, computed and compared.

    printed      what the paper states, as numbers
    tables       its tables and worked examples
    theorems     its bounds, theorems, propositions, figures' numbers and privacy
    errata       what it states wrong, shown wrong and shown right
    figures      its two plots, drawn from computed numbers

Table 2 (notation) and Figures 1, 2, 3(a) and 5 (drawings) state no number to reproduce.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onoff.lab.paper import errata, tables, theorems
from onoff.lab.paper.claim import Claim, Item

CLAIMS: tuple[Claim, ...] = (*tables.claims.listed, *theorems.claims.listed, *errata.claims.listed)


def claims_about(text: str) -> list[Claim]:
    """The claims whose names contain `text`, in any case; all of them for an empty one."""
    return [claim for claim in CLAIMS if text.casefold() in claim.item.casefold()]


def reproduce(claims: Sequence[Claim] = CLAIMS) -> Iterator[Item]:
    """Check one claim after the other."""
    for claim in claims:
        yield claim.run()
