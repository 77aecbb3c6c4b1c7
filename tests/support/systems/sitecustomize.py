"""Python on another system, as far as it can be had here: what that lacks is taken away before a program starts.

Programs find it as their first folder of modules; ONOFF_SYSTEM says which system is meant, and is inherited by whatever
they start.
"""

import asyncio
import fcntl
import getpass  # noqa: F401  here and below: what asks at its import which system this is, has asked
import os
import resource
import select
import shutil
import signal
import socket
import stat
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
import types

LACKS = {
    "windows": {
        os: "O_CLOEXEC O_NOFOLLOW O_NONBLOCK O_DIRECTORY O_SYNC O_DSYNC register_at_fork geteuid getuid getgid getegid "
        "fork posix_fallocate fchmod fchown chown lchown mkfifo getpgid setsid sysconf sched_getaffinity pipe2",
        signal: "pthread_sigmask setitimer ITIMER_PROF SIGPROF SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGALRM sigwait",
        socket: "AF_UNIX SO_REUSEPORT",
        select: "epoll poll",
    },
    "macos": {os: "posix_fallocate sched_getaffinity O_DIRECT pipe2", select: "epoll"},
}
NO_MODULE = {"windows": "fcntl resource uvloop pwd grp termios tty pty syslog readline", "macos": ""}


def refuse(error: type[BaseException]) -> object:
    def refused(*_: object, **__: object) -> None:
        raise error

    return refused


def be_windows() -> None:
    lock, open_, wakeup, family = fcntl.lockf, os.open, signal.set_wakeup_fd, socket.AF_UNIX
    pair = socket.socketpair

    def locking(file: int, mode: int, size: int) -> None:
        lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB, size, os.lseek(file, 0, os.SEEK_CUR))

    def open_no_folder(path, flags, *arguments, **options):
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", path)
        return open_(path, flags, *arguments, **options)

    def wake_a_socket(file: int, **options: bool) -> int:
        if file != -1 and not stat.S_ISSOCK(os.fstat(file).st_mode):
            raise ValueError("a pipe cannot be woken")
        return wakeup(file, **options)

    msvcrt = types.ModuleType("msvcrt")
    msvcrt.LK_NBLCK, msvcrt.locking = 2, locking  # type: ignore[attr-defined]
    sys.modules["msvcrt"] = msvcrt
    os.open = open_no_folder
    os.open.__name__ = "open"
    signal.set_wakeup_fd = wake_a_socket
    socket.socketpair = lambda *arguments: pair(*(arguments or (family,)))
    asyncio.SelectorEventLoop.add_signal_handler = refuse(NotImplementedError)  # type: ignore[method-assign,assignment]
    shutil._use_fd_functions = False  # type: ignore[attr-defined]


def be_macos() -> None:
    limit, control = resource.setrlimit, fcntl.fcntl

    def setrlimit(kind: int, limits: tuple[int, int]) -> None:
        if kind == resource.RLIMIT_AS:
            raise ValueError("current limit exceeds maximum limit")
        limit(kind, limits)

    def full_sync(file, command, *arguments):
        return os.fsync(file) if command == fcntl.F_FULLFSYNC else control(file, command, *arguments)  # type: ignore[attr-defined]

    resource.setrlimit = setrlimit
    fcntl.F_FULLFSYNC = 51  # type: ignore[attr-defined]
    fcntl.fcntl = full_sync


system = os.environ.get("ONOFF_SYSTEM")
if system:
    {"windows": be_windows, "macos": be_macos}[system]()
    for module, names in LACKS[system].items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    for name in NO_MODULE[system].split():
        sys.modules[name] = None  # type: ignore[assignment]
