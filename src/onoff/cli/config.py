"""What is the same each time: `onoff.toml`, and ONOFF_* variables above it. An option that is given is above both.

    server = "https://messages.example"      # for every command that has --server
    chain = "rides.json"                     # beside this file

    [gateway]                                # for one command, in place of the above
    port = 8490

The file is `ONOFF_CONFIG`, or else the user's and then the machine's: `onoff config` says where they are. The working
folder is not looked at: who hands out a folder must not choose the server. Options that change what a command does to
privacy are neither variables nor keys: what was once written and forgotten must not switch it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cyclopts import App, ArgumentCollection, Token
from cyclopts.config import Dict
from rich.console import Console

from onoff.cli.output import emit, table
from onoff.errors import InvalidInput
from onoff.system.files import read_limited

FILE_VARIABLE: Final = "ONOFF_CONFIG"
OPTIONS: Final = ("server", "upstream", "chain", "journal", "mirror", "store", "scheme", "token", "token-file")
"""Options that have a variable, such as ONOFF_SERVER, and a key, in every command that has them."""
FILES: Final = frozenset({"upstream", "chain", "journal", "mirror", "store", "token-file"})
"""Those whose value is a path: in a file it is relative to that file."""
NOT_IN_FILES: Final = frozenset(
    {"private", "open", "accept-leak", "remember", "forget", "install", "uninstall", "token"}
)


def config_files() -> list[Path]:
    """Where a file may be, the first of them above the others."""
    given = os.environ.get(FILE_VARIABLE)
    if given is not None:
        return [Path(given)] if given else []
    from platformdirs import site_config_path, user_config_path

    return [path("onoff", appauthor=False) / "onoff.toml" for path in (user_config_path, site_config_path)]


def documents_of(root: App) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Each file that is there, checked, with its paths made whole; its tables are commands. Raises InvalidInput."""
    for path in config_files():
        try:
            document = _whole(tomllib.loads(read_limited(path).decode()), path)
        except FileNotFoundError:
            if FILE_VARIABLE in os.environ:
                raise InvalidInput(f"{path}: no such file", hint=f"{FILE_VARIABLE} names it") from None
            continue
        except InvalidInput:
            raise
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InvalidInput(f"cannot read {path}: {reason}", hint="it is TOML, in UTF-8") from None
        for key in document:
            known = key in root if isinstance(document[key], dict) else key in OPTIONS
            if not known:
                shared = ", ".join(option for option in OPTIONS if option not in NOT_IN_FILES)
                raise InvalidInput(f"{path}: unknown key {key}", hint=f"{shared}; or the [table] of a command")
        yield path, document


def _whole(found: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The same with options in one spelling and paths beside `path`."""
    whole: dict[str, Any] = {}
    for written, value in found.items():
        key = written if isinstance(value, dict) else written.replace("_", "-")
        if key in NOT_IN_FILES:
            raise InvalidInput(f"{path}: {key} is not read from a file", hint="give it on the command line, each time")
        if isinstance(value, dict):
            value = _whole(value, path)
        elif key in FILES and isinstance(value, str) and "://" not in value:
            value = str(path.parent / Path(value).expanduser())
        whole[key] = value
    return whole


def variables_set() -> dict[str, str]:
    """The variables that are set, and the option for which each stands."""
    named = {f"ONOFF_{option.upper().replace('-', '_')}": option for option in OPTIONS}
    return {name: option for name, option in named.items() if os.environ.get(name)}


def fill_in(root: App, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Give each option that was left out its value; cyclopts calls it before it binds."""
    _share(arguments, {option: (os.environ[name], name) for name, option in variables_set().items()}, "environment")
    if commands == ("config",):  # which says what is wrong with a file by itself
        return
    for path, document in documents_of(root):
        tables = {key: value for key, value in document.items() if isinstance(value, dict)}
        Dict(tables, source=str(path))(app, commands, arguments)
        shared = {key: (value, f"{key} in {path}") for key, value in document.items() if key not in tables}
        _share(arguments, shared, str(path))


def _share(arguments: ArgumentCollection, values: Mapping[str, tuple[Any, str]], source: str) -> None:
    for argument in arguments:
        if argument.tokens or argument.hint is bool:  # a switch of the same name, such as `demo --mirror`
            continue
        for option in {name.removeprefix("--").lower().replace("_", "-") for name in argument.names} & values.keys():
            value, keyword = values[option]
            if isinstance(value, list) and not argument.token_count()[1]:
                raise InvalidInput(f"{keyword}: this command takes one {option}", hint="name it in the command's table")
            for index, each in enumerate(value if isinstance(value, list) else [value]):
                argument.append(Token(keyword=keyword, value=str(each), source=source, index=index))


def show_config(root: App, json: bool) -> None:
    """Print what holds, and where it is from."""
    found = dict(documents_of(root))
    holds = {
        ("", option): ("(not shown)" if option == "token" else os.environ[name], name)
        for name, option in variables_set().items()
    }
    for path, document in found.items():
        above = set(holds)
        for command, option, value in _flat(document):
            if not above & {("", option), (command, option)}:
                holds[command, option] = value, str(path)
    files = [{"path": str(path), "found": path in found} for path in config_files()]
    settings = [
        {"command": command or None, "option": option, "value": value, "from": source}
        for (command, option), (value, source) in holds.items()
    ]

    def text(shown: Console) -> None:
        for path in config_files():
            shown.print(f"{path}: {'read' if path in found else 'not there'}", markup=False)
        lines = [[command or "every command", f"--{option}", *held] for (command, option), held in holds.items()]
        shown.print(
            table(["for", "option", "value", "from"], lines) if lines else "nothing is set: all is as by default"
        )

    emit({"files": files, "settings": settings}, json, text)


def _flat(document: Mapping[str, Any], command: str = "") -> Iterator[tuple[str, str, Any]]:
    """Command, option and value of each key."""
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{command} {key}".strip())
        else:
            yield command, key, value
