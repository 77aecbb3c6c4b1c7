"""Options that several commands share, and what they stand for: servers, chain, journal, pattern, reports."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from cyclopts import Parameter
from rich.console import Console

from onoff.cli.output import Work
from onoff.client import Attempt, BuildProgress, default_journal
from onoff.errors import InvalidInput
from onoff.system.files import read_limited
from onoff.upstream.transport import ATTEMPTS, check_url
from onoff.upstream.web import Web

if TYPE_CHECKING:
    from onoff.session.session import Hide

SERVER_PORT = 8470
DEFAULT_SERVER = f"http://127.0.0.1:{SERVER_PORT}"
ServerOption = Annotated[
    list[str] | None,
    Parameter(
        name="--server",
        env_var="ONOFF_SERVER",
        negative=(),
        help=f"The server's address, such as https://host; several that hold the same messages if given several times; "
        f"{DEFAULT_SERVER} unless given.",
    ),
]
ChainFile = Annotated[
    Path | None, Parameter(name="--chain", env_var="ONOFF_CHAIN", help="The file of the chain of requests.")
]
JournalFile = Annotated[
    Path | None,
    Parameter(
        name="--journal",
        env_var="ONOFF_JOURNAL",
        help="The journal; unless given, one per server in the user's state directory.",
    ),
]
UpstreamFile = Annotated[
    Path | None,
    Parameter(
        name="--upstream", help="A list of sources of ordinary web sites, TOML, OPML or addresses, not a server."
    ),
]
SchemeOption = Annotated[str, Parameter(name="--scheme", env_var="ONOFF_SCHEME", help="How queries are built.")]
PatternOption = Annotated[str, Parameter(help="Privacy over time, such as 'ON OFF*3 ON'.")]
MemoryOption = Annotated[
    str | None, Parameter(help="last-query, the default for a chain, or bayes-filter, the default for a model.")
]
HideOption = Annotated[
    str,
    Parameter(
        help="With a model: how many of the last private requests stay hidden; person: all, and the type of the "
        "person; type: that alone."
    ),
]
EverythingOption = Annotated[bool, Parameter(help="Ask for all sources while ON, even impossible ones.")]
TopicsFile = Annotated[
    Path | None,
    Parameter(
        name="--topics",
        help="Hide the topic of private requests, not the source: a TOML file with names of topics and their sources.",
    ),
]
LeakOption = Annotated[
    float, Parameter(name="--leak", help="Bits that open requests may tell about each private one, in all.")
]
Html = Annotated[Path | None, Parameter(name="--html", help="Write the report as one self-contained page here.")]
MirrorFile = Annotated[
    Path | None,
    Parameter(name="--mirror", env_var="ONOFF_MIRROR", help="The mirror; unless given, it lies beside the journal."),
]
AcceptLeak = Annotated[
    bool, Parameter(negative="", help="Make open requests although the advice for the model is to stay ON.")
]
OnMissing = Annotated[
    Literal["error", "everything"],
    Parameter(help="Where one of several servers does not answer: fail, or fetch everything from one that does."),
]


def hide_of(hide: str) -> Hide:
    """What --hide says. Raises InvalidInput."""
    if hide in ("person", "type"):
        return cast("Hide", hide)
    try:
        return int(hide)
    except ValueError:
        raise InvalidInput(f"--hide {hide}", hint="give a number of private requests, person or type") from None


def read_topics(path: Path | None) -> list[dict[str, list[str]]] | None:
    """The lists of topics in a file: one at the top, or several as tables. Raises InvalidInput.

    A line is `health = ["clinic", "pharmacy"]`; what no list names is one topic more.
    """
    if path is None:
        return None
    try:
        found = tomllib.loads(read_limited(path).decode())
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}", hint='lines such as health = ["clinic"]') from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"{path}: {error}", hint='lines such as health = ["clinic", "pharmacy"]') from None
    lists = [value for value in found.values() if isinstance(value, dict)]
    top = {name: value for name, value in found.items() if not isinstance(value, dict)}
    lists = ([top] if top or not lists else []) + lists
    for one in lists:
        for name, sources in one.items():
            if not isinstance(sources, list) or not all(isinstance(source, str) for source in sources):
                raise InvalidInput(f"{path}: topic {name!r}", hint='a list of names, such as ["clinic", "pharmacy"]')
    return lists


def servers_of(server: list[str] | None) -> list[str]:
    """The addresses, given as options or by ONOFF_SERVER; else that of a server on this machine."""
    return [check_url(each).rstrip("/") for each in server or [DEFAULT_SERVER]]


def need_chain(chain: Path | None) -> Path:
    """The path of the chain, given as option or by ONOFF_CHAIN. Raises InvalidInput without one."""
    if chain is None:
        raise InvalidInput("no chain was given", hint="use --chain FILE, or set ONOFF_CHAIN; `onoff learn` makes one")
    return chain


def journal_path(journal: Path | None, server: list[str] | None, upstream: Path | None = None) -> Path:
    """The journal that was given, or the one of the server, or of all of several, or of the sites of a list."""
    if journal is not None:
        return journal
    if upstream is not None:
        return default_journal(Web.load(upstream).address)
    if not server:
        raise InvalidInput("no journal was given", hint="use --journal PATH or --server URL")
    return default_journal(" ".join(each.rstrip("/") for each in server))


def mirror_path(
    mirror: Path | None, journal: Path | None, server: list[str] | None, upstream: Path | None = None
) -> Path:
    """The mirror that was given, or the one beside the journal; of sites their copies."""
    if mirror is not None:
        return mirror
    beside = journal_path(journal, server, upstream)
    return beside.with_name(f"{beside.name}.{'mirror' if upstream is None else 'copies'}")


def count_requests(work: Work) -> Callable[[int, int], None]:
    """What makes a `Web` count on `work` the requests of a set that are done."""

    def tell(done: int, total: int) -> None:
        work.total = total
        work(done)

    return tell


def told(work: Work, servers: list[str]) -> dict[str, Any]:
    """Options that make a client report through `work` what it is waiting for."""

    def progress(progress: BuildProgress) -> None:
        if progress.state == "building":
            work.now(f"building the table for {progress.sources} sources")

    def waiting(attempt: Attempt) -> None:
        work.now(f"waiting for {servers[attempt.server]}, attempt {attempt.number} of {ATTEMPTS}")

    return {"progress": progress, "waiting": waiting}


def show_forecast(console: Console, forecast: dict[str, Any]) -> None:
    """What requests will cost, for people."""
    names = {
        "hour_on": "an hour of ON",
        "private_now": "a private request now",
        "open_now": "an open request now",
        "everything": "all messages once",
        "used_today": "received today",
    }
    for key, name in names.items():
        console.print(f"{name}: {size_text(forecast[key])}")


def size_text(count: float | None) -> str:
    """Bytes for people.

    >>> size_text(1536), size_text(None)
    ('1.5 KiB', 'not known before the first refresh')
    """
    if count is None:
        return "not known before the first refresh"
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def read_names(path: Path) -> list[str]:
    """The names in a file, in its order; empty lines do not count. Raises InvalidInput."""
    try:
        lines = read_limited(path).decode("utf-8-sig").splitlines()  # whatever the locale, with or without its mark
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}", hint="give a text file, one name a line") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"cannot read {path}: byte {error.start} is not UTF-8", hint="save it as UTF-8") from None
    return [line.strip() for line in lines if line.strip()]
