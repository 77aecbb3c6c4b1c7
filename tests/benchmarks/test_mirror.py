"""The bytes that the benchmark of the mirror reports."""

import asyncio

from benchmarks.mirror import OLD_FRAME, PARTS, _bytes_of


def test_a_refresh_takes_the_compressed_changes_and_little_more():
    rows = asyncio.run(_bytes_of(16))
    assert [row["changed"] for row in rows] == [round(part * 16) for part in PARTS]
    for row in rows:
        assert row["frames_before"] == 16 * OLD_FRAME
        assert row["refresh"] <= 1.1 * row["messages_compressed"] + 10_000
        if not row["changed"]:
            assert row["refresh"] < 1000
