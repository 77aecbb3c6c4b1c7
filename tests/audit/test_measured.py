"""The sentence that stands wherever zero bits are said; files are tested with the command that writes them."""

import json

import pytest
from tests.support.chains import P2

from onoff.audit.traces import save_measured
from onoff.cli import run
from onoff.model.origin import about_of, measured_of, zero_in_words


def test_zero_is_never_said_alone():
    assert measured_of(P2.about) is None
    assert zero_in_words(None).startswith("Not measured")
    measured = {"bits": 0.0213, "stderr": 0.0101, "after": 10, "naive_bits": 1.964, "users": 1000}
    assert zero_in_words(measured) == (
        "0 bits if you behave like the model; measured on 1000 real readers: 0.021 ± 0.010 bits after 10 OFF requests "
        "(naive switching: 1.96)."
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_file_that_an_editor_marked_as_utf_8_is_a_file_like_any_other(tmp_path, encoding, capsys):
    path = tmp_path / "chain.json"
    path.write_text(json.dumps({"transition": [[0.5, 0.5], [0.2, 0.8]]}), encoding=encoding)
    assert measured_of(about_of(path)) is None
    for command in (["doctor", "--server", "http://127.0.0.1:1", "--chain"], ["plot"], ["bounds"]):
        assert run([*command, str(path)]) == (4 if "doctor" in command else 0), capsys.readouterr().err
    save_measured(path, {"bits": 0.5})
    assert measured_of(about_of(path)) == {"bits": 0.5}
