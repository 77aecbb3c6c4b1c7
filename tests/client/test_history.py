"""What a client keeps of open requests: by consent, of one server, until the first private one."""

import json
import sqlite3
import stat

import numpy as np
import pytest
from tests.support.clients import Client
from tests.support.typed import as_a, present

from onoff.audit.logs import URL, Recorder
from onoff.cli import run
from onoff.client.journal import MemoryJournal
from onoff.errors import InvalidInput
from onoff.model.chain import MarkovChain
from onoff.model.people import MOST_OPEN, OpenHistory, own_law_of
from onoff.session.filter import ModelFilter
from onoff.upstream import Doubt

NAMES = ["alpha", "beta", "gamma", "delta"]
CONSTANTS = {"cap": 30.0, "weight": 0.8, "trust": 5.0, "held_out_bits": 1.0, "population_bits": 2.0}
EVERYBODY = MarkovChain(np.full((4, 4), 0.25), NAMES, about={"own_law": CONSTANTS})


class Clients:
    """Clients of one journal and one server."""

    def __init__(self, path):
        self.path, self.recorder = path, Recorder(tuple(NAMES), path)

    def __call__(self, model=EVERYBODY, url=URL, journal=None):
        recorder = self.recorder if journal is None else Recorder(tuple(NAMES))
        made = self.path if journal is None else journal
        return Client(url, model, made, "greedy", transport=recorder, mirror=False, background=False, tick=0)


@pytest.fixture
def asked(tmp_path):
    return Clients(tmp_path / "journal")


def ask(client, *names, private=False):
    return [tuple(NAMES[x] for x in client.get(name, private=private).sent.sources) for name in names]


def kept(path):
    with sqlite3.connect(path) as database:
        text = database.execute("SELECT history FROM request").fetchone()[0]
    database.close()
    return json.loads(text) if text else None


def test_open_requests_are_plain_and_kept_over_restarts_until_the_first_private_one(asked):
    with asked() as client:
        client.remember()
        assert ask(client, "alpha", "beta") == [("alpha",), ("beta",)]
    with asked() as client:
        client.remember()  # a second time: as it was
        assert ask(client, "alpha") == [("alpha",)]
        assert client.status()["history"] == {"open": 3, "private_since": False}
        model = own_law_of(EVERYBODY, present(client.core.history), b"")
        after_alpha = model.weights @ np.stack([model.law(z, model.context_of([0])) for z in range(model.types)])
        assert client.foreseen == pytest.approx(after_alpha.max())
    assert kept(asked.path)["asked"] == ["alpha", "beta", "alpha"]
    with asked() as client:
        assert ask(client, "delta", private=True) == [tuple(NAMES)]
        assert client.foreseen is None  # what follows is hidden
        ask(client, "gamma", "gamma")
    assert kept(asked.path)["asked"] == ["alpha", "beta", "alpha"]  # no private one, and nothing after it
    assert stat.S_IMODE(asked.path.stat().st_mode) == 0o600


def test_the_model_is_the_persons_from_the_first_private_request_on_and_carried_on(asked):
    with asked() as client:
        client.remember()
        ask(client, *["alpha"] * 8)
        ask(client, "beta", private=True)
        seed = bytes.fromhex(json.loads(present(client.core.record).history)["seed"])
        made = own_law_of(EVERYBODY, OpenHistory(URL, 4, (0,) * 8), seed)
        assert client.core.session.model == made
        ask(client, "alpha")
        before = as_a(ModelFilter, client.core.session.memory)
    with asked() as client:
        after = as_a(ModelFilter, client.core.session.memory)
        assert client.core.doubt is None
        assert client.core.session.model == made
        assert (after.belief.toarray() == before.belief.toarray()).all()
        assert after.secret_row == before.secret_row
        assert client.expected_cost(private=False) is not None


def test_a_history_begins_before_the_first_request_or_not_at_all(asked):
    with asked() as client:
        ask(client, "alpha")
        with pytest.raises(InvalidInput, match="requests were made before"):
            client.remember()
        assert client.status()["history"] is None
    assert kept(asked.path) is None
    plain = MarkovChain(np.full((4, 4), 0.25), NAMES)
    with asked(plain, journal=MemoryJournal()) as client, pytest.raises(InvalidInput, match="cannot take in"):
        client.remember()


def test_a_lost_journal_is_a_doubt_and_no_history(asked):
    with asked() as client:
        client.remember()
        ask(client, "alpha")
        ask(client, "beta", private=True)
    asked.path.unlink()
    with asked() as client:
        assert client.core.doubt is Doubt.NEW
        assert client.status()["history"] is None
        assert ask(client, "alpha") == [tuple(NAMES)]


def test_what_another_server_saw_is_no_history_of_this_one(asked):
    with asked(url="http://there.invalid") as client:
        client.remember()
        ask(client, "alpha", "alpha")
    with asked() as client:
        assert client.status()["history"] is None
        assert ask(client, "alpha") == [tuple(NAMES)]


def test_it_is_bounded(asked):
    with asked(journal=MemoryJournal()) as client:
        client.remember()
        ask(client, *["alpha"] * (MOST_OPEN + 3))
        assert client.status()["history"] == {"open": MOST_OPEN, "private_since": False}


def test_another_model_while_all_is_open_takes_the_history_over_by_name(asked):
    with asked() as client:
        client.remember()
        ask(client, "alpha", "delta")
    turned = MarkovChain(np.full((4, 4), 0.25), NAMES[::-1], about={"own_law": CONSTANTS})
    with asked(turned) as client:
        assert present(client.core.history).asked == (3, 0)
        client.get("delta", private=False)
        assert client.status()["history"] == {"open": 3, "private_since": False}


def test_forgetting_removes_it_and_asks_for_everything_until_on(asked):
    with asked() as client:
        client.remember()
        ask(client, "alpha", "alpha")
        ask(client, "beta", private=True)
        client.forget()
        assert client.core.session.model == EVERYBODY
        assert ask(client, "alpha") == [tuple(NAMES)]
    assert kept(asked.path) is None


def test_forgetting_lasts_though_nothing_was_asked_since(asked):
    with asked() as client:
        client.remember()
        ask(client, "alpha", "alpha")
        ask(client, "beta", private=True)
        client.forget()
    with asked() as client:
        assert client.status()["history"] is None
        assert ask(client, "alpha") == [tuple(NAMES)]


def test_reset_wipes_it(asked, capsys):
    with asked() as client:
        client.remember()
        ask(client, "alpha")
    for end in (".open.json", ".open.jsonl"):
        asked.path.with_name(asked.path.name + end).write_bytes(b"alpha")
    assert run(["state", "reset", "--journal", str(asked.path), "--yes"]) == 0
    assert not asked.path.exists()
    assert b"alpha" not in b"".join(file.read_bytes() for file in asked.path.parent.iterdir() if file.is_file())
