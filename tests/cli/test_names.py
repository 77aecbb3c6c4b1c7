"""Files of names: the same whatever the locale and the editor, and refused by name where they cannot be read."""

import pytest

from onoff.cli.options import read_names
from onoff.errors import InvalidInput


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_one_name_a_line(tmp_path, encoding, end):
    (tmp_path / "names").write_bytes(end.join(["caf\u00e9", "", "  two words ", "z", ""]).encode(encoding))
    assert read_names(tmp_path / "names") == ["caf\u00e9", "two words", "z"]


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InvalidInput, match=r"cannot read .*nowhere: No such file"):
        read_names(tmp_path / "nowhere")
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    with pytest.raises(InvalidInput, match=r"cannot read .*latin: byte 3 is not UTF-8"):
        read_names(tmp_path / "latin")
