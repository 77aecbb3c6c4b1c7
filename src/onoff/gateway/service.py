"""`onoff gateway --install`: the gateway as a service of the person who is logged in, by what the system has for that.

systemd on Linux, launchd on macOS, the Task Scheduler on Windows. Each takes a file that says what to run, and is told
to start it. Where any step fails, all is as it was.
"""

from __future__ import annotations

import contextlib
import os
import plistlib
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final
from xml.sax.saxutils import escape

from onoff.errors import InvalidInput, OnOffError

NAME: Final = "onoff-gateway"
_TIMEOUT: Final = 30.0


class Service(ABC):
    """A way to keep a command running: the file that it takes, and what its program is told."""

    program: ClassVar[str]
    check: ClassVar[Sequence[Sequence[str]]]
    """Told before anything is written: whether this person has such services at all."""

    @abstractmethod
    def path(self) -> Path:
        """Where the file is kept."""

    @abstractmethod
    def text(self, command: Sequence[str], folder: str) -> str:
        """The file that runs the command in a folder."""

    @abstractmethod
    def start(self) -> Sequence[Sequence[str]]:
        """What makes the file known and starts it, in order."""

    @abstractmethod
    def stop(self) -> Sequence[Sequence[str]]:
        """What ends the service and keeps it from starting again, while the file is there."""

    def forget(self) -> Sequence[Sequence[str]]:
        """What is told after the file was changed or removed."""
        return ()

    def tell(self, *words: str) -> None:
        """Run the program. Raises OnOffError where it is not there or refuses."""
        program = shutil.which(self.program)
        if program is None:
            raise OnOffError(
                f"there is no {self.program} here, so there is no service",
                hint="start this command with what this system has",
            )
        command = next(word for word in words if not word.startswith("--"))
        try:
            done = subprocess.run([program, *words], capture_output=True, text=True, timeout=_TIMEOUT, check=False)
        except subprocess.TimeoutExpired:
            raise OnOffError(f"{self.program} {command} does not end", hint="is this session stuck?") from None
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise OnOffError(
                f"{self.program} {command}: {said[0] if said else 'failed'}",
                hint=f"does {self.program} work for you in this session?",
            )


class Systemd(Service):
    """A unit of the user's systemd."""

    program = "systemctl"
    check = (("--user", "daemon-reload"),)

    def path(self) -> Path:
        home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        return Path(home) / "systemd" / "user" / f"{NAME}.service"

    def text(self, command: Sequence[str], folder: str) -> str:
        return _UNIT.format(command=" ".join(map(_quoted_for_systemd, command)), folder=folder.replace("%", "%%"))

    def start(self) -> Sequence[Sequence[str]]:
        return ("--user", "daemon-reload"), ("--user", "enable", "--now", f"{NAME}.service")

    def stop(self) -> Sequence[Sequence[str]]:
        return (("--user", "disable", "--now", f"{NAME}.service"),)

    def forget(self) -> Sequence[Sequence[str]]:
        return self.check


class Launchd(Service):
    """A launch agent of macOS."""

    program = "launchctl"
    check = (("version",),)
    label = f"local.{NAME}"

    def path(self) -> Path:
        return Path.home() / "Library" / "LaunchAgents" / f"{self.label}.plist"

    def text(self, command: Sequence[str], folder: str) -> str:
        agent = {
            "Label": self.label,
            "ProgramArguments": list(command),
            "WorkingDirectory": folder,
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "Umask": 0o077,
            "HardResourceLimits": {"Core": 0},
        }
        return plistlib.dumps(agent).decode()

    def start(self) -> Sequence[Sequence[str]]:
        return (("bootstrap", self._domain(), str(self.path())),)

    def stop(self) -> Sequence[Sequence[str]]:
        return (("bootout", f"{self._domain()}/{self.label}"),)

    def _domain(self) -> str:
        return f"gui/{os.getuid()}"


class TaskScheduler(Service):
    """A task of Windows that runs from log-on on."""

    program = "schtasks"
    check = (("/Query",),)

    def path(self) -> Path:
        return Path(os.environ.get("LOCALAPPDATA") or Path.home()) / "onoff" / f"{NAME}.xml"

    def text(self, command: Sequence[str], folder: str) -> str:
        program, *words = command
        arguments = subprocess.list2cmdline(words)
        return _TASK.format(program=escape(program), arguments=escape(arguments), folder=escape(folder))

    def start(self) -> Sequence[Sequence[str]]:
        return ("/Create", "/TN", NAME, "/XML", str(self.path()), "/F"), ("/Run", "/TN", NAME)

    def stop(self) -> Sequence[Sequence[str]]:
        return ("/End", "/TN", NAME), ("/Delete", "/TN", NAME, "/F")


def service_of(system: str = sys.platform) -> Service:
    """What the system has."""
    return {"darwin": Launchd, "win32": TaskScheduler}.get(system, Systemd)()


def install(arguments: Sequence[str], service: Service | None = None) -> Path:
    """Write the file that runs `onoff gateway` with these arguments, and start it; where it was written.

    Raises InvalidInput where it cannot be written, OnOffError where the system does not take it; then all is as it was.
    """
    service = service or service_of()
    path, text = service.path(), text_of(service, arguments)
    for words in service.check:
        service.tell(*words)
    with _undone_on_error(service):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"{path}: {error.strerror}", hint="make the folder one that you can write to") from None
        for words in service.start():
            service.tell(*words)
    return path


def uninstall(service: Service | None = None) -> Path:
    """Stop the service and remove its file; where it was. Raises InvalidInput where there is none."""
    service = service or service_of()
    path = service.path()
    if not path.exists():
        raise InvalidInput(f"{path}: there is no such service", hint="`onoff gateway --install` makes it")
    for words in service.stop():
        service.tell(*words)
    path.unlink()
    for words in service.forget():
        service.tell(*words)
    return path


def text_of(service: Service, arguments: Sequence[str]) -> str:
    """The file that runs `onoff gateway` with these arguments, in the folder of now.

    Raises InvalidInput for an argument that could add a line of its own.
    """
    command = [sys.executable, "-c", "from onoff.cli import main; main()", "gateway", *arguments]
    folder = str(Path.cwd())
    for word in (*command, folder):
        if any(ord(letter) < 32 or ord(letter) == 127 or "\ud800" <= letter <= "\udfff" for letter in word):
            raise InvalidInput(
                f"{word!r} cannot be written into a service", hint="leave out line breaks and control characters"
            )
    return service.text(command, folder)


@contextlib.contextmanager
def _undone_on_error(service: Service) -> Iterator[None]:
    """Put back the file that was there before, or none, where the block fails."""
    path = service.path()
    before = path.read_bytes() if path.exists() else None
    try:
        yield
    except BaseException:
        if before is None:
            for words in service.stop():
                with contextlib.suppress(OSError, OnOffError):
                    service.tell(*words)
        with contextlib.suppress(OSError, OnOffError):
            path.write_bytes(before) if before is not None else path.unlink(missing_ok=True)
            for words in service.forget():
                service.tell(*words)
        raise


def _quoted_for_systemd(word: str) -> str:
    """A word for ExecStart: systemd's own quoting, with its specifiers and variables taken literally."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


_UNIT: Final = """[Unit]
Description=onoff: read without telling the server what you read
After=network-online.target

[Service]
ExecStart={command}
WorkingDirectory={folder}
Restart=on-failure
RestartSec=5
LimitCORE=0

CapabilityBoundingSet=
LockPersonality=yes
NoNewPrivileges=yes
PrivateDevices=yes
PrivateUsers=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProtectSystem=full
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
UMask=0077

[Install]
WantedBy=default.target
"""

_TASK: Final = """<?xml version="1.0"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <Triggers><LogonTrigger><Enabled>true</Enabled></LogonTrigger></Triggers>
  <Settings>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <RestartOnFailure><Interval>PT1M</Interval><Count>999</Count></RestartOnFailure>
  </Settings>
  <Actions>
    <Exec>
      <Command>{program}</Command>
      <Arguments>{arguments}</Arguments>
      <WorkingDirectory>{folder}</WorkingDirectory>
    </Exec>
  </Actions>
</Task>
"""
