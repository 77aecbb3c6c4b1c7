"""`onoff simulate`: what many users would download, beside the bounds and the alternatives."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from onoff.cli.output import Json, emit, progress, table
from onoff.errors import InvalidPattern
from onoff.experiments.comparison import compare
from onoff.experiments.switching import Pattern, RandomSwitching, Switching
from onoff.model.contexts import load_model
from onoff.session.memory import default_memory


def simulate_command(
    chain: Path,
    /,
    *,
    scheme: str = "auto",
    pattern: Annotated[str | None, Parameter(help="Privacy over time, such as 'ON OFF*10' (the default).")] = None,
    users: int = 10_000,
    seed: int = 0,
    memory: Annotated[str | None, Parameter(help="last-query, the default for a chain, or bayes-filter.")] = None,
    hide: Annotated[int, Parameter(help="With a model: how many of the last private requests stay hidden.")] = 1,
    everything: Annotated[bool, Parameter(help="Ask for all sources while ON, even impossible ones.")] = False,
    steps: Annotated[int | None, Parameter(help="With --turn-off and --turn-on: how many requests.")] = None,
    turn_off: Annotated[float | None, Parameter(help="Switch at random: the chance to go from ON to OFF.")] = None,
    turn_on: Annotated[float | None, Parameter(help="Switch at random: the chance to go from OFF to ON.")] = None,
    paper: Annotated[bool, Parameter(help="Run the paper's scheme as a baseline too.")] = True,
    json: Json = False,
) -> None:
    """Simulate many users of a chain or model who switch privacy ON and OFF, with baselines in the same run.

    ```console
    onoff simulate chain.json --pattern 'ON OFF*10' --users 100000 --seed 1
    onoff simulate chain.json --steps 50 --turn-off 0.2 --turn-on 0.1 --json
    ```

    The numbers depend on the seed only. Seeds are for experiments: real queries draw from the operating system.
    """
    switching = _switching(pattern, steps, turn_off, turn_on)
    with progress(f"reading {chain.name}") as work:
        loaded = load_model(chain)
        memory = default_memory(loaded) if memory is None else memory
        work.now("users", users)
        found = compare(
            loaded,
            scheme,
            switching,
            users,
            seed,
            memory=memory,
            hide=hide,
            everything=everything,
            paper=paper,
            progress=work,
            phase=work.now,
        )
    data = {"scheme": scheme, "memory": memory, "switching": str(switching), "seed": seed, **found.as_dict()}
    emit(data, json, lambda console: _show(console, data))


def _switching(pattern: str | None, steps: int | None, turn_off: float | None, turn_on: float | None) -> Switching:
    if steps is None and turn_off is None and turn_on is None:
        return Pattern.parse("ON OFF*10" if pattern is None else pattern)
    if pattern is not None or steps is None or turn_off is None or turn_on is None:
        raise InvalidPattern(
            "switching is either fixed or random", hint="give --pattern, or --steps with --turn-off and --turn-on"
        )
    return RandomSwitching(steps, turn_off, turn_on)


def _show(console: Console, data: dict[str, Any]) -> None:
    base = data["baselines"]
    lines = []
    for step in data["steps"]:
        t = step["t"]
        status = {True: "ON", False: "OFF"}.get(step["private"]) or f"{step['private']:.0%} ON"
        paper = "-" if base["paper"] is None else f"{base['paper']['cost'][t]:.4f}"
        bits = "-" if base["naive"]["bits"] is None else f"{base['naive']['bits'][t]:.4f}"
        spread = "" if step["stderr"] is None else f" ± {step['stderr']:.4f}"
        cost = f"{step['cost']:.4f}{spread}"
        expected = "-" if step["expected"] is None else f"{step['expected']:.4f}"
        lower = "-" if step["lower"] is None else f"{step['lower']:.4f}"
        lines.append((t, status, cost, expected, lower, paper, bits))
    columns = ("t", "privacy", "messages", "expected", "at least", "paper", "naive bits")
    shared = f" in {data['batches']} batches that share their queries" if data["batches"] else ""
    users = f"{data['users']} users{shared}"
    title = f"{data['scheme']}, {data['memory']}, {users}, {data['n']} sources, seed {data['seed']}"
    console.print(table(columns, lines, title=title))
    spread = "" if data["total_stderr"] is None else f" ± {data['total_stderr']:.4f}"
    console.print(
        f"In all {data['total']:.4f}{spread} messages per user; everything always {base['everything']['total']:g}, "
        f"naive switching {base['naive']['total']:.4f}"
        + ("" if base["naive"]["leak"] is None else f" and a leak of {base['naive']['leak']:.4f} bits")
        + ("." if base["paper"] is None else f", the paper's scheme {base['paper']['total']:.4f}.")
    )
    if data["impossible"]:
        console.print(f"{data['impossible']} requests were impossible under the chain and sent as everything.")
