"""A report as one HTML page that loads nothing from elsewhere: text, tables, and plots as inline SVG.

A page is a title, a verdict and parts. Everything that comes from outside (names, numbers, patterns) is escaped. Plots
need the extra `plot`; they are drawn without any state shared with other plots, and the same data gives the same page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onoff import figures
from onoff.errors import InvalidInput

if TYPE_CHECKING:
    from onoff.audit.exact import ExactAudit
    from onoff.audit.traces import TraceAudit
    from onoff.lab.explain import Explanation
    from onoff.lab.mismatch import ErrorCurve

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "body{color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:1rem 0}th,td{padding:.2rem .8rem;text-align:right}"
    "td{border-bottom:1px solid #ccc}.good{color:#00664a}.bad{color:#a33a00}svg{max-width:100%;height:auto}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}.good{color:#4fd1a5}.bad{color:#ff9a5c}"
    "svg{background:#fff;border-radius:6px}}"
)


@dataclass(frozen=True)
class Part:
    """A section of the report: a heading, paragraphs, a table, a plot (SVG), in this order."""

    heading: str
    paragraphs: Sequence[str] = ()
    columns: Sequence[str] = ()
    lines: Iterable[Sequence[Any]] = ()
    plot: str = ""


def page(title: str, verdict: str, good: bool, parts: Iterable[Part]) -> str:
    """The whole page."""
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="{"good" if good else "bad"}"><strong>{escape(verdict)}</strong></p>',
    ]
    for part in parts:
        body.append(f"<h2>{escape(part.heading)}</h2>")
        body += [f"<p>{escape(paragraph)}</p>" for paragraph in part.paragraphs]
        if part.columns:
            head = "".join(f"<th>{escape(column)}</th>" for column in part.columns)
            rows = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in line)}</tr>" for line in part.lines)
            body.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
        body.append(part.plot)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def write(path: Path, text: str) -> None:
    """Write a report, or a picture, to a file. Raises InvalidInput where that fails."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}", hint="give a path that can be written") from None


def _cell(cell: Any) -> str:
    return f"{cell:.6g}" if isinstance(cell, float) else escape(str(cell))


# -- plots ---------------------------------------------------------------------------------------------------


def _axes(xlabel: str, ylabel: str) -> tuple[Any, Any]:
    figure, (axes,) = figures.new_figure(inches=(7.0, 3.8))
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return figure, axes


def _svg(figure: Any, described: str) -> str:
    text = figures.as_svg(figure)
    return text[text.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{escape(described)}" ', 1)


def plot_exact(audit: ExactAudit) -> str:
    """What each step leaks, ours and naive, and what the server knows in all."""
    figure, axes = _axes("step", "bits about private requests")
    steps = [step.t for step in audit.steps]
    axes.bar(
        [t - 0.2 for t in steps], [s["bits"] for s in audit.as_dict()["steps"]], 0.4, color=figures.BLUE, label="leaked"
    )
    axes.bar([t + 0.2 for t in steps], audit.naive, 0.4, color=figures.ORANGE, label="leaked by naive switching")
    axes.plot(
        steps, [s.joint for s in audit.steps], "o--", color=figures.GREY, label="known in all, open requests included"
    )
    axes.set_xticks(steps, [f"{s.t}\n{'ON' if s.private else 'OFF'}" for s in audit.steps])
    figures.add_legend(axes)
    return _svg(figure, "bits leaked at each step")


def plot_error(curve: ErrorCurve) -> str:
    """The leak of the first open request over the error of the chain: found, and bounded."""
    figure, axes = _axes("error of the chain: largest total variation of a row", "bits, first open request")
    for found in curve.by_direction.values():
        axes.plot(curve.errors, [leak.bits for leak in found], color=figures.GREY, lw=0.8)
    axes.plot([], [], color=figures.GREY, lw=0.8, label="exact, in each direction tried")
    axes.plot(curve.errors, [leak.bits for leak in curve.worst], color=figures.BLUE, lw=2, label="the worst of them")
    axes.plot(curve.errors, [leak.bits for leak in curve.upper], "--", color=figures.ORANGE, lw=2, label="upper bound")
    axes.set_ylim(bottom=0)
    figures.add_legend(axes)
    return _svg(figure, "bits leaked over the error of the chain")


def plot_explanation(explanation: Explanation) -> str:
    """How often the server guesses each private request, as bars."""
    figure, axes = _axes("private request", "best guess is right")
    bars = (
        ("prior", "knowing the habits alone"),
        ("earlier", "and open requests before it"),
        ("ours", "and all queries of onoff"),
        ("naive", "naive switching instead"),
    )
    for at, (name, label) in enumerate(bars):
        places = [k + (at - 1.5) * 0.2 for k in range(len(explanation.guesses))]
        shown = axes.bar(
            places,
            [getattr(g, name) for g in explanation.guesses],
            0.2,
            label=label,
            color=(figures.GREY, figures.GREEN, figures.BLUE, figures.ORANGE)[at],
        )
        if len(explanation.guesses) <= 6:
            axes.bar_label(shown, fmt=lambda value: f"{value:.0%}", fontsize=8)
    axes.set_xticks(range(len(explanation.guesses)), [f"step {g.t}" for g in explanation.guesses])
    axes.set_ylim(0, 1.05)
    axes.legend(frameon=False, fontsize=9, ncols=2, loc="upper center", bbox_to_anchor=(0.5, 1.22))
    return _svg(figure, "how often the server guesses each private request")


def plot_traces(audit: TraceAudit) -> str:
    """Bits given away by real readers over the number of OFF requests, beside naive switching."""
    figure, axes = _axes("OFF requests after a private one", "bits about the private request")
    steps = [step.k for step in audit.steps]
    axes.plot(steps, [step.naive_bits for step in audit.steps], "P:", color=figures.ORANGE, label="naive switching")
    error = [2 * step.stderr for step in audit.steps]
    ours = [step.bits for step in audit.steps]
    axes.errorbar(steps, ours, yerr=error, fmt="o-", color=figures.BLUE, label="this model (bars: 2 standard errors)")
    axes.set_ylim(bottom=min(0.0, *ours))
    figures.add_legend(axes)
    return _svg(figure, "bits given away over the number of OFF requests")
