"""The command line. Data goes to stdout, progress and errors to stderr.

It stands on all rooms, and none on it: a command reads files and options, calls one of them, and prints. A module with
commands is imported when one of them is called, so that `onoff get` never pays for what `onoff gateway` needs. A change
here may touch what scripts rely on: words, JSON and exit codes are a contract.

Exit codes: 0 ok, 1 failure, 2 usage, 3 bad input, 4 server unreachable, 5 a privacy check failed, 130 interrupted.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Literal

from cyclopts import App, CycloptsError
from rich.console import Console

from onoff import __version__
from onoff.cli.config import fill_in, show_config
from onoff.cli.output import Json
from onoff.errors import OnOffError
from onoff.system.interrupts import end_promptly, was_interrupted
from onoff.system.logs import warn_on_stderr
from onoff.system.plugins import plugins

USAGE_ERROR = 2
INTERRUPTED = 130
CANNOT_WRITE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

app: App = App(
    name="onoff",
    help="Fetch the latest message of one of N sources, with privacy that can be switched ON and OFF.",
    version=__version__,
    help_format="markdown",
    suppress_keyboard_interrupt=False,  # `run` says so in one line
    config=lambda found, commands, arguments: fill_in(app, found, commands, arguments),
    help_epilogue="What is hidden, and what is not: docs/threat-model.md, or /limits on the page of a running gateway.",
)
app.command("onoff.cli.audit:audit_app", name="audit")
app.command("onoff.cli.design:bounds_command", name="bounds")
app.command("onoff.cli.serve:catalogue_command", name="catalogue")
app.command("onoff.cli.demo:demo_command", name="demo")
app.command("onoff.cli.doctor:doctor_command", name="doctor")
app.command("onoff.cli.gateway:gateway_command", name="gateway")
app.command("onoff.cli.get:get_command", name="get")
app.command("onoff.cli.learn:learn_command", name="learn")
app.command("onoff.cli.design:design_command", name="design")
app.command("onoff.cli.get:mirror_app", name="mirror")
app.command("onoff.cli.learn:model_command", name="model")
app.command("onoff.cli.serve:publish_command", name="publish")
app.command("onoff.cli.design:plot_command", name="plot")
app.command("onoff.cli.simulate:reproduce_command", name="reproduce")
app.command("onoff.cli.serve:serve_command", name="serve")
app.command("onoff.cli.simulate:simulate_command", name="simulate")
app.command("onoff.cli.get:state_app", name="state")
app.command("onoff.cli.simulate:sweep_command", name="sweep")
app.command("onoff.cli.compare:compare_command", name="compare")
for _name, _entry in plugins("onoff.commands").items():
    if _name not in app:
        app.command(_entry.value, name=_name)


@app.command(name="completion")
def completion_command(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the script that completes `onoff` commands and options in a shell.

    ```console
    onoff completion bash > ~/.local/share/bash-completion/completions/onoff
    onoff completion fish > ~/.config/fish/completions/onoff.fish
    ```

    For zsh, write it as `_onoff` into a folder of `$fpath`. Nothing is written or changed by this command itself.

    Parameters
    ----------
    shell
        The shell that will read it.
    """
    print(app.generate_completion(shell=shell))


@app.command(name="config")
def config_command(*, json: Json = False) -> None:
    """Show which options are set by `onoff.toml` or by variables, and by which.

    ```console
    onoff config
    onoff config --json
    ```

    An option on the command line is above a variable, and that above the file. Which options may be in the file, and
    where it is, is in [the files that onoff reads](files.md).
    """
    show_config(app, json)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    _open_streams()
    warn_on_stderr()
    end_promptly(INTERRUPTED, _say_interrupted)
    # BLAS may raise the processor's "invalid" flag for finite numbers (numpy issue 24067): it tells a user nothing.
    warnings.filterwarnings("ignore", "invalid value encountered in matmul", RuntimeWarning)
    sys.exit(run(arguments))


def _open_streams() -> None:
    """Output that somebody closed goes nowhere, and what an encoding lacks is printed as Python writes it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        getattr(sys, name).reconfigure(errors="backslashreplace")


@functools.cache  # printed once, by the main thread or by the one that ends the process
def _say_interrupted() -> None:
    print("onoff: interrupted", file=sys.stderr, flush=True)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code.

    An error becomes one line on stderr, and under --json a document `{"error": {...}}` on stdout besides.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    _load_summaries(words)
    try:
        outcome = _call(words)
    except CycloptsError as error:
        see = f"{' '.join(['onoff', *(error.command_chain or ())])} --help"
        print(f"See: {see}", file=sys.stderr)
        return _fail(words, USAGE_ERROR, "UsageError", str(error), f"see {see}")
    except OnOffError as error:
        print(f"onoff: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"       {error.hint}", file=sys.stderr)
        return _fail(words, error.exit_code, type(error).__name__, error.message, error.hint)
    except KeyboardInterrupt:
        _say_interrupted()
        return INTERRUPTED
    except BrokenPipeError:
        _give_up_on_stdout()
        return 0
    except OSError as error:
        if error.filename is not None:
            message = f"{error.filename}: {error.strerror}"
            print(f"onoff: {message}", file=sys.stderr)
            return _fail(words, OnOffError.exit_code, type(error).__name__, message, None)
        if error.errno not in CANNOT_WRITE:
            raise
        _give_up_on_stdout()
        print(f"onoff: cannot write what was found: {error.strerror}", file=sys.stderr)
        return OnOffError.exit_code
    return outcome if isinstance(outcome, int) else 0


def _call(words: Sequence[str]) -> object:
    """Call the command; an error that Ctrl-C caused somewhere in an extension module is KeyboardInterrupt again."""
    try:
        outcome = app(words, exit_on_error=False, error_console=Console(stderr=True), result_action="return_value")
        sys.stdout.flush()  # so that a closed pipe raises here, not at exit
    except Exception:
        if was_interrupted():
            raise KeyboardInterrupt from None
        raise
    return outcome


def _give_up_on_stdout() -> None:
    """So that what it holds is not tried again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(words: Sequence[str], code: int, kind: str, message: str, hint: str | None) -> int:
    """The exit code of an error, after printing it; as JSON under --json."""
    if "--json" in words:
        told = {"type": kind, "message": message, "hint": hint, "exit_code": code}
        try:
            print(json.dumps({"error": told}), flush=True)
        except OSError:  # stderr has it too
            _give_up_on_stdout()
    return code


def _load_summaries(words: Sequence[str]) -> None:
    """Load the commands before their list is shown: it has the first line of each docstring."""
    group = app
    for word in words:
        if word in group.help_flags:
            break
        if word not in group:
            return
        group = group[word]
    for name in group:
        group[name].help  # noqa: B018
