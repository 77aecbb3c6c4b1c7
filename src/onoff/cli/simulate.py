"""`onoff simulate`, `onoff sweep` and `onoff reproduce`: what many users download, many chains, and the paper."""

from __future__ import annotations

import json as encoding
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from onoff.cli.options import EverythingOption, HideOption, LeakOption, MemoryOption, TopicsFile, hide_of, read_topics
from onoff.cli.output import Json, check_writable, emit, progress, table
from onoff.errors import InvalidInput, InvalidPattern
from onoff.lab.paper import claims_about, reproduce
from onoff.lab.paper.claim import Item
from onoff.lab.paper.theorems import save_figures
from onoff.lab.simulate import compare
from onoff.lab.sweep import read_spec, sweep
from onoff.lab.walk import Pattern, RandomSwitching, Switching
from onoff.model.contexts import load_model
from onoff.session.session import default_memory


def simulate_command(
    chain: Path,
    /,
    *,
    scheme: str = "auto",
    pattern: Annotated[str | None, Parameter(help="Privacy over time, such as 'ON OFF*10' (the default).")] = None,
    users: int = 10_000,
    seed: int = 0,
    memory: MemoryOption = None,
    hide: HideOption = "1",
    topics: TopicsFile = None,
    leak: LeakOption = 0.0,
    everything: EverythingOption = False,
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

    With --topics or --leak every user goes through a session of its own, which takes longer: use fewer.

    The numbers depend on the seed only. Seeds are for experiments: real queries draw from the operating system.
    """
    switching = _switching(pattern, steps, turn_off, turn_on)
    with progress(f"reading {chain.name}") as work:
        loaded = load_model(chain)
        if memory is None:
            memory = {"person": "last-query", "type": "bayes-filter"}.get(hide, default_memory(loaded))
        work.now("users", users)
        found = compare(
            loaded,
            scheme,
            switching,
            users,
            seed,
            memory=memory,
            hide=hide_of(hide),
            **({"topics": read_topics(topics)} if topics is not None else {}),
            **({"leak": leak} if leak else {}),
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


def sweep_command(
    spec: Path,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], help="By default SPEC.parquet.")] = None,
    cluster: Annotated[str | None, Parameter(help="Run on the Dask scheduler at this address.")] = None,
    json: Json = False,
) -> int:
    """Sweep over everything that SPEC lists, one row each, into a Parquet file.

    ```console
    onoff sweep spec.toml -o result.parquet
    onoff sweep spec.toml --cluster tcp://127.0.0.1:8786
    ```

    A sweep that was stopped goes on where it was when it is run again.
    """
    out = spec.with_suffix(".parquet") if output is None else output
    check_writable(out, inputs=[spec])
    with progress(f"reading {spec.name}") as done:
        tasks = read_spec(spec)
        done.now("rows", len(tasks))
        found = sweep(tasks, out, cluster=cluster, progress=done)
    data = {"file": str(found.path), "rows": found.rows, "computed": found.computed, "failed": found.failed}
    text = f"{found.rows} rows in {found.path}; {found.computed} computed now, {found.failed} with an error"
    emit(data, json, lambda console: console.print(text, markup=False))
    return 1 if found.failed else 0


LONGEST_CELL = 100


def reproduce_command(
    *,
    only: Annotated[str, Parameter(help="Only the items whose names contain this, such as 'table 3'; in full.")] = "",
    out: Annotated[Path | None, Parameter(help="Save the two figures (SVG, PNG) and the items (JSON) here.")] = None,
    json: Json = False,
) -> int:
    """Recompute every table, figure, example and theorem of the paper, and what it prints wrong.

    ```console
    onoff reproduce
    onoff reproduce --only "table 3"
    onoff reproduce --out figures --json
    ```

    Exit code 0 where every item is as expected, 1 otherwise.
    """
    claims = claims_about(only)
    if not claims:
        raise InvalidInput(
            f"no item is called anything like {only!r}", hint="try 'table 3', 'theorem 2', 'figure 4', 'E5'"
        )
    items: list[Item] = []
    with progress("drawing the paper's figures") as done:
        written = [] if out is None else _figures(out)  # before the work: what cannot be written is known at once
        done.now("the paper's items", total=len(claims))
        for item in reproduce(claims):
            items.append(item)
            done(len(items))
    listed = [item.as_dict() for item in items]
    if out is not None:
        items_file = out / "items.json"
        items_file.write_text(encoding.dumps(listed, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        written.append(items_file)
    emit(listed, json, lambda console: _reproduce_show(console, items, written, in_full=bool(only)))
    return 0 if all(item.ok for item in items) else 1


def _figures(out: Path) -> list[Path]:
    try:
        return save_figures(out)
    except OSError as error:
        raise InvalidInput(f"cannot write to {out}: {error.strerror}", hint="name a directory") from None


def _reproduce_show(console: Console, items: list[Item], written: list[Path], *, in_full: bool) -> None:
    for item in items:
        console.print(f"{'ok' if item.ok else 'FAILED':<7} {item.item}", markup=False)
        if in_full and isinstance(item.expected, dict) and isinstance(item.got, dict):
            lines = [(key, _text(value), _text(item.got.get(key))) for key, value in item.expected.items()]
            console.print(table(("", "expected", "got"), lines))
        else:
            longest = None if in_full else LONGEST_CELL
            console.print(f"          expected {_text(item.expected, longest)}", markup=False)
            console.print(f"          got      {_text(item.got, longest)}", markup=False)
    right = sum(item.ok for item in items)
    console.print(f"{right} of {len(items)} items as expected.")
    for path in written:
        console.print(f"wrote {path}", markup=False)


def _text(value: Any, longest: int | None = None) -> str:
    text = encoding.dumps(_rounded(value), ensure_ascii=False)
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6) + 0.0  # no -0.0
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value
