"""Logs: every line has its time, libraries are heard only when something is wrong, and states are told once."""

import json
import logging
import re
import subprocess
import sys

from tests.support.logs import LOG_LINE

from onoff.system.logs import Condition

SAYING = """
import logging, sys
from onoff.system.logs import log_to_stderr
log_to_stderr("onoff.server")
for name in ("onoff.server", "onoff.server.feeds", "onoff.client", "httpx2", "uvicorn.error"):
    logging.getLogger(name).info("news of %s", name)
    logging.getLogger(name).warning("warning of %s", name)
    logging.getLogger(name).error("error of %s", name)
"""


def test_every_line_has_a_time_and_libraries_are_quiet_while_all_is_well():
    said = subprocess.run([sys.executable, "-c", SAYING], capture_output=True, text=True, check=True).stderr
    lines = said.splitlines()
    assert all(re.fullmatch(LOG_LINE, line) for line in lines)
    told = [line.partition(": ")[2] for line in lines]
    assert [line for line in told if line.startswith("news")] == ["news of onoff.server", "news of onoff.server.feeds"]
    assert "warning of uvicorn.error" not in told  # one for every malformed request of a stranger
    assert {"warning of httpx2", "warning of onoff.client", "error of uvicorn.error"} <= set(told)


def test_lines_are_json_where_that_is_asked_for():
    saying = SAYING.replace('("onoff.server")', '("onoff.server", "json")')
    saying += 'try: 1 / 0\nexcept ZeroDivisionError: logging.getLogger("onoff.server").exception("a bug: %s", "ü\\n")'
    said = subprocess.run([sys.executable, "-c", saying], capture_output=True, text=True, check=True).stderr
    lines = [json.loads(line) for line in said.splitlines()]
    assert lines[0].keys() == {"time", "level", "logger", "message"}
    assert [line["message"] for line in lines if line["level"] == "INFO"] == [
        "news of onoff.server",
        "news of onoff.server.feeds",
    ]
    assert lines[-1]["message"] == "a bug: ü\n"
    assert "ZeroDivisionError" in lines[-1]["traceback"]


def test_the_package_is_silent_until_somebody_asks_to_hear_it():
    said = "import onoff, logging; logging.getLogger('onoff.client').warning('a fault')"
    assert subprocess.run([sys.executable, "-c", said], capture_output=True, check=True).stderr == b""


def test_a_state_is_told_when_it_changes(caplog):
    caplog.set_level(logging.INFO)
    state = Condition(logging.getLogger("onoff.test"))
    for works in (True, True, False, False, False, True, True, False):
        state.works("works again") if works else state.fails("fails: %s", "reason")
    assert caplog.messages == ["fails: reason", "works again", "fails: reason"]
