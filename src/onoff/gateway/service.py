"""The gateway as a service of the user: a unit for systemd, written and removed by `onoff gateway --install`.

It starts with the user's session and again if it fails. It holds the command line and no secret: tokens are kept beside
the journal.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from onoff.errors import InvalidInput, OnOffError

SERVICE_NAME: Final = "onoff-gateway.service"
SYSTEMCTL_TIMEOUT: Final = 30.0
TEXT: Final = """[Unit]
Description=onoff: read without telling the server what you read
After=network-online.target

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=5
UMask=0077
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def unit_path() -> Path:
    """Where the user's unit is kept."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "systemd" / "user" / SERVICE_NAME


def install(arguments: Sequence[str]) -> Path:
    """Write the unit that runs `onoff gateway` with these arguments, and start it; where it was written.

    Raises InvalidInput where it cannot be written, OnOffError where systemd does not take it.
    """
    path = unit_path()
    command = [sys.executable, "-c", "from onoff.cli import main; main()", "gateway", *arguments]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TEXT.format(command=" ".join(_quoted(word) for word in command)))
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}", hint="set XDG_CONFIG_HOME to a folder of yours") from None
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", SERVICE_NAME)
    return path


def uninstall() -> Path:
    """Stop the service and remove its unit; where it was. Raises InvalidInput where there is none."""
    path = unit_path()
    if not path.exists():
        raise InvalidInput(f"{path}: there is no such service", hint="`onoff gateway --install` makes it")
    _systemctl("disable", "--now", SERVICE_NAME)
    path.unlink()
    _systemctl("daemon-reload")
    return path


def _systemctl(*words: str) -> None:
    program = shutil.which("systemctl")
    if program is None:
        raise OnOffError(
            "systemctl is not there, so the service was written but not started",
            hint=f"start {SERVICE_NAME} with what this system has",
        )
    done = subprocess.run(
        [program, "--user", *words], capture_output=True, text=True, timeout=SYSTEMCTL_TIMEOUT, check=False
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise OnOffError(f"systemctl {words[0]}: {said[0] if said else 'failed'}", hint="is this a session of systemd?")


def _quoted(word: str) -> str:
    """A word for ExecStart: systemd's own quoting, with its specifiers and variables taken literally."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'
