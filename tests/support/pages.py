"""A page of the documentation as one script: its `sh` and `python` blocks in order, on ports that are free."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.ports import reserved_port
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
PORTS = ("8470", "8471", "8480", "8490", "8786", "6390")
"""Ports that the pages name; each is replaced by one of our own."""

WAIT = f"""
import json, socket, sys, time, urllib.request
deadline = time.monotonic() + {PATIENCE}

def is_up(port, path):
    try:
        if path:  # of a server: a follower listens before it has the sources of its leader
            with urllib.request.urlopen(f"http://127.0.0.1:{{port}}/{{path}}", timeout={PATIENCE}) as reply:
                return json.load(reply)["sources"] != []
        socket.create_connection(("127.0.0.1", port), timeout={PATIENCE}).close()
        return True
    except OSError:
        return False

for where in sys.argv[1:]:
    port, _, path = where.partition("/")
    while not is_up(int(port), path):
        assert time.monotonic() < deadline, f"nobody is ready on port {{port}}"
        time.sleep(0.1)
"""

_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.M | re.S)


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(found["language"], found["body"]) for found in _BLOCK.finditer(page.read_text())]


@contextlib.contextmanager
def script(page: Path) -> Iterator[str]:
    """The script of a page, on ports that are ours while the block runs."""
    parts = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for at, (language, body) in enumerate(blocks(page)):
        if language == "sh":
            parts.append(body)
        elif language == "python":
            parts.append(f"cat > block{at}.py <<'END OF BLOCK'\n{body}END OF BLOCK\npython block{at}.py")
    text = "\n".join(parts) + "\n"
    with contextlib.ExitStack() as stack:
        ours = {port: str(stack.enter_context(reserved_port())) for port in PORTS}
        yield _with_patience(re.sub("|".join(PORTS), lambda found: ours[found[0]], text))  # at once: none in another


def _with_patience(text: str) -> str:
    """`sleep 2` is for readers; a busy machine may need more until what was started in the background is ready."""
    lines, ports = [], []
    for line in text.splitlines():
        if line.endswith("&"):
            path = "/v1/catalogue" if line.startswith("onoff serve ") else ""
            ports += [port + path for port in re.findall(r"(?:--port |http\.server )(\d+)", line)]
        if re.fullmatch(r"sleep \d+", line):
            line = f"python -c '{WAIT}' {' '.join(ports)}"
        lines.append(line)
    return "\n".join(lines) + "\n"
