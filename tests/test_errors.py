"""Errors: one tree, each with an exit code, a message and a way to mend it."""

from onoff import errors
from onoff.gateway import engine
from onoff.lab import sweep


def test_every_error_belongs_to_the_tree_and_has_a_documented_exit_code():
    kinds = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.OnOffError)]
    assert len(kinds) >= 10
    for kind in kinds:
        assert kind.exit_code in {1, 3, 4, 5}
        assert kind.__name__ in errors.__doc__


def test_kinds_that_parts_have_of_their_own_are_named_too():
    for part in (engine, sweep):
        own = [e for e in vars(part).values() if isinstance(e, type) and issubclass(e, errors.OnOffError)]
        assert own
        assert all(kind.__name__ in errors.__doc__ for kind in own)


def test_hint_is_part_of_the_text():
    assert str(errors.InvalidChain("row 2 sums to 0.9", hint="make it 1")) == "row 2 sums to 0.9 (make it 1)"
    assert str(errors.InvalidChain("row 2 sums to 0.9")) == "row 2 sums to 0.9"


def test_nearest_names_the_closest_known_word():
    assert errors.nearest("gredy", ["full", "greedy"]) == "did you mean 'greedy'?"
    assert errors.nearest("zzz", ["full", "greedy"]) == "known: 'full', 'greedy'"
