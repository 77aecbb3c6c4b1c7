"""Every source file has its mirror among the tests, or stands in a list with a reason; the list holds nothing else."""

from pathlib import Path

import onoff

SOURCE = Path(onoff.__file__).parent
TESTS = Path(__file__).parent

# source file: the test that covers it, and why it is not the mirror
ELSEWHERE = {
    "audit/cases.py": ("audit/test_traces.py", "the readers of the audit of traces"),
    "audit/counted.py": ("audit/test_traces.py", "what the audit of traces counts"),
    "audit/guesses.py": ("audit/test_traces.py", "the attackers of the audit of traces"),
    "audit/recorder.py": ("audit/test_logs.py", "records for the audit of logs, and is tested by it"),
    "cli/audit_chain.py": ("cli/test_audit.py", "one of four commands in one group"),
    "cli/audit_explain.py": ("cli/test_audit.py", "one of four commands in one group"),
    "cli/audit_log.py": ("cli/test_audit.py", "one of four commands in one group"),
    "cli/audit_run.py": ("cli/test_audit.py", "one of four commands in one group"),
    "cli/catalogue.py": ("cli/test_serve.py", "asks the server that is started there"),
    "cli/doctor.py": ("cli/test_connection.py", "looks at the connection"),
    "cli/gateway.py": ("gateway/test_run.py", "starts the gateway's process"),
    "cli/publish.py": ("cli/test_serve.py", "publishes to the server that is started there"),
    "cli/state.py": ("cli/test_connection.py", "looks at the client's state"),
    "client/builder.py": ("client/test_client.py", "builds tables for a client"),
    "client/commands.py": ("client/test_core.py", "what the core asks for; data only"),
    "client/database.py": ("client/test_journal.py", "the journal's file"),
    "client/doubt.py": ("client/test_core.py", "what the core may doubt; an enumeration"),
    "client/driver.py": ("client/test_client.py", "carries out what the core asks for"),
    "client/exchange.py": ("client/test_core.py", "what the core sends and gets; data only"),
    "client/forecast.py": ("client/test_reading.py", "what private requests cost"),
    "client/message.py": ("client/test_client.py", "what a client returns"),
    "client/mirrored.py": ("client/test_mirror.py", "keeps the mirror up to date"),
    "client/record.py": ("client/test_core.py", "what the core keeps; data only"),
    "client/refreshing.py": ("client/test_mirror.py", "what a refresh asks and reads"),
    "client/retrying.py": ("client/test_core.py", "how often the core asks"),
    "client/runner.py": ("client/test_client.py", "carries out a client's requests"),
    "client/setup.py": ("client/test_client.py", "what a client is made from"),
    "client/unmodelled.py": ("client/test_servers.py", "a client without a model"),
    "experiments/msnbc.py": ("experiments/test_results.py", "a section of the results page"),
    "experiments/page.py": ("experiments/test_results.py", "the text of the results page"),
    "experiments/paper/errata.py": ("paper/test_items.py", "claims, all of which are checked there"),
    "experiments/paper/printed.py": ("paper/test_items.py", "the paper's numbers, as printed"),
    "experiments/paper/tables.py": ("paper/test_items.py", "claims, all of which are checked there"),
    "experiments/paper/theorems.py": ("paper/test_items.py", "claims, all of which are checked there"),
    "experiments/paper/twosources.py": ("paper/test_items.py", "claims, all of which are checked there"),
    "gateway/bodies.py": ("gateway/test_app.py", "what routes take, tested through them"),
    "gateway/board.py": ("gateway/test_engine.py", "counts the engine's changes"),
    "gateway/estimate.py": ("gateway/test_engine.py", "what the engine says of the next request"),
    "gateway/events.py": ("gateway/test_app.py", "a route, tested through it"),
    "gateway/jobs.py": ("gateway/test_engine.py", "the engine's queue"),
    "gateway/meter.py": ("gateway/test_engine.py", "counts what the engine sends"),
    "gateway/presence.py": ("gateway/test_app.py", "says whether the server is there"),
    "gateway/marks.py": ("gateway/test_refresher.py", "what is new in the mirror"),
    "gateway/responses.py": ("gateway/test_app.py", "what routes answer, tested through them"),
    "gateway/seen.py": ("gateway/test_app.py", "the log that the gateway serves"),
    "gateway/setup.py": ("gateway/test_engine.py", "what an engine is made from"),
    "gateway/snapshot.py": ("gateway/test_engine.py", "what is seen of an engine"),
    "gateway/upstream.py": ("gateway/test_engine.py", "how the engine fetches messages"),
    "gateway/weighing.py": ("gateway/test_engine.py", "what the engine does after a message is handed over"),
    "model/certificate.py": ("model/test_checker.py", "what a certificate states; the checker says whether it is so"),
    "model/context_laws.py": ("model/test_contexts.py", "the laws of a model with contexts"),
    "model/context_tree.py": ("model/test_contexts.py", "how a model with contexts counts"),
    "model/files.py": ("model/test_chain.py", "a chain's file"),
    "model/sparse.py": ("model/test_chain.py", "a sparse chain, or the sparse laws of a model"),
    "model/sources.py": ("model/test_chain.py", "the names of a chain's sources"),
    "server/exchange.py": ("server/test_app.py", "one request and its answer"),
    "server/fetch.py": ("server/test_feeds.py", "how a feed is fetched"),
    "server/maintenance.py": ("cli/test_serve.py", "what the command does to a store, tested through it"),
    "server/metrics.py": ("server/test_app.py", "what the server counts"),
    "schemes/search/ahead.py": ("schemes/test_optimal.py", "how the search looks ahead"),
    "schemes/search/search.py": ("schemes/test_optimal.py", "the rounds of the search"),
    "schemes/search/proofs.py": ("schemes/test_optimal.py", "what the search proves, checked with its tables"),
    "server/docs_page.py": ("server/test_openapi.py", "the page that shows the description of the server"),
    "server/shelf.py": ("server/test_answer.py", "the messages that answers are made of"),
    "server/sqlite.py": ("server/test_store.py", "every store passes the tests of the one contract"),
    "server/sqlite_writer.py": ("server/test_store.py", "commits are tested through the store that makes them"),
    "server/settling.py": ("server/test_store.py", "tells publishers what became of a publish"),
    "server/valkey_publishing.py": ("server/test_store.py", "every store passes the tests of the one contract"),
    "server/valkey_scripts.py": ("server/test_store.py", "every store passes the tests of the one contract"),
    "server/valkey_values.py": ("server/test_store.py", "every store passes the tests of the one contract"),
    "session/bayes.py": ("session/test_session.py", "a memory of a session"),
    "session/last_query.py": ("session/test_session.py", "a memory of a session"),
    "session/memory.py": ("session/test_session.py", "what every memory of a session does"),
    "tables/picture.py": ("cli/test_design.py", "the picture that `design --picture` draws"),
    "wire/answer.py": ("wire/test_wire.py", "one of the forms on the wire, tested side by side"),
    "wire/catalogue.py": ("wire/test_wire.py", "one of the forms on the wire, tested side by side"),
    "wire/http.py": ("wire/test_wire.py", "one of the forms on the wire, tested side by side"),
    "wire/query.py": ("wire/test_wire.py", "one of the forms on the wire, tested side by side"),
    "wire/refusal.py": ("wire/test_wire.py", "one of the forms on the wire, tested side by side"),
}
MOVED = {"experiments/paper": "paper"}
"""Folders whose mirror has another name."""


def sources() -> set[str]:
    """Every file with code of its own; a package's `__init__` names what its modules hold."""
    return {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if path.name not in {"__init__.py", "__main__.py"}
    }


def mirror(source: str) -> Path:
    folder, _, name = source.rpartition("/")
    return TESTS / MOVED.get(folder, folder) / f"test_{name}"


def without_mirror() -> set[str]:
    return {source for source in sources() if not mirror(source).exists()}


def test_every_source_file_has_its_mirror_or_a_reason() -> None:
    assert sorted(without_mirror() - ELSEWHERE.keys()) == []


def test_the_list_names_no_file_that_is_gone_or_has_a_mirror_by_now() -> None:
    assert sorted(ELSEWHERE.keys() - without_mirror()) == []


def test_the_tests_that_the_list_names_exist() -> None:
    assert [test for test, _ in ELSEWHERE.values() if not (TESTS / test).exists()] == []


def test_a_file_without_a_mirror_is_seen() -> None:
    assert mirror("model/rows.py").exists()
    assert mirror("experiments/paper/figures.py") == TESTS / "paper" / "test_figures.py"
    assert not mirror("model/nothing.py").exists()
