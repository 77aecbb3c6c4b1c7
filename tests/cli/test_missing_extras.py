"""Without an optional part, a command that needs it says which one, before it does or writes anything."""

import subprocess
import sys

import pytest
from tests.support.waiting import PATIENCE

SPEC = """
schemes = ["greedy"]
[[chain]]
family = "sticky"
n = [4]
"""


@pytest.mark.slow(reason="programs are started and waited for")
@pytest.mark.parametrize(
    ("absent", "extra", "command"),
    [
        ("valkey", "valkey", "catalogue --store redis://127.0.0.1:1/0 --add a"),
        ("matplotlib", "plot", "design chain.json --picture table.png"),
        ("matplotlib", "plot", "reproduce --out figures"),
        ("matplotlib", "plot", "audit explain chain.json --pattern ON --html report.html"),
        ("pyarrow", "sweep", "sweep spec.toml -o rows.parquet"),
        ("distributed", "sweep", "sweep spec.toml -o rows.parquet --cluster tcp://127.0.0.1:1"),
    ],
)
def test_it_is_named(absent, extra, command, tmp_path):
    (tmp_path / "chain.json").write_text("[[0.8, 0.2], [0.3, 0.7]]")
    (tmp_path / "spec.toml").write_text(SPEC)
    without = f"import sys; sys.modules[{absent!r}] = None; from onoff.cli import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", without, *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (run.returncode, run.stdout) == (1, ""), run.stderr
    assert absent in run.stderr.replace("Dask", "distributed")
    assert f"pip install 'onoff-privacy[{extra}]'" in run.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chain.json", "spec.toml"]
