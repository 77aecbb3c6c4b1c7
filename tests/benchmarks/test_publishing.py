"""The publishing of the server's benchmark does what it counts."""

from functools import partial

from benchmarks.publishing import Publishing, Put, Replace
from tests.support.waiting import until

from onoff.server import running
from onoff.server.http import Count


def test_it_counts_what_was_acknowledged_and_what_was_not():
    with running(["a", "b"], frame_size=512) as server:
        port = int(server.url.rpartition(":")[2])
        paths = [f"/v1/sources/{name}/message" for name in "ab"]
        with Publishing(partial(Put, port, paths, server.token)) as good:
            until(lambda: server.metrics.total(Count.PUBLISHED) >= 20)
        assert good.errors == 0
        assert good.per_second > 0
        assert server.publish("a", b"the next") > 1
        with Publishing(partial(Put, port, paths, "wrong")) as bad:
            until(lambda: server.metrics.total(Count.PUBLISH_REFUSED))
        assert bad.errors > 0
        assert bad.per_second == 0


def test_files_are_replaced_whole(tmp_path):
    for name in "01":
        (tmp_path / name).write_bytes(b"x" * 24)
    with Publishing(partial(Replace, tmp_path, ["0", "1"], 16)) as publishing:
        until(lambda: all((tmp_path / name).read_bytes()[:1] == b"m" for name in "01"))
    assert publishing.errors == 0
    assert publishing.per_second > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    for name in "01":
        content = (tmp_path / name).read_bytes()
        assert content.startswith(b"message ")
        assert len(content) == 24
        assert content.endswith(b"x" * 8)
