"""The results page: every table and figure of docs/results.md, made again by `make results`.

    python -m onoff.lab.results.build [--only NAME ...] [--quick]

Each section is a function from settings to text and figures; the page is their texts in order, between marks that let
one section be made again without the others. All randomness comes from SEED. Where the MSNBC data set is absent its
sections are left as they are on the page (or say that they are missing), and a line on stderr says so.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onoff import figures
from onoff.lab.families import dirichlet, grid
from onoff.lab.results import day as one_day
from onoff.lab.results import msnbc as news_site
from onoff.lab.results import plots
from onoff.lab.results import readers as real_readers
from onoff.lab.results import worlds as real_worlds
from onoff.lab.results.msnbc import servers_section
from onoff.lab.results.page import SEED, Section, markdown_table, shown
from onoff.lab.sweep import read_rows, read_spec, sweep
from onoff.lab.walk import Pattern, States, lower_bounds, sampled_runs, standard_error
from onoff.model.chain import MarkovChain
from onoff.schemes import design

DATA_FILE = "msnbc990928.zip"
HEAD = f"""# Results

`make results` makes all of it with seed {SEED}, and `python -m onoff.lab.results.build --only NAME` one section
again. What was made at another time or by another command says so where it stands. A cost is the expected number of
messages downloaded for one request; *lower bound* is the best proven one, below which no scheme can go. Where a
figure was estimated, ± is its standard error. Times depend on the machine.
"""


@dataclass(frozen=True)
class PageSettings:
    """How much work to do, and where."""

    docs: Path
    work: Path
    data: Path
    spec: Path
    descents: int = 2000
    paper_descents: int = 300
    hours: int = 5
    users: int = 2000
    readers: int = 2000
    judged: int = 240
    side: int = 5
    days: int = 5

    @property
    def has_data(self) -> bool:
        return self.data.is_file()


# -- sections ----------------------------------------------------------------------------------------------


def paper(settings: PageSettings) -> Section:
    """The paper's two figures."""
    from onoff.lab.paper.theorems import rate_figure, symmetric_figure

    text = "## The paper's figures\n\n" + shown(
        "paper-symmetric",
        "Rates of the symmetric chain of three sources against alpha: the paper's bounds and the optimum.",
        "onoff reproduce --out DIR",
        random=False,
    )
    text += "\n" + shown(
        "paper-rate",
        "The best rate for two sources against the time since the last private request.",
        "onoff reproduce --out DIR",
        random=False,
    )
    text += "\n`onoff reproduce` checks every numbered item of the paper, and lists what it prints wrong.\n"
    return Section(text, {"paper-symmetric": symmetric_figure(), "paper-rate": rate_figure()})


def families(settings: PageSettings) -> Section:
    """Cost of the schemes against the bounds over N, and build times, from one sweep."""
    for n in (4, 48):  # loads what is compiled, so that the first row does not pay for it
        for scheme in ("greedy", "race", "optimal"):
            design(
                dirichlet(n, 1.0, np.random.default_rng(SEED)), scheme, **({} if scheme != "optimal" else {"budget": 1})
            )
    settings.work.mkdir(parents=True, exist_ok=True)
    out = settings.work / f"{settings.spec.stem}.parquet"
    rows = read_rows(sweep(read_spec(settings.spec), out, progress=_counted("families")).path)
    good = [row for row in rows if row["error"] is None]
    largest = {family: max(row["n"] for row in good if row["family"] == family) for family in _order(good)}
    lines = []
    for family, n in largest.items():
        mine = {row["scheme"]: row for row in good if row["family"] == family and row["n"] == n}
        first = next(iter(mine.values()))
        costs = [_with_error(mine.get(scheme)) for scheme in ("greedy", "race", "optimal")]
        lines.append((family, n, first["inner"], *costs, first["first_lower"]))
    command = f"onoff sweep docs/sweeps/{settings.spec.name} -o sweep.parquet && onoff plot sweep.parquet"
    text = "## The first request after a private one, by family of chains\n\n"
    text += markdown_table(("family", "N", "inner bound", "Algorithm 1", "race", "optimal", "lower bound"), lines)
    text += "\n" + shown("families", "Cost of the first OFF request over the number of sources N.", command)
    text += "\n## Build times\n\n" + shown(
        "build-times", "CPU seconds to build the first table over N; the race needs no table.", command
    )
    return Section(text, {"families": plots.families_figure(good), "build-times": plots.build_figure(good)})


def location(settings: PageSettings) -> Section:
    """A walker on a street grid: which corner's messages are fetched says where the walker is."""
    side, steps = settings.side, 12
    chain = MarkovChain(grid(side, side))
    pattern = Pattern((True, *[False] * steps))
    curves: dict[str, Any] = {"everything": [float(chain.n)] * (steps + 1)}
    errors = {}
    for name in ("greedy", "race", "auto"):
        states = States(chain, name, look_ahead=name == "auto")
        runs = sampled_runs(
            states,
            pattern,
            settings.descents // 4,
            np.random.default_rng(SEED),
            lambda line, name=name: _say(f"location, {name}: {line}"),  # type: ignore[misc]
        )
        curves[name] = runs.mean(axis=0).tolist()
        errors[name] = float(standard_error(runs[:, 1:].sum(axis=1)))
    curves["lower"] = lower_bounds(chain, pattern)
    figure, (axes,) = figures.new_figure()
    figures.draw_costs(axes, range(steps + 1), curves)
    figures.shade_private(axes, pattern.statuses)
    axes.set(xlabel="requests since the private one", ylabel="messages per request", ylim=(0, None))
    axes.set_title(f"A walker on a grid of {side} x {side} corners, 20 % chance to stay", fontsize=10)
    figures.add_legend(axes, fontsize=9)
    totals = [
        (figures.label(name), sum(curve[1:]), f"± {errors[name]:.3f}" if name in errors else "")
        for name, curve in curves.items()
    ]
    text = "## Location on a street grid\n\n" + shown(
        "grid",
        f"Messages per request for a walker on {side} x {side} corners who made one private request and then walks on. "
        "The walk has many zeros, so even the private request asks for what is possible only. `auto` looks ahead, as "
        "sessions do.",
        "python -m onoff.lab.results.build --only location",
    )
    text += "\n" + markdown_table((f"{steps} OFF requests", "messages", "error"), totals)
    return Section(text, {"grid": figure})


def msnbc(settings: PageSettings) -> Section | None:
    """The MSNBC readers, in a module of their own."""
    if settings.has_data:
        return news_site.section(
            settings.data, settings.descents, settings.paper_descents, settings.hours, settings.users, _say
        )
    _say(f"no data set at {settings.data}: the MSNBC section is left as it is (set ONOFF_DATA)")
    return None


def readers(settings: PageSettings) -> Section | None:
    """What the MSNBC readers give away, in a module of its own."""
    if settings.has_data:
        return real_readers.readers_section(settings.data, settings.readers, _say)
    _say(f"no data set at {settings.data}: the readers' section is left as it is (set ONOFF_DATA)")
    return None


def world(name: str) -> Callable[[PageSettings], Section | None]:
    """What OFF costs and leaves to people of one kind, in a module of its own."""

    def made(settings: PageSettings) -> Section | None:
        section = real_worlds.world_section(name, settings.data.parent, settings.judged, _say)
        if section is None:
            _say(f"no data set in {settings.data.parent}: {name} is left as it is (set ONOFF_DATA)")
        return section

    return made


def servers(settings: PageSettings) -> Section | None:
    """What several servers would have cost the MSNBC readers."""
    if settings.has_data:
        return servers_section(settings.data, settings.users)
    _say(f"no data set at {settings.data}: the section on several servers is left as it is (set ONOFF_DATA)")
    return None


def day(settings: PageSettings) -> Section:
    """A day of a reader in bytes, in a module of its own."""
    return one_day.day_section(settings.days)


SECTIONS: dict[str, Callable[[PageSettings], Section | None]] = {
    "paper": paper,
    "msnbc": msnbc,
    "readers": readers,
    **{name: world(name) for name in real_worlds.REAL_WORLDS},
    "servers": servers,
    "day": day,
    "families": families,
    "location": location,
}


# -- the page ----------------------------------------------------------------------------------------------


def make(settings: PageSettings, names: Sequence[str]) -> Path:
    """Make the named sections and the page."""
    page = settings.docs / "results.md"
    texts = _texts(page.read_text(encoding="utf-8")) if page.exists() else {}
    for name in names:
        begun = time.monotonic()
        section = SECTIONS[name](settings)
        if section is not None:
            figures.save_all(section.figures, settings.docs / "figures")
            texts[name] = section.text
        _say(f"{name}: {time.monotonic() - begun:.0f} s")
    parts = [HEAD]
    for name in SECTIONS:
        text = texts.get(name, f"## {name}\n\nNot made yet: what it needs was not there.\n")
        parts.append(f"<!-- section {name} -->\n\n{text.strip()}\n")
    settings.docs.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


def _texts(page: str) -> dict[str, str]:
    """The sections that a page has, by name."""
    pieces = re.split(r"^<!-- section (\w+) -->$", page, flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def _order(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["family"] for row in rows))


def _with_error(row: Mapping[str, Any] | None) -> Any:
    """The cost of a row; the race has no table, so its cost is an estimate."""
    if row is None or not row["stderr"]:
        return "-" if row is None else row["first_cost"]
    return f"{row['first_cost']:.2f} ± {row['stderr']:.2f}"


def _counted(what: str) -> Callable[[int], None]:
    return lambda done: _say(f"{what}: {done} rows") if done % 20 == 0 else None


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def data_file(root: Path) -> Path:
    """Where the MSNBC data set would be: in ONOFF_DATA, or in ../shared/data beside the project."""
    return Path(os.environ.get("ONOFF_DATA", root.parent / "shared" / "data")) / DATA_FILE


def write_results(arguments: Sequence[str] | None = None) -> None:
    """Make the page, or some sections of it."""
    parser = argparse.ArgumentParser(prog="python -m onoff.lab.results.build", description="Make docs/results.md.")
    parser.add_argument("--only", nargs="+", choices=[*SECTIONS, "worlds"], default=list(SECTIONS), metavar="NAME")
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    parser.add_argument("--work", type=Path, default=Path("results"), help="where sweeps are kept and go on from")
    parser.add_argument("--spec", type=Path, default=Path("docs/sweeps/families.toml"))
    parser.add_argument("--quick", action="store_true", help="few samples, to see that it runs")
    given = parser.parse_args(arguments)
    few = (
        {
            "descents": 40,
            "paper_descents": 10,
            "hours": 2,
            "users": 50,
            "readers": 200,
            "judged": 200,
            "side": 3,
            "days": 1,
        }
        if given.quick
        else {}
    )
    settings = PageSettings(given.docs, given.work, data_file(Path.cwd()), given.spec, **(few if given.quick else {}))
    names = [each for name in given.only for each in (real_worlds.REAL_WORLDS if name == "worlds" else (name,))]
    _say(str(make(settings, names)))


if __name__ == "__main__":
    write_results()
