"""What a person at a terminal sees of a message: text, and never a command to the terminal."""

import contextlib
import os
import subprocess
import sys

import pytest
from tests.support.waiting import PATIENCE
from tests.support.world import NAMES, P4, World, listening

import onoff


@pytest.fixture
def world():
    return World()


def all_from(screen):
    """What was written to a terminal that nobody has open any more; it may come in pieces."""
    with contextlib.suppress(OSError):  # so Linux tells the end
        while piece := os.read(screen, 65536):
            yield piece


@pytest.fixture
def shown(tmp_path, world):
    """Runs `onoff get` at a real terminal, and gives all that it prints there; what it waits for goes elsewhere."""
    onoff.MarkovChain(P4, names=NAMES).save(tmp_path / "chain.json")
    given = {"CHAIN": tmp_path / "chain.json", "JOURNAL": tmp_path / "journal", "SCHEME": "greedy"}

    def run(*arguments):
        environment = os.environ | {f"ONOFF_{name}": str(value) for name, value in given.items()}
        screen, terminal = os.openpty()
        try:
            command = [sys.executable, "-c", "from onoff.cli import main; main()", "get", *arguments]
            subprocess.run(
                command, env=environment, stdout=terminal, stderr=subprocess.DEVNULL, check=True, timeout=PATIENCE
            )
        finally:
            os.close(terminal)
            seen = b"".join(all_from(screen))
            os.close(screen)
        return seen.decode().replace("\r\n", "\n")

    with listening(world) as server:
        given["SERVER"] = server.url
        yield run


def test_a_publisher_cannot_command_the_terminal(shown, world):
    """Colours, titles, the cursor, a bell, C1 controls, reversed text: none of it arrives."""
    hostile = "good\n\x1b[31mred\x1b]0;title\x07\x1b[2J\x9b1m\u202eevil\u202c\x00 [bold]tag[/bold]\tend"
    world.publish("beta", hostile.encode())
    seen = shown("beta")
    assert not {"\x1b", "\x07", "\x9b", "\x00", "\u202e", "\u202c"} & set(seen)
    assert "good\n[31mred]0;title[2J1mevil [bold]tag[/bold]" in seen


def test_what_is_no_text_is_shown_as_far_as_it_goes(shown, world):
    world.publish("beta", b"\xff\xfe half")
    assert "\ufffd\ufffd half" in shown("beta")
