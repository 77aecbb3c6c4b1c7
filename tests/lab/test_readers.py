"""Real readers for the results page: dealt out so that nobody is in two parts, and judged for every model alike."""

from itertools import chain as chained

import numpy as np
import pytest
from tests.audit.test_observer import model_of

from onoff.lab.results import readers
from onoff.model.traces import Trace


def test_visits_are_dealt_out_in_turn(tmp_path):
    visits = [[f"s{k}"] * (12 if k % 5 else 3) for k in range(50)]
    (tmp_path / "trace.txt").write_text("\n".join(" ".join(visit) for visit in visits))
    split = readers.Split.of(Trace(tmp_path / "trace.txt"))
    parts = [{visit[0] for visit in part} for part in (split.learnt, split.attacked, split.judged)]
    assert [len(part) for part in parts] == [20, 10, 10]
    assert len(set(chained(*parts))) == 40
    assert split.named(split.judged)[0][0] in {visit[0] for visit in visits if len(visit) == 12}


@pytest.mark.slow(reason="many cases are worked out")
def test_the_table_has_a_line_for_every_model_and_the_bound_below():
    people = model_of(3, 2, 2, 7)
    rng = np.random.default_rng(0)
    visits = people.sample_many(1000, 13, rng).tolist()
    split = readers.Split(people.names, [], [], visits)
    audits = {"theirs": readers.audit_model(people, people, split, "private", 200, lambda line: None)}
    table = readers._table(audits, 3).splitlines()
    assert [line.split("|")[1].strip() for line in table[2:]] == [
        "naive switching",
        "theirs",
        "everything, always",
        "lower bound from the counted laws, any scheme",
    ]
    assert "| 30 (" in table[4]
    cost, least = (float(line.split("|")[2].split("(")[0]) for line in (table[3], table[5]))
    assert least > 10
    assert 10 < cost < 30
