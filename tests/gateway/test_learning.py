"""Learning from what was opened while OFF: by consent, and never from what was private."""

import json
from typing import Any

import pytest
from tests.support.gateway import gateway
from tests.support.typed import present
from tests.support.waiting import PATIENCE
from tests.support.world import NAMES, P4

from onoff.cli import run
from onoff.gateway.engine import Engine
from onoff.model.chain import MarkovChain
from onoff.model.origin import about_of

OPEN = ["alpha", "beta", "alpha", "gamma"]
SECRETS: tuple[Any, ...] = ([], ["delta"], ["delta", "delta", "gamma", "beta"])
"""What is read in private after two open requests; the record must be the same whatever it is, but for whether."""


def put_learning(local, **body):
    headers = {"Authorization": f"Bearer {local.token}", "Content-Type": "application/json"}
    return local.send("PUT", "/v1/learning", headers, json.dumps(body).encode())


def read_all(local, secret, times=1):
    """Open requests, and private ones after each two of them."""
    for at, name in enumerate(OPEN * times):
        local.turn(private=False)
        assert local.get(f"/v1/entries/{name}").status == 200
        if at % 2 == 0:
            continue
        local.turn(private=True)
        for hidden in secret:
            assert local.get(f"/v1/entries/{hidden}").status == 200


def recorded(folder, secret, monkeypatch=None, times=1, **options):
    """The bytes of the record after open requests with `secret` ones between them."""
    folder.mkdir()
    with gateway(folder, clock=lambda: 1_700_000_000.0, **options) as local:
        assert put_learning(local, remember=True).status == 200
        read_all(local, secret, times)
    return (folder / "journal.open.jsonl").read_bytes()


def says_nothing_of_private_requests(folder, **options):
    """Whether the record is the same for any private requests between the open ones, and names none of them."""
    records = [recorded(folder / str(at), secret, **options) for at, secret in enumerate(SECRETS)]
    lines = [json.loads(line) for line in records[1].splitlines()]
    named = [line["source"] for line in lines if "source" in line]
    return records[1] == records[2] and named == OPEN and b"delta" not in b"".join(records)


@pytest.mark.slow(reason="programs are started and waited for")
@pytest.mark.parametrize("options", [{}, {"refresh": 3600.0}, {"chain": False}], ids=["asking", "mirror", "no model"])
def test_private_requests_leave_nothing_in_the_record(tmp_path, options):
    assert says_nothing_of_private_requests(tmp_path, **options)


@pytest.mark.slow(reason="programs are started and waited for")
@pytest.mark.parametrize("fault", ["names them", "counts them"])
def test_a_record_that_tells_of_private_requests_is_caught(tmp_path, monkeypatch, fault):
    """The twins: one takes every request for open, one notes each private one."""

    def remember(engine, job, outcome):
        if not job.private or fault == "names them":
            engine.record.opened(engine.names[job.wanted])
        else:
            engine.record._append({"user": "me", "private": True})

    monkeypatch.setattr(Engine, "remember", remember)
    assert not says_nothing_of_private_requests(tmp_path)


def test_nothing_is_remembered_before_it_is_allowed_nor_after(tmp_path):
    with gateway(tmp_path) as local:
        local.turn(private=False)
        local.get("/v1/entries/alpha")
        assert local.get("/v1/learning").json["since"] is None
        assert put_learning(local, remember=True).json["since"] is not None
        local.get("/v1/entries/beta")
        assert local.get("/v1/learning").json["requests"] == 1
        assert local.get("/v1/state").json["learning"]["requests"] == 1
        assert "alpha" not in (tmp_path / "journal.open.jsonl").read_text()
        assert put_learning(local, remember=False).json == {"since": None, "requests": 0, "needed": 100}
        local.get("/v1/entries/gamma")
        assert not list(tmp_path.glob("*open*"))
        assert put_learning(local, remember="yes").status == 422
        assert local.get("/v1/learning", token=local.app_token).status == 403


def learn(capsys, *arguments):
    code = run(["learn", "--from-gateway", "--json", *map(str, arguments)])
    found = json.loads(capsys.readouterr().out)
    return code, found.get("error", found)


def test_a_model_of_others_is_prepared_for_what_was_opened_and_takes_nothing_of_it(tmp_path, capsys):
    """The model is the same whatever was open and private; the session makes the person's law of its own history."""
    others = MarkovChain(P4, names=NAMES, about={"trace": {"users": 30, "requests": 900}})
    others.save(tmp_path / "others.json")
    made = []
    for at, secret in enumerate(SECRETS[1:]):
        recorded(tmp_path / str(at), secret, times=3, refresh=3600.0)
        where = ["--journal", tmp_path / str(at) / "journal", "--around", tmp_path / "others.json"]
        code, found = learn(capsys, *where, "-o", tmp_path / f"{at}.json")
        assert code == 0
        assert found["open_requests"] == 12
        assert found["own_law"] == {"cap": 30.0, "weight": 0.88, "trust": 15.0, "alone": True}
        assert (found["constants_from"], found["advice"]) == ("usual", "stay-on")
        made.append((tmp_path / f"{at}.json").read_bytes())
    assert made[0] == made[1]
    about = about_of(tmp_path / "0.json")
    assert MarkovChain.load(tmp_path / "0.json").digest() == others.digest()
    with gateway(tmp_path / "0", chain=MarkovChain.load(tmp_path / "0.json"), about=about) as local:
        shown = local.get("/v1/state").json["model"]
        assert shown["origin"] == "Learnt from 900 requests of 30 people."


def test_what_cannot_be_learnt_from_is_said_in_one_line(tmp_path, capsys):
    where = ["--journal", tmp_path / "journal"]
    code, error = learn(capsys, *where)
    assert (code, error["message"]) == (3, "the gateway was not told to remember what is opened while OFF")
    with gateway(tmp_path) as local:
        put_learning(local, remember=True)
        read_all(local, [])
    code, error = learn(capsys, *where)
    assert code == 3
    assert error["message"] == "a chain of your own requests alone gives more away than naive switching"
    assert learn(capsys, *where, "--include-private")[0] == 3
    assert learn(capsys, "x.csv", *where)[0] == 3
    assert learn(capsys)[0] == 3
    assert run(["learn"]) == 3


def test_with_consent_the_session_knows_what_the_server_knows_and_says_what_it_told(tmp_path):
    constants = {"cap": 30.0, "weight": 0.8, "trust": 5.0}
    model = MarkovChain(P4, names=NAMES, about={"own_law": constants})
    with gateway(tmp_path, chain=model, scheme="greedy") as local:
        assert put_learning(local, remember=True).status == 200
        local.turn(private=False)
        for name in OPEN * 3:
            assert local.get(f"/v1/entries/{name}").status == 200
        client = present(local.engine.client)
        assert client.status()["history"] == {"open": 12, "private_since": False}
        local.turn(private=True)
        assert local.get("/v1/entries/delta").status == 200
        local.turn(private=False)
        assert local.get("/v1/entries/alpha").status == 200
        assert client.status()["history"] == {"open": 12, "private_since": True}
        assert client.core.session.model != model
        local.engine.request("alpha").result(PATIENCE)
        told = [query.assessment for query in local.engine.log.queries][:14]
        assert [found.bits for found in told] == [0.0] * 14  # the last one drawn from a table of the person's model
        assert [found.naive for found in told[:12]] == [0.0] * 12  # nothing was private yet
        assert told[13].naive > 0
        assert put_learning(local, remember=False).status == 200
        assert client.status()["history"] is None
