"""What the sections of the results page share: the seed, figures with their captions, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SEED = 1


@dataclass(frozen=True)
class Section:
    """A part of the page: text in Markdown, and figures by name, which the text shows as `![](figures/NAME.png)`."""

    text: str
    figures: Mapping[str, Figure] = field(default_factory=dict)


def shown(name: str, caption: str, command: str, random: bool = True) -> str:
    """A figure with what it shows and how it was made."""
    seed = f"seed {SEED}" if random else "nothing random in it"
    return f"![{caption}](figures/{name}.png)\n\n*{caption}* Made by `{command}`, {seed}.\n"


def markdown_table(columns: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """A table; floats with three decimals."""
    cells = [[f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in line] for line in lines]
    rule = ["---" if at == 0 else "---:" for at in range(len(columns))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [list(columns), rule, *cells]) + "\n"
