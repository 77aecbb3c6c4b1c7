"""Kills a client at its k-th system call that touches the journal or a socket. Really: ptrace and SIGKILL.

Run as a program this is a fork server, warm and single-threaded: for every line of JSON on stdin it forks a child
that does what the line says with a client of its own, follows the child's system calls, kills it (before the call
is carried out) at the k-th that counts, and answers with one line of JSON. `Killer` is its other end. In the same
way a call that writes to the journal can be made to fail, once or from then on, as a full or broken disk would.

A filter of the kernel (seccomp) stops the child at the calls that may count and at no others. The table that each
child needs after a private request is built once, before they are forked: to build it touches no file and no socket.
"""

import ctypes
import errno
import gc
import importlib
import json
import os
import resource
import signal
import struct
import subprocess
import sys
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from tests.support.typed import present
from tests.support.waiting import PATIENCE

TRACEME, POKEUSER, CONTINUE, SETOPTIONS, GET_SYSCALL_INFO = 0, 6, 7, 0x4200, 0x420E
NO_NEW_PRIVILEGES, SET_SECCOMP, SECCOMP_FILTER, STOPPED_BY_FILTER = 38, 22, 2, 7
LOAD, JUMP_IF_EQUAL, RETURN, ALLOW, TRACE = 0x20, 0x15, 0x06, 0x7FFF0000, 0x7FF00000  # of the filter's language
NUMBER_REGISTER, RESULT_REGISTER = 15 * 8, 10 * 8  # orig_rax and rax of x86-64
WRITING = {"pwrite64", "write", "fsync", "fdatasync", "ftruncate", "fallocate"}
OPTIONS = 0x8 | 0x80 | 0x100000  # follow threads, stop where the filter says, die with the tracer
WALL = 0x40000000
BY_PATH = {"open", "openat", "unlink", "rename", "mkdir", "chmod", "stat", "lstat", "newfstatat", "access", "statx"}
BY_FILE = {
    "read", "write", "pread64", "pwrite64", "fsync", "fdatasync", "ftruncate", "fallocate", "lseek", "fcntl", "flock",
    "close", "fstat", "fchmod", "fchown", "connect", "sendto", "recvfrom", "shutdown", "setsockopt", "getsockopt",
    "sendmsg", "recvmsg", "poll",
}  # fmt: skip
NUMBERS = {  # x86-64
    0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll", 8: "lseek",
    17: "pread64", 18: "pwrite64", 21: "access", 42: "connect", 44: "sendto", 45: "recvfrom", 46: "sendmsg",
    47: "recvmsg", 48: "shutdown", 54: "setsockopt", 55: "getsockopt", 72: "fcntl", 73: "flock", 74: "fsync",
    75: "fdatasync", 77: "ftruncate", 82: "rename", 83: "mkdir", 87: "unlink", 90: "chmod", 91: "fchmod",
    93: "fchown", 257: "openat", 262: "newfstatat", 285: "fallocate", 332: "statx",
}  # fmt: skip
ONLY_LOOKING = {
    "read", "pread64", "lseek", "stat", "lstat", "fstat", "newfstatat", "statx", "access", "recvfrom", "recvmsg",
    "poll", "getsockopt", "setsockopt", "fcntl", "flock", "close",
}  # fmt: skip
"""Calls that change no file and send nothing; locks and open files end with the process in any case."""
ERRORS = {"disk full": errno.ENOSPC, "input/output error": errno.EIO}
LEAVING = {"connect", "sendto", "sendmsg", "write", "pwrite64", "fsync", "fdatasync", "ftruncate", "unlink", "rename"}
"""Calls by which something leaves the process. Before one, all that left earlier was answered, where it is answered."""
DURATIONS = {"once": False, "for ever": True}

LOADED = (
    *("onoff.client", "onoff.model.files", "onoff.schemes.greedy", "onoff.schemes.single", "onoff.session.filter"),
    *("encodings.ascii", "encodings.idna", "numpy.ma", "scipy.sparse"),
)
"""What every child would else load itself, one traced call after the other."""


class Killer:
    """A fork server of its own."""

    def __init__(self):
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.killing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def run(self, job, *, kill_at=None, kill_before=None, fail_at=None, error=None, for_ever=False):
        """Do a job: {"url", "journal", "get" or "retry", ...}. Gives what came of it, and the calls that counted.

        kill_at, kill_before: Kill it before the k-th call that counts, or before the k-th of those in `LEAVING`.
        """
        orders = {"kill_at": kill_at, "fail_at": fail_at, "error": error, "for_ever": for_ever}
        orders["kill_before"] = kill_before
        present(self._server.stdin).write(json.dumps({**job, **orders}) + "\n")
        present(self._server.stdin).flush()
        return json.loads(present(self._server.stdout).readline())

    def close(self):
        present(self._server.stdin).close()
        assert self._server.wait(PATIENCE) == 0
        present(self._server.stdout).close()


def telling_kills(calls):
    """Where to kill so that each state of files and servers that these calls lead to is left behind once."""
    return [1, *(k + 1 for k, (name, _) in enumerate(calls[:-1], start=1) if name not in ONLY_LOOKING)]


def failing_writes(*kinds):
    """Cases (kind, error, for ever). In every run each error, once and for ever, and two of the four for each kind."""
    import pytest  # here, as the fork server does without

    cases = []
    for number, kind in enumerate(kinds):
        for (name, error), (duration, for_ever) in product(ERRORS.items(), DURATIONS.items()):
            in_every_run = (error == errno.EIO) ^ for_ever ^ bool(number % 2)
            marks = () if in_every_run else pytest.mark.deep
            cases.append(pytest.param(kind, error, for_ever, id=f"{kind}-{name}-{duration}", marks=marks))
    return cases


# -- the child ---------------------------------------------------------------------------------------------


def act(job):
    """One request by a client of its own; what came of it."""
    if "list" in job:
        from tests.support.visiting import visit

        return visit(job)
    from tests.support.clients import Client

    from onoff.errors import OnOffError

    if "largest_file" in job:
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["largest_file"], resource.RLIM_INFINITY))
    try:
        with Client(
            job["url"],
            job["tables"].model,
            job["journal"],
            scheme=job["tables"],
            tick=0,
            attempts=job.get("attempts", 1),
            backoff=0,
            timeout=PATIENCE,
            background=job.get("background", False),
            mirror=job.get("mirror", False),
            leak=job.get("leak", 0.0),
        ) as client:
            if "refresh" in job:
                return {"changed": client.refresh().changed}
            if "read" in job:
                message = client.read(job["read"])
            else:
                message = client.retry() if "retry" in job else client.get(job["get"], private=job["private"])
            if "shown" in job:
                Path(job["shown"]).write_bytes(message)  # it is handed over, whatever becomes of the process
        return {"message": message.decode(), "cost": message.sent.cost, "note": message.sent.note}
    except OnOffError as error:
        return {"error": type(error).__name__, "text": str(error)}


def child(job, out):
    libc.ptrace(TRACEME, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    stop_at(NUMBERS)
    result = act(job)
    os.write(out, json.dumps(result).encode())
    os._exit(0)


def stop_at(numbers):
    """From now on this process and its threads stop before each of these calls and tell the tracer, and at no other."""
    jumps = [(JUMP_IF_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    steps = [(LOAD, 0, 0, 0), *jumps, (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, TRACE)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(SET_SECCOMP, SECCOMP_FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "no filter of system calls")


# -- the tracer --------------------------------------------------------------------------------------------

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]


def follow(pid, folder, job):
    """Let the child run to its end, or to the call at which it is killed; the calls that counted, in order."""
    writes = leaving = 0
    os.waitpid(pid, WALL)
    libc.ptrace(SETOPTIONS, pid, 0, OPTIONS)
    libc.ptrace(CONTINUE, pid, 0, 0)
    info = ctypes.create_string_buffer(88)
    calls: list[Any] = []
    killed = False
    while True:
        try:
            stopped, status = os.waitpid(-1, WALL)
        except ChildProcessError:
            return calls, killed
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            continue
        deliver = 0
        if status >> 16 == STOPPED_BY_FILTER:
            libc.ptrace(GET_SYSCALL_INFO, stopped, len(info), info)
            call = None if killed else counted(pid, folder, info.raw)
            if call:
                calls.append(call)
                leaving += call[0] in LEAVING
                if len(calls) == job["kill_at"] or (call[0] in LEAVING and leaving == job["kill_before"]):
                    killed = True
                    os.kill(pid, signal.SIGKILL)
                    continue
                if job["fail_at"] and call[0] in WRITING and call[1] not in {"socket", "query"}:
                    writes += 1
                    if writes == job["fail_at"] or (job["for_ever"] and writes > job["fail_at"]):
                        libc.ptrace(POKEUSER, stopped, NUMBER_REGISTER, ctypes.c_void_p(-1))  # no call is carried out
                        libc.ptrace(POKEUSER, stopped, RESULT_REGISTER, ctypes.c_void_p(-job["error"]))
        elif os.WSTOPSIG(status) not in {signal.SIGSTOP, signal.SIGTRAP}:
            deliver = os.WSTOPSIG(status)
        libc.ptrace(CONTINUE, stopped, 0, deliver)


def counted(pid, folder, info):
    """(name, what it touches) if the call touches the journal's folder or a socket."""
    number, first, second, third = struct.unpack_from("=4Q", info, 24)
    name = NUMBERS.get(number)
    if name in BY_PATH:
        path = text_at(pid, second if name in {"openat", "newfstatat", "statx"} else first)
        return [name, path[len(folder) :]] if path.startswith(folder) else None
    if name in BY_FILE:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{first}")
        except OSError:
            return None
        if target.startswith("socket:"):
            asks = name == "sendto" and b"/v1/query" in bytes_at(pid, second, min(third, 40))
            return [name, "query" if asks else "socket"]
        return [name, target[len(folder) :]] if target.startswith(folder) else None
    return None


def bytes_at(pid, address, length):
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(length)
    except (OSError, OverflowError, ValueError):
        return b""


def text_at(pid, address):
    return bytes_at(pid, address, 512).split(b"\0", 1)[0].decode(errors="replace")


@cache
def tables_of(chain, scheme, leak):
    """The tables of the chain or model in a file, with the one after a private request."""
    from onoff.model.contexts import load_model
    from onoff.session import Session
    from onoff.session.session import TableCache

    tables = TableCache(load_model(chain), scheme)
    session = Session(tables.model, tables=tables, leak=leak)
    session.request(0, private=True)
    session.prepare()
    return tables


def serve():
    for module in LOADED:
        importlib.import_module(module)
    gc.freeze()
    for line in sys.stdin:
        job = json.loads(line)
        if "list" in job:
            importlib.import_module("tests.support.visiting")
        job["tables"] = tables_of(job["chain"], job.get("scheme", "greedy"), job.get("leak", 0.0))
        inward, outward = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(inward)
            child(job, outward)
        os.close(outward)
        calls, killed = follow(pid, os.path.dirname(job["journal"]), job)
        with open(inward, "rb") as pipe:
            said = pipe.read()
        result = json.loads(said) if said else None
        print(json.dumps({"killed": killed, "calls": calls, "result": result}), flush=True)


if __name__ == "__main__":
    serve()
