"""The readers of msnbc.com: what privacy that can be switched would have cost them, and what naive switching tells.

The set (UCI, msnbc990928) has 989,818 users of 17 page categories on one day, in order but without times; an "hour"
here is six requests. Costs are those of the chain learnt from all users, started from its stationary law, except for
the last paragraph, where the requests are the real ones of users with enough of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from onoff import figures
from onoff.information import entropy_bits
from onoff.lab.results import plots
from onoff.lab.results.page import SEED, Section, markdown_table, shown
from onoff.lab.simulate import simulate
from onoff.lab.walk import Pattern, States, lower_bounds, naive_leaks, sampled_runs, standard_error
from onoff.model.bounds import step_bounds
from onoff.model.chain import MarkovChain
from onoff.model.learn import Learnt, learn
from onoff.model.rows import Floats, Integers
from onoff.model.traces import Trace
from onoff.schemes import design
from onoff.wire.sums import expected_cost

OFF_STEPS = 10
AN_HOUR = 6
"""Requests."""
COMMAND = "python -m onoff.lab.results.build --only msnbc"
COMPARED_SCHEMES = {
    "paper": ("greedy", "bayes-filter"),
    "greedy": ("greedy", "last-query"),
    "auto": ("auto", "last-query"),
}
"""The paper's scheme with its filter, its tables with our memory, and ours."""


def section(
    data: Path,
    descents: int,
    paper_descents: int,
    hours: int,
    users: int,
    progress: Callable[[str], None] | None = None,
) -> Section:
    """Everything the page says about MSNBC."""
    learnt = learn(Trace(data))
    chain = MarkovChain(learnt.chain.transition, learnt.chain.names, learnt.chain.stationary())
    parts = ["## MSNBC: readers of a news site\n", _learnt(learnt), _first(chain)]
    ten, ten_figure = _ten_steps(chain, descents, paper_descents, progress)
    day, day_figure = _by_hour(chain, descents, paper_descents, hours)
    parts += [ten, day, _real(chain, data, users)]
    fit = plots.chain_figures(learnt.as_dict())
    drawn = {"msnbc-chain": fit["transition"], "msnbc-ten-steps": ten_figure, "msnbc-by-hour": day_figure}
    return Section("\n".join(parts), drawn)


def _learnt(learnt: Learnt) -> str:
    seen, fit = learnt.report["trace"], learnt.report["fit"]
    orders = [(f"order {k}", fit[f"order_{k}"]["bits_fitted"], fit[f"order_{k}"]["bits_held_out"]) for k in range(3)]
    return (
        f"{seen['users']:,} users, {seen['requests']:,} requests, {learnt.chain.n} categories, learnt in one pass by "
        f"`onoff learn msnbc990928.zip --order 1 --types 1 -o msnbc.json`. Bits per request, order by order:\n\n"
        + markdown_table(("model", "bits per request, fitted", "held-out users"), orders)
        + "\n"
        + shown("msnbc-chain", "The learnt chain.", "onoff plot msnbc.json", random=False)
    )


def _first(chain: MarkovChain) -> str:
    bound = step_bounds(chain, 1)[0]
    race = design(chain, "race")
    lines = [
        ("everything", float(chain.n)),
        ("paper's inner bound", bound.inner),
        ("Algorithm 1 (`greedy`)", design(chain, "greedy").cost),
        ("race", f"{race.cost:.2f} ± {getattr(race, 'stderr', 0):.2f}"),
        ("`optimal`", design(chain, "optimal").cost),
        ("lower bound", bound.lower),
    ]
    return "### The first request after a private one\n\n" + markdown_table(("", "messages"), lines)


def _ten_steps(
    chain: MarkovChain, descents: int, paper_descents: int, progress: Callable[[str], None] | None
) -> tuple[str, Any]:
    """Ten OFF requests after a private one: costs, their ratio to outer bound 2, and the naive leak."""
    pattern = Pattern((True, *[False] * OFF_STEPS))
    later = step_bounds(chain, OFF_STEPS)
    outer, inner = [step.outer for step in later], [step.inner for step in later]
    runs = _runs(chain, pattern, descents, paper_descents)
    bits, hidden = naive_leaks(chain, pattern), entropy_bits([chain.initial])[0]
    assert bits is not None  # 17 sources are few
    lines: list[tuple[Any, ...]] = [
        ("everything, always", *[float(chain.n)] * 3, OFF_STEPS * chain.n / sum(outer), "0")
    ]
    guarantee = ("paper: its inner bound for each request", inner[0], inner[4], inner[9])
    lines.append((*guarantee, sum(inner) / sum(outer), "0"))
    looking_ahead = States(chain, "auto", look_ahead=True)
    say = None if progress is None else lambda line: progress(f"msnbc, looking ahead: {line}")
    ahead = sampled_runs(looking_ahead, pattern, descents // 5, np.random.default_rng(SEED), say)
    for name, costs in {**runs, "ahead": ahead}.items():
        mean = costs.mean(axis=0)
        ratio = _with_error(costs[:, 1:].sum(axis=1) / sum(outer))
        lines.append((NAMES[name], float(mean[1]), float(mean[5]), float(mean[10]), ratio, "0"))
    lines.append(("outer bound 2", outer[0], outer[4], outer[9], 1.0, ""))
    told = f"{sum(bits):.2f} of {hidden:.2f}"
    lines.append(("naive switching", 1.0, 1.0, 1.0, OFF_STEPS / sum(outer), told))
    leaked = "bits leaked, if readers follow the chain"
    columns = ("", "request 1", "request 5", "request 10", "total / sum of outer bound 2", leaked)
    curves = {name: costs.mean(axis=0).tolist() for name, costs in runs.items()}
    figure = _figure(curves, chain, pattern, f"ON once, then OFF; naive switching tells {told} bits")
    text = "### Ten OFF requests after a private one\n\n" + markdown_table(columns, lines)
    text += (
        f"\n`{COMMAND}`, seed {SEED}; the states are sampled by {descents} descents ({paper_descents} for the paper's "
        f"filter, whose states hardly ever recur, {descents // 5} looking ahead, whose tables take longer). Algorithm "
        "1 puts equal sources of a multiset together, so it costs less than its inner bound says. Looking ahead, as "
        "sessions do, is to prefer queries with cheap successors among equally good ones; on this page it is left out "
        "but for this line and the street grid.\n\n"
    )
    caption = "Messages per request after one private request."
    return text + shown("msnbc-ten-steps", caption, COMMAND), figure


NAMES = {
    "paper": "paper: Algorithm 1 with its filter",
    "greedy": "Algorithm 1, last query remembered",
    "auto": "ours: `auto`, last query remembered",
    "ahead": "ours, looking ahead",
}


def _by_hour(chain: MarkovChain, descents: int, paper_descents: int, hours: int) -> tuple[str, Any]:
    """ON for the first hour, then OFF: messages per request, hour by hour."""
    pattern = Pattern((*[True] * AN_HOUR, *[False] * AN_HOUR * (hours - 1)))
    runs = _runs(chain, pattern, descents // 2, paper_descents // 2, skip=("greedy",))
    bits = naive_leaks(chain, pattern) or []
    lower = lower_bounds(chain, pattern)
    lines = []
    for hour in range(hours):
        mine = slice(hour * AN_HOUR, (hour + 1) * AN_HOUR)
        means = [_with_error(runs[name][:, mine].mean(axis=1)) for name in ("paper", "auto")]
        least = float(np.mean([bound or 1.0 for bound in lower[mine]]))
        status = "ON" if pattern.statuses[mine.start] else "OFF"
        naive = float(chain.n if pattern.statuses[mine.start] else 1)
        lines.append((f"hour {hour + 1}, {status}", float(chain.n), *means, least, naive, sum(bits[mine])))
    columns = ("", "everything", "paper", "ours (`auto`)", "lower bound", "naive", "naive leaks (bits)")
    curves = {name: costs.mean(axis=0).tolist() for name, costs in runs.items()}
    title = f"ON for an hour ({AN_HOUR} requests), then OFF"
    figure = _figure(curves, chain, pattern, title)
    text = "### A reader, hour by hour\n\nMessages per request; an hour is six requests.\n\n"
    text += markdown_table(columns, lines) + "\n"
    return text + shown("msnbc-by-hour", f"{title}.", COMMAND), figure


def _real(chain: MarkovChain, data: Path, users: int) -> str:
    """The same with the requests that users really made."""
    requests = _requests(data, users, OFF_STEPS + 1)
    pattern = Pattern((True, *[False] * OFF_STEPS))
    run = simulate(chain, "auto", pattern, len(requests), SEED, requests=requests)
    return (
        "### Real requests\n\n"
        f"The first {len(requests):,} users with {OFF_STEPS + 1} requests or more, their real requests through `auto`: "
        f"{run.total:.2f} ± {run.total_stderr:.2f} messages each over {OFF_STEPS + 1} requests "
        f"(everything: {chain.n * (OFF_STEPS + 1)}); {run.impossible} requests were impossible under the chain. "
        "Real readers do not follow the chain (see the fit of order 2); what that gives away is measured in the next "
        "section.\n"
    )


def _with_error(values: Floats) -> str:
    """The mean of independent estimates and its standard error."""
    return f"{values.mean():.3f} ± {standard_error(values):.3f}"


def _requests(data: Path, users: int, steps: int) -> Integers:
    long_enough = (run.sources[:steps] for run in Trace(data).runs() if len(run.sources) >= steps)
    return np.array(list(islice(long_enough, users)), dtype=np.int64).reshape(-1, steps)


def _runs(
    chain: MarkovChain, pattern: Pattern, descents: int, paper_descents: int, skip: tuple[str, ...] = ()
) -> dict[str, Floats]:
    found = {}
    for name, (scheme, memory) in COMPARED_SCHEMES.items():
        if name not in skip:
            count = paper_descents if name == "paper" else descents
            states = States(chain, scheme, memory)
            found[name] = sampled_runs(states, pattern, count, np.random.default_rng(SEED))
    return found


def _figure(curves: Mapping[str, Any], chain: MarkovChain, pattern: Pattern, title: str) -> Any:
    figure, (axes,) = figures.new_figure()
    times = range(pattern.steps)
    naive = [float(chain.n if on else 1) for on in pattern.statuses]
    base = {"everything": [float(chain.n)] * pattern.steps, **curves, "lower": lower_bounds(chain, pattern)}
    figures.draw_costs(axes, times, {**base, "naive": naive})
    figures.shade_private(axes, pattern.statuses)
    axes.set(xlabel="request", ylabel="messages per request", ylim=(0, None))
    axes.set_title(f"MSNBC, {chain.n} categories: {title}", fontsize=10)
    figures.add_legend(axes, fontsize=8)
    return figure


# With K servers that do not tell each other, one message of a set of k sources is fetched privately for 1 + 1/K + ...
# + 1/K**(k - 1) messages (`wire.sums`); the set is drawn as with one server.

OPEN_STEPS = 10
SERVERS = (1, 2, 3)
SERVERS_COMMAND = "python -m onoff.lab.results.build --only servers"


def servers_section(data: Path, users: int) -> Section:
    """Messages with one, two and three servers: a private request, and ten OFF requests after it."""
    learnt = learn(Trace(data)).chain
    chain = MarkovChain(learnt.transition, learnt.names, learnt.stationary())
    run = simulate(chain, "greedy", Pattern((True, *[False] * OPEN_STEPS)), users, SEED)
    lines: list[tuple[Any, ...]] = []
    for servers in SERVERS:
        price = [0.0] + [_price(size, servers) for size in range(1, chain.n + 1)]
        costs = run.sizes @ np.array(price) / run.users
        lines.append((servers, float(costs[0]), float(costs[1:].sum()), (OPEN_STEPS + 1) * price[-1]))
    columns = (
        "servers",
        "a private request",
        f"{OPEN_STEPS} OFF requests after it",
        f"always ON, {OPEN_STEPS + 1} requests",
    )
    text = (
        "## Several servers\n\n"
        "Servers of different operators that hold the same edition and do not tell each other what they are asked. "
        "Messages per request for readers who follow the chain of MSNBC, sets drawn by `greedy`:\n\n"
        + markdown_table(columns, lines)
        + f"\n`{SERVERS_COMMAND}`, seed {SEED}, {users:,} simulated readers. Always ON needs no model of the reader.\n"
    )
    return Section(text)


def _price(size: int, servers: int) -> float:
    return float(size) if servers == 1 else float(expected_cost(size, servers))
