"""What an operator may watch of a gateway: it counts what servers see and tells nothing of what is wanted."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.gateway.test_web import city
from tests.support.gateway import Local, gateway
from tests.support.ports import reserved_port
from tests.support.waiting import until

from onoff.gateway.metrics import ailments
from onoff.server.http import Metrics

ROOT = Path(__file__).parents[2]
STOPS = ("Central", "Harbour", "Lake", "Museum")
CLOCKS = re.compile(r".*(_seconds|_created|_bytes).*")
"""Times of day, how long things took, and sizes of files that hold times."""


def scraped(local: Local) -> dict[tuple[str, str], float]:
    answer = local.get("/metrics", local.app_token)
    assert (answer.status, answer.headers["content-type"][:10]) == (200, "text/plain")
    return {
        (sample.name, str(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def test_sources_latencies_and_files_are_told(tmp_path: Path) -> None:
    with city(tmp_path, broken={"Lake"}) as (local, _):
        local.turn(private=False)
        local.get("/v1/sources/Museum")
        found = scraped(local)
        assert found["onoff_gateway_private", "[]"] == 0
        assert found["onoff_gateway_queries_total", "[]"] == 1
        assert found["onoff_gateway_seconds_count", "[('of', 'query')]"] == 1
        assert found["onoff_gateway_seconds_count", "[('of', 'refresh')]"] == 1
        assert found["onoff_gateway_refreshes_total", "[]"] == 1
        assert found["onoff_gateway_source_bytes", "[('source', 'Museum')]"] == len("tram from Museum")
        assert found["onoff_gateway_source_failed", "[('source', 'Lake')]"] == 1
        assert found["onoff_gateway_source_failed", "[('source', 'Museum')]"] == 0
        assert found["onoff_gateway_file_bytes", "[('file', 'journal')]"] > 0
        assert found["onoff_gateway_well", "[]"] == found["onoff_gateway_ready", "[]"] == 1


def test_no_figure_depends_on_what_is_wanted(tmp_path: Path) -> None:
    told = []
    for number, wanted in enumerate((["Museum"] * 3, ["Central", "Lake"], [])):
        with city(tmp_path / str(number)) as (local, _):
            for stop in wanted:  # while ON, and read here
                assert local.get(f"/v1/sources/{stop}", local.app_token).status == 200
            lines = {key: value for key, value in scraped(local).items() if not CLOCKS.fullmatch(key[0])}
            told.append({(name, re.sub(r"127\.0\.0\.1:\d+", "SITE", labels)): v for (name, labels), v in lines.items()})
    assert told[0] == told[1] == told[2]
    assert len(told[0]) > 8


def test_a_figure_of_what_is_read_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def marks(engine: object) -> list[str]:
        return ["read"] if getattr(engine, "opened", None) else []

    monkeypatch.setattr("onoff.gateway.metrics.ailments", marks)
    with pytest.raises(AssertionError):
        test_no_figure_depends_on_what_is_wanted(tmp_path)


def test_the_app_token_is_needed(tmp_path: Path) -> None:
    with gateway(tmp_path) as local:
        assert local.get("/metrics", "no-token").status == 403
        assert local.send("GET", f"/t/{local.app_token}/metrics").status == 200


def test_health_is_about_threads_and_bugs_and_readiness_about_servers(tmp_path: Path) -> None:
    with gateway(tmp_path) as local:
        assert [local.send("GET", path).status for path in ("/healthz", "/readyz")] == [200, 200]
        assert local.send("GET", "/healthz", {"Origin": "http://elsewhere.example"}).status == 403
        local.engine.board.bug(ValueError("beta"))
        for path in ("/healthz", "/readyz"):
            answer = local.send("GET", path)
            assert (answer.status, "ValueError" in answer.json["title"], b"beta" in answer.body) == (503, True, False)
    until(lambda: any("has ended" in each for each in ailments(local.engine)))


def test_a_gateway_without_a_server_is_well_and_not_ready(tmp_path: Path) -> None:
    with reserved_port() as port, gateway(tmp_path, url=f"http://127.0.0.1:{port}") as local:
        assert local.send("GET", "/healthz").json == {"status": "well"}
        assert "a server does not answer" in local.send("GET", "/readyz").json["title"]


def test_the_dashboard_draws_what_is_there(tmp_path: Path) -> None:
    board = json.loads((ROOT / "deploy" / "dashboard.json").read_text())
    asked = {
        name for panel in board["panels"] for t in panel["targets"] for name in re.findall(r"onoff_\w+", t["expr"])
    }
    with city(tmp_path) as (local, _):
        there = {name for name, _ in scraped(local)}
    server = {family.name + "_total" for family in text_string_to_metric_families(Metrics().render().decode())}
    assert {name for name in asked if name.startswith("onoff_gateway")} <= there
    assert {name for name in asked if not name.startswith("onoff_gateway")} <= server
    assert len(asked) > 12
