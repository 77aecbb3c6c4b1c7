"""The registry: names, options, what may be given, and nothing imported before it is asked for."""

import inspect
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from tests.support.typed import as_a

from onoff.errors import InvalidChain, Stopped, UnknownScheme
from onoff.lab import families
from onoff.model.rows import Rows
from onoff.schemes import LEAK, SCHEMES, design, find_scheme
from onoff.schemes.race import Race
from onoff.tables.table import QueryTable

P = [[0.75, 0.25], [0.25, 0.75]]


def test_the_names_are_those_of_the_command_line():
    assert tuple(SCHEMES) == ("full", "single", "greedy", "enumerated", "optimal", "race", "auto")


def test_a_matrix_rows_and_anything_that_has_rows_give_the_same_table():
    class Chain:
        transition = P

        def rows(self):
            return Rows.of(P)

    wanted = design(P, "single").as_dict()
    for given in (np.array(P), Rows.of(P), Chain()):
        assert design(given, "single").as_dict() == wanted


@pytest.mark.parametrize(("name", "hint"), [("gredy", "'greedy'"), ("Full", "'full'"), ("xyzzy", "known: 'full'")])
def test_an_unknown_scheme_names_the_nearest(name, hint):
    with pytest.raises(UnknownScheme, match=f"no scheme '{name}'") as error:
        design(P, name)
    assert hint in (error.value.hint or "")


def test_an_unknown_option_is_named():
    with pytest.raises(UnknownScheme, match="scheme 'full' has no option 'c'"):
        design(P, "full", c=1)


def test_a_matrix_that_is_none_is_refused():
    with pytest.raises(InvalidChain, match="row 1"):
        design([[0.5, 0.5], [0.5, 0.6]], "full")


@pytest.mark.parametrize("name", ["full", "single", "greedy", "enumerated"])
def test_modules_carry_their_name_and_label_their_tables(name):
    module = sys.modules[find_scheme(name).build.__module__]
    assert name == module.NAME
    assert design(P, name).scheme == name


@pytest.mark.parametrize("scheme", [*SCHEMES.values(), LEAK], ids=str)
def test_the_record_of_a_scheme_says_what_its_module_does(scheme):
    """Options, the default budget, whether it gives a table and whether it takes the future."""
    parameters = inspect.signature(scheme.build).parameters
    keyword = {name: p for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    of_leak = {"leak", "ratio", "weights"}  # with these `design` calls the module of LEAK instead
    assert set(scheme.options) - (set() if scheme is LEAK else of_leak) == set(keyword)
    assert scheme.budget == (keyword["budget"].default if "budget" in keyword else None)
    assert scheme.looks_ahead == ("future" in keyword)
    built = design(P, leak=0.5) if scheme is LEAK else design(P, scheme.name)
    assert isinstance(built, QueryTable if scheme.gives_table else QueryTable | Race)


def test_a_search_that_is_told_to_stop_gives_what_it_has():
    rows = families.grid(6, 6)
    asked: list[Any] = []
    for stop in (lambda: True, lambda: len(asked) > 50 or asked.append(1)):  # type: ignore[func-returns-value]
        table = as_a(QueryTable, design(rows, "optimal", stop=stop, budget=600.0))
        table.verify()
        assert table.cost <= design(rows, "greedy").cost
    assert design(rows, "auto", stop=lambda: True).cost <= design(rows, "greedy").cost


def test_a_process_that_shuts_down_gets_no_table(monkeypatch):
    monkeypatch.setattr("onoff.schemes.is_shutting_down", lambda: True)
    with pytest.raises(Stopped):
        design(families.grid(6, 6), "optimal")


def test_tables_carry_a_proven_lower_bound():
    full, greedy = design(P, "full"), design(P, "greedy")
    assert full.lower_bound == greedy.lower_bound == 1.5
    assert greedy.optimal
    assert not full.optimal


def test_the_registry_loads_numpy_at_most():
    program = """
import sys
import onoff.schemes
heavy = {"scipy", "highspy", "numba", "onoff.schemes.greedy", "onoff.schemes.full"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True)
