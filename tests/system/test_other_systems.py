"""Every command works where the system has less: what Windows and macOS lack is taken away (tests/support/systems)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.ports import reserved_port

SITE = Path(__file__).parents[1] / "support" / "systems"

WALK = """
import contextlib, functools, http.server, io, pathlib, subprocess, sys, threading, time, urllib.error, urllib.request
from onoff.cli import run

server, feeds, gateway = (f"http://127.0.0.1:{port}" for port in sys.argv[1:4])
at = ["--server", server]
pathlib.Path("chain.json").write_text('{"names": ["alpha", "beta"], "transition": [[0.8, 0.2], [0.3, 0.7]]}')
pathlib.Path("trace.txt").write_text("alpha beta alpha alpha\\n" * 400)
pathlib.Path("spec.toml").write_text('schemes = ["greedy"]\\n[[chain]]\\nfile = "chain.json"\\n')
pathlib.Path("word.txt").write_text("a word")
pathlib.Path("feed.xml").write_text(
    "<rss version='2.0'><channel><title>Feed</title><item><title>one</title></item></channel></rss>")

def started(*words):
    return subprocess.Popen([sys.executable, "-c", "from onoff.cli import main; main()", *words])

def up(address):
    until = time.monotonic() + 300
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(address, timeout=300) as reply:
                return reply.read()
        except urllib.error.HTTPError as refused:
            return refused.read()
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nothing answers at {address}")

def must(*words):
    print("onoff", *words, flush=True)
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")) as said:
        code = run(list(words))
        said.flush()
    assert code == 0, (code, words)
    return said.buffer.getvalue().decode()

class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
threading.Thread(target=site.serve_forever, daemon=True).start()
pathlib.Path("feeds.txt").write_text(f"http://127.0.0.1:{site.server_port}/feed.xml\\n")

token = must("serve", "--store", "store.db", "--add-publisher", "us").split()[-1]
children = []
try:
    names = ["--source", "alpha", "--source", "beta"]
    children.append(started("serve", "--store", "store.db", *names, "--port", sys.argv[1]))
    children.append(started("serve", "--store", "feeds.db", "--feeds", "feeds.txt", "--port", sys.argv[2]))
    up(f"{server}/v1/catalogue")
    must("publish", "alpha", "word.txt", "--token", token, *at)
    must("catalogue", *at)
    must("doctor", "--chain", "chain.json", "--journal", "journal", *at)
    must("get", "alpha", "--chain", "chain.json", "--journal", "journal", *at)
    must("get", "beta", "--open", "--chain", "chain.json", "--journal", "journal", *at)
    must("state", "show", "--journal", "journal")
    must("mirror", "refresh", "--mirror", "mirror.db", *at)
    must("mirror", "verify", "--mirror", "mirror.db")
    must("model", "-o", "model.json", *at)
    must("learn", "trace.txt", "-o", "learnt.json")
    must("design", "chain.json", "--save", "table.npz")
    must("bounds", "chain.json")
    must("simulate", "chain.json", "--users", "20")
    must("audit", "exact", "chain.json", "--pattern", "ON OFF")
    must("audit", "exact", "chain.json", "--client", "--pattern", "ON OFF")
    must("reproduce", "--only", "E5")
    must("plot", "chain.json")
    must("completion", "bash")
    while "Feed" not in up(f"{feeds}/v1/catalogue").decode():
        time.sleep(0.05)
    while "one" not in must("get", "Feed", "--journal", "feeds.journal", "--server", feeds):
        time.sleep(0.05)
    children.append(started("gateway", "--chain", "chain.json", "--port", sys.argv[3], "--journal", "other", *at))
    up(f"{gateway}/v1/status")
    must("state", "reset", "--journal", "journal", "--yes")
finally:
    for child in children:
        child.terminate()
    for child in children:
        child.wait()
print("walked")
"""


def python(system, *words, cwd):
    paths = os.pathsep.join([str(SITE), str(Path(__file__).parents[2])])
    home = {"HOME": str(cwd), "XDG_STATE_HOME": str(cwd / "state"), "XDG_CONFIG_HOME": str(cwd / "config")}
    environment = {**os.environ, "PYTHONPATH": paths, "ONOFF_SYSTEM": system, **home}
    return subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", *words],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow(reason="a server, a gateway and twenty commands, for each system")
@pytest.mark.parametrize("system", ["windows", "macos"])
def test_every_command_runs(system, tmp_path):
    with reserved_port() as server, reserved_port() as feeds, reserved_port() as gateway:
        done = python(system, "-c", WALK, str(server), str(feeds), str(gateway), cwd=tmp_path)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert done.stdout.endswith("walked\n")
