"""`onoff learn`: a chain or a model from a trace of requests."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console

from onoff import figures
from onoff.audit.cases import USUAL_CONSTANTS
from onoff.audit.small import Small
from onoff.cli.options import JournalFile, ServerOption, UpstreamFile, journal_path, read_names
from onoff.cli.output import Json, check_writable, emit, progress, table
from onoff.client.consent import OpenRecord
from onoff.errors import InvalidInput
from onoff.lab.results.plots import family_name, leaks_figure
from onoff.model.bounds import bounds
from onoff.model.chain import DEFAULT_SMOOTHING, MarkovChain, from_template
from onoff.model.choosing import Auto
from onoff.model.contexts import RequestModel, load_model
from onoff.model.files import check_json_name
from onoff.model.learn import Learnt, learn
from onoff.model.origin import about_of, advice_of
from onoff.model.people import constants_of
from onoff.model.traces import Options, Trace, size_of
from onoff.tables.show import check_picture
from onoff.upstream.message_server import fetch_catalogue
from onoff.upstream.sources import SourceList

UNMARKED = (
    "this trace does not say which requests were private. The model is public: private requests must not be what it "
    "is learnt from. Mark them in a column `private`, or leave them out of the trace."
)
ALIKE = (
    "lines beside one another are more alike than others: they may be one person's. People are held out line by line, "
    "so that what was audited then holds for people who are known already. Give a CSV with a column `user` instead."
)
INCLUDED = "private requests were learnt from as asked. The model tells about them; keep it from the server."

ONLY_A_CHAIN = (
    "A chain hides private requests from a server that knows no more than the last one; people who remember more, or "
    "differ in type, show more. `onoff audit traces` measures it."
)


def learn_command(
    trace: Path | None = None,
    /,
    *,
    from_gateway: Annotated[
        bool, Parameter(negative="", help="Prepare a model of other people for what you openly ask; see --around.")
    ] = False,
    around: Annotated[
        Path | None, Parameter(help="With --from-gateway: a model of other people, which yours is made around.")
    ] = None,
    upstream: UpstreamFile = None,
    server: ServerOption = None,
    journal: JournalFile = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], help="Write it here: .json or .npz.")] = None,
    plot: Annotated[Path | None, Parameter(help="Draw leak against cost of what was tried here (.svg, .png).")] = None,
    order: Annotated[int | Auto, Parameter(help="How many of the last requests matter; 1 is a chain.")] = "auto",
    types: Annotated[int | Auto, Parameter(help="How many types of people there are.")] = "auto",
    seed: Annotated[int, Parameter(help="Of the first guess of the types.")] = 0,
    format: Annotated[str | None, Parameter(help="text, csv, jsonl or msnbc; by default from the name.")] = None,
    gap: Annotated[float | None, Parameter(help="Seconds without a request that end a session.")] = None,
    smoothing: Annotated[float, Parameter(help="Added to every count, so that nothing is impossible.")] = (
        DEFAULT_SMOOTHING
    ),
    structural_zeros: Annotated[bool, Parameter(help="Transitions never seen are impossible.")] = False,
    merge_rare: Annotated[int, Parameter(help="Put sources requested less often than this together.")] = 0,
    sources: Annotated[Path | None, Parameter(help="A file with the name of every source, one a line.")] = None,
    include_private: Annotated[bool, Parameter(negative="", help="Learn from private requests too.")] = False,
    user_column: str = "user",
    source_column: str = "source",
    time_column: str = "time",
    private_column: str = "private",
    json: Json = False,
) -> None:
    """Learn how requests follow one another from TRACE, and say how far the model can be trusted.

    ```console
    onoff learn clicks.csv --gap 1800 -o model.json
    onoff learn msnbc990928.zip -o msnbc.npz
    onoff learn msnbc990928.zip --order 1 --types 1 -o chain.json
    onoff learn clicks.csv --plot families.svg
    onoff learn --from-gateway --around others.npz -o model.npz --server http://127.0.0.1:8470
    onoff learn rides.csv --upstream city.toml -o model.json
    ```

    Families of models (chains, types of people, anchors: where somebody lives) are learnt from most people and audited
    on the others: the cheapest is taken whose leak is not above the least by more than its error. Requests marked as
    private are left out: the model is public.

    A chain of one person's own requests gives more away than naive switching, so --from-gateway makes none: it puts
    into a model of other people how sessions are to use what you openly asked. The gateway remembers that where its
    page, or `onoff gateway --remember`, was told to.

    With --upstream the model has the sources of that list, in its order, also those that the trace does not have.
    """
    if output is not None and output.suffix.lower() != ".npz":
        check_json_name(output)
    check_writable(output, plot, inputs=[trace, sources, upstream, around])
    if plot is not None:
        check_picture(plot)
    if sources is not None and upstream is not None:
        raise InvalidInput("both --sources and --upstream say which sources there are", hint="give one of them")
    named = None if sources is None else read_names(sources)
    if upstream is not None:
        named = list(SourceList.load(upstream).names)
    if from_gateway:
        record = _open_record(trace, journal_path(journal, server, upstream), include_private)
        _prepare_own_law(record, around, output, json)
        return
    if trace is None:
        raise InvalidInput("no trace was given", hint="give the path of one")
    options = Options(
        format=format,
        gap=gap,
        include_private=include_private,
        sources=named,
        columns={"user": user_column, "source": source_column, "time": time_column, "private": private_column},
    )
    opened = Trace(trace, options)
    try:
        with progress("bytes", _size(trace)) as work:
            found = learn(
                opened,
                order=order,
                types=types,
                smoothing=smoothing,
                structural_zeros=structural_zeros,
                merge_rare=merge_rare,
                seed=seed,
                dense=output is not None and output.suffix.lower() != ".npz",
                audit=Small(trace.name, seed, work.now),
                progress=work,
                phase=work.now,
            )
            if output is not None:
                work.now(f"writing {output.name}")
                found.save(output)
            if plot is not None:
                work.now(f"drawing {plot.name}")
                figures.save(leaks_figure(found.report["families"]), plot)
    finally:  # where nothing can be learnt, this is often why
        if opened.broken:
            print(f"onoff: lines that could not be read: {opened.broken}; line {opened.first_broken}", file=sys.stderr)
    if include_private and opened.marked:
        print(f"onoff: {INCLUDED}", file=sys.stderr)
    elif not opened.marked:
        print(f"onoff: {UNMARKED}", file=sys.stderr)
    if found.report["trace"]["lines_alike"]:
        print(f"onoff: {ALIKE}", file=sys.stderr)
    emit(found.as_dict() if json else None, json, lambda console: _show(console, found, output))


def _open_record(trace: Path | None, journal: Path, include_private: bool) -> OpenRecord:
    """The gateway's record. Raises InvalidInput where there was no consent, or too few requests."""
    if trace is not None:
        raise InvalidInput(f"both {trace} and --from-gateway", hint="give one of them")
    if include_private:
        raise InvalidInput("private requests are not remembered", hint="leave out --include-private")
    record = OpenRecord(journal)
    if record.consent is None:
        raise InvalidInput(
            "the gateway was not told to remember what is opened while OFF",
            hint="say so on its page, under `The model of your reading`, or start it with --remember",
        )
    return record


def _prepare_own_law(record: OpenRecord, around: Path | None, output: Path | None, json: bool) -> None:
    """Put constants of the own law into a model of other people. Nothing of the record enters: sessions keep theirs."""
    if around is None or output is None:
        raise InvalidInput(
            "a chain of your own requests alone gives more away than naive switching",
            hint="give a model of other people, as --around others.npz, and -o for where to write",
        )
    with progress(f"reading {around.name}") as work:
        population = load_model(around)
        found = constants_of(population)
        constants = found or {**USUAL_CONSTANTS, "alone": True}
        about = {**population.about, "own_law": {**population.about.get("own_law", {}), **constants}}
        work.now(f"writing {output.name}")
        if isinstance(population, MarkovChain) and output.suffix.lower() != ".npz":
            population.save(output, remarks={"about": about})
        else:
            made = population if isinstance(population, RequestModel) else RequestModel.of(population)
            RequestModel(**{**made.parts(), "about": about}).save(output)
    advice = advice_of(about, "open")
    data = {
        "file": str(output),
        "around": str(around),
        "open_requests": record.requests,
        "own_law": constants,
        "constants_from": "usual" if found is None else "held-out people",
        "advice": advice.word,
        "says": advice.says,
    }

    def show(console: Console) -> None:
        console.print(f"{output}: sessions of it begin with what you openly asked ({record.requests} requests so far).")
        if found is None:
            console.print("Its constants are usual ones: the model of other people holds none that were measured.")
        console.print(f"Advice: {advice.word}. {advice.says}")

    emit(data, json, show)


def _line(one: Mapping[str, Any]) -> tuple[str, ...]:
    """A candidate in the table of what was tried."""
    bits = f"{one['held_out_bits']:.3f} ± {one['held_out_stderr']:.3f}"
    if one["leak"] is None:
        return family_name(one), bits, "", "not audited", ""
    leak = f"{one['leak']:z.3f} ± {one['leak_stderr']:.3f}"
    return family_name(one), bits, f"{one['cost']:.1f}", leak, f"{one['naive_bits']:z.3f}"


def _size(path: Path) -> int | None:
    try:
        return size_of(path)
    except Exception:  # the reader itself says what is wrong with the file
        return None


def _show(console: Console, found: Learnt, output: Path | None) -> None:
    about: dict[str, Any] = found.report
    seen, smooth, fit, rows, cost = (about[key] for key in ("trace", "smoothing", "fit", "rows", "cost"))
    console.print(
        f"{seen['users']} users, {seen['requests']} requests, {found.chain.n} sources, "
        f"{seen['transitions']} transitions; {seen['private_left_out']} private requests left out"
    )
    model = about["model"]
    if about["families"]:
        title = "Bits per request of people held out; cost and leak of ten OFF requests after a private one"
        heads = ("model", "held out", "messages", "bits given away", "naive")
        console.print(table(heads, [_line(one) for one in about["families"]], title=title))
    elif fit is not None:
        orders = [(order, fit[f"order_{order}"]) for order in range(3) if f"order_{order}" in fit]
        lines = [(order, model["bits_fitted"], model["bits_held_out"]) for order, model in orders]
        title = f"Bits per request ({fit['scored']} held-out requests); less is better"
        console.print(table(("order", "fitted", "held out"), lines, title=title))
    kind = "a chain" if found.richer is None else family_name(model)
    console.print(f"Learnt: {kind} ({model['chosen']})")
    own = about.get("own_law")
    if own is not None:
        console.print(
            f"Knowing what a person openly asked, a request takes {own['held_out_bits']:.2f} bits, and by others alone "
            f"{own['population_bits']:.2f}; sessions that know it: `onoff audit traces --history open` measures them."
        )
    console.print(
        f"Smoothing {smooth['added']:g} moved rows by at most {smooth['rows_moved_most']:.3g} (total variation); "
        f"{smooth['unseen_transitions']} transitions were never seen; smallest probability "
        f"{smooth['smallest_probability']:.3g}"
    )
    if rows["few_observations"]:
        shown = ", ".join(f"{row['source']} ({row['observations']})" for row in rows["few_observations"][:8])
        console.print(f"Rows with few observations: {shown}")
    if found.richer is None:
        console.print(ONLY_A_CHAIN)
    for history, what in (("none", "Advice"), ("open", "Advice where your open requests are known to the session")):
        if history == "none" or history in about.get("audits", {}):
            advice = advice_of(about, history)  # type: ignore[arg-type]
            console.print(f"{what}: {advice.word}. {advice.says}")
    at_most = cost["paper_at_most"]
    paper = "" if at_most is None else f", with the paper's scheme at most {at_most:.4f}"
    console.print(
        f"The first request after a private one costs at least {cost['at_least']:.4f} messages{paper}; "
        f"everything: {cost['everything']}"
    )
    if output is not None:
        console.print(f"Written to {output}")


GUESS = (
    "This model is a guess, not learnt from anybody's requests. Where people read otherwise than it says, requests "
    "while OFF tell something about the private ones before. `onoff learn` makes a model from real requests."
)


def model_command(
    *,
    template: Annotated[
        Literal["sticky", "popular", "uniform"],
        Parameter(help="sticky: often the same source again; popular: the first sources most; uniform: any."),
    ] = "sticky",
    server: Annotated[
        str | None, Parameter(name=["--from", "--server"], help="The address of the server whose sources it is for.")
    ] = None,
    upstream: UpstreamFile = None,
    output: Annotated[Path, Parameter(name=["--output", "-o"], help="Write it here, as JSON.")] = Path("model.json"),
    json: Json = False,
) -> None:
    """Make a first model for the sources of a server or a list: a starter model, not learnt from data.

    ```console
    onoff model --from http://127.0.0.1:8470
    onoff model --upstream city.toml
    onoff model --template popular --from http://127.0.0.1:8470 -o popular.json --json
    ```

    sticky hides the most and costs the most of the three, and is the one to start with.
    """
    check_json_name(output)
    check_writable(output, inputs=[upstream])
    _refuse_to_replace_more_than_a_guess(output)
    with progress(f"waiting for {server}" if upstream is None else f"reading {upstream}") as work:
        if upstream is not None:
            names = SourceList.load(upstream).names
        elif server is not None:
            names = fetch_catalogue(server).names
        else:
            raise InvalidInput("no sources were given", hint="use --upstream FILE or --from URL")
        work.now(f"writing a model of {len(names)} sources")
        made = from_template(template, names)
        made.save(output, remarks={"about": {"guess": template, "says": GUESS}})
        work.now(f"bounds for {len(names)} sources")
        cost = bounds(made).lower
    data = {"file": str(output), "template": template, "n": made.n, "cost": cost, "guess": True, "says": GUESS}

    def show(console: Console) -> None:
        console.print(f"{output}: {made.n} sources, template {template}", markup=False)
        console.print(f"The first request after a private one will cost {cost:.4g} of {made.n} messages, at least.")
        console.print(GUESS)

    emit(data, json, show)


def _refuse_to_replace_more_than_a_guess(path: Path) -> None:
    """A model that somebody learnt, or wrote, cannot be had again as a guess can."""
    if path.exists() and path.stat().st_size and "guess" not in about_of(path):
        raise InvalidInput(f"{path}: holds something that is no guess", hint="give another path with -o, or delete it")
