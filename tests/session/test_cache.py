"""The tables of a chain: built once, kept within a limit, and on disk only where they are tables."""

import numpy as np
import pytest
from tests.support.typed import as_a

from onoff.model.chain import MarkovChain
from onoff.schemes import design
from onoff.schemes.race import Race
from onoff.session.memories import LastQuery
from onoff.session.session import MOST_TO_LOOK_AT, TableCache
from onoff.tables import files as tablefile
from onoff.tables.table import QueryTable

CHAIN = MarkovChain(np.random.default_rng(3).dirichlet(np.ones(5), size=5))
EVERYTHING = tuple(range(5))


def memory(*sources):
    return LastQuery(CHAIN, sources, sources[0])


def test_a_table_is_built_once():
    tables = TableCache(CHAIN, "greedy")
    assert not tables.has(memory(0, 1))
    first = tables.of(memory(0, 1))
    assert tables.has(memory(0, 1))
    assert tables.of(memory(0, 1)) is first
    assert len(tables) == 1


def test_before_the_first_request_nothing_is_kept():
    """The table of the initial law belongs to no query that could come back."""
    tables = TableCache(CHAIN, "greedy")
    assert tables.of(LastQuery(CHAIN)).cost == 1
    assert len(tables) == 0


def test_the_least_recently_used_are_let_go_beyond_the_limit():
    sizes = [TableCache(CHAIN, "greedy").of(memory(*pair)).nbytes for pair in ((0, 1), (1, 2), (2, 3))]
    tables = TableCache(CHAIN, "greedy", limit_bytes=sum(sizes) - 1)
    oldest, used = tables.of(memory(0, 1)), tables.of(memory(1, 2))
    assert tables.of(memory(0, 1)) is oldest  # used again: the other one is older now
    tables.of(memory(2, 3))
    assert not tables.has(memory(1, 2))
    assert tables.has(memory(0, 1))
    assert tables.has(memory(2, 3))
    assert tables.of(memory(1, 2)) is not used


def test_one_table_is_kept_however_large():
    tables = TableCache(CHAIN, "greedy", limit_bytes=0)
    for pair in ((0, 1), (1, 2)):
        tables.of(memory(*pair))
        assert len(tables) == 1
        assert tables.has(memory(*pair))


def test_a_table_that_two_requests_built_counts_once(monkeypatch):
    """Another thread may have built the same meanwhile; here the building itself asks for it."""
    tables = TableCache(CHAIN, "greedy")
    build = tables._build

    def meanwhile(*rows, **options):
        monkeypatch.setattr(tables, "_build", build)
        tables.of(memory(0, 1))
        return build(*rows, **options)

    monkeypatch.setattr(tables, "_build", meanwhile)
    tables.of(memory(0, 1))
    assert len(tables) == 1
    assert tables._held == tables.of(memory(0, 1)).nbytes


def test_only_the_table_after_everything_goes_to_disk(tmp_path):
    tables = TableCache(CHAIN, "greedy", store=tmp_path)
    tables.of(memory(0, 1))
    assert list(tmp_path.iterdir()) == []
    built = as_a(QueryTable, tables.of(memory(*EVERYTHING)))
    assert len(list(tmp_path.iterdir())) == 1
    found = as_a(QueryTable, TableCache(CHAIN, "greedy", store=tmp_path).of(memory(*EVERYTHING)))
    assert found.as_dict() == built.as_dict()


def test_a_race_has_nothing_to_write_down(tmp_path):
    racing = as_a(Race, TableCache(CHAIN, "race", store=tmp_path).of(memory(*EVERYTHING)))
    assert racing.scheme == "race"
    assert list(tmp_path.iterdir()) == []


def test_whoever_looks_ahead_has_a_file_of_their_own(tmp_path):
    for look in (True, False):
        TableCache(CHAIN, "optimal", store=tmp_path, look_ahead=look).of(memory(*EVERYTHING))
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("chain", "scheme", "looks"),
    [
        (CHAIN, "optimal", True),
        (CHAIN, "auto", True),
        (CHAIN, "greedy", False),
        (MarkovChain(np.eye(MOST_TO_LOOK_AT + 1)), "auto", False),
    ],
    ids=["optimal", "auto", "greedy", "large"],
)
def test_who_looks_ahead(chain, scheme, looks):
    assert TableCache(chain, scheme).look_ahead is looks


# -- what becomes of files -------------------------------------------------------------------------------------


def test_tables_are_kept_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tablefile.default_table_folder().is_relative_to(tmp_path)


def test_a_file_of_another_version_is_not_read(tmp_path, monkeypatch):
    table = as_a(QueryTable, TableCache(CHAIN, "greedy").of(memory(*EVERYTHING)))
    tablefile.save_table(tmp_path / "t.npz", table)
    assert tablefile.load_table(tmp_path / "t.npz", table.rows) is not None
    monkeypatch.setattr(tablefile, "TABLE_FILE_VERSION", tablefile.TABLE_FILE_VERSION + 1)
    assert tablefile.load_table(tmp_path / "t.npz", table.rows) is None


def test_where_nothing_can_be_written_the_table_is_built_all_the_same(tmp_path):
    (tmp_path / "file").write_text("in the way")
    table = TableCache(CHAIN, "greedy", store=tmp_path / "file" / "store").of(memory(*EVERYTHING))
    as_a(QueryTable, table).verify()
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize(
    ("scheme", "given", "first", "others"),
    [("auto", {}, 30.0, 2.0), ("auto", {"budget": 7.0}, 7.0, 7.0), ("optimal", {}, 120.0, 120.0)],
)
def test_the_table_of_the_next_request_has_the_time_that_somebody_waits(monkeypatch, scheme, given, first, others):
    budgets = []
    monkeypatch.setattr(
        "onoff.session.session.design",
        lambda rows, name, **options: budgets.append(options["budget"]) or design(rows, name, **options),  # type: ignore[func-returns-value]
    )
    chain = MarkovChain(np.full((5, 5), 0.1) + 0.5 * np.eye(5))
    tables = TableCache(chain, scheme, **given)
    tables.of(LastQuery(chain, (0, 1, 2, 3, 4), 0))
    tables.of(LastQuery(chain, (0, 1, 3), 0))
    assert budgets == [first, others]
    assert (tables.budget(lasting=True), tables.budget(lasting=False)) == (first, others)
    assert TableCache(chain, "greedy").budget(lasting=True) is None
