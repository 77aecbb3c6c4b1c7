"""The mirror: what a refresh brings, what is kept, what damage makes of it, and that reading leaves no trace."""

import gzip
import random
import stat
from dataclasses import replace

import pytest
from tests.support import others
from tests.support.world import NAMES, Direct, World

from onoff import wire
from onoff.client import Hooks, Journal, MemoryMirror, Mirror, MirrorClient
from onoff.client.stores import delete_mirror
from onoff.errors import BadAnswer, MirrorEmpty, MirrorError, ServerUnreachable, UnknownSource
from onoff.upstream.message_server import NoChanges
from onoff.upstream.transport import Reply

URL = "http://server.test"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "mirror"


def client_of(world, mirror=None, fault=lambda request: None, **options):
    hooks = Hooks(
        sleep=lambda seconds: None, **{name: options.pop(name) for name in ("now", "clock") if name in options}
    )
    return MirrorClient(URL, mirror, transport=Direct(world, fault), hooks=hooks, **{"attempts": 2, **options})


def paths(world):
    return [path.partition("?")[0] for _, path, _, _ in world.requests]


# -- refreshing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "in a file"])
def test_a_refresh_brings_what_changed_and_nothing_else(path, on_disk):
    world = World()
    with client_of(world, path if on_disk else None) as client:
        first = client.refresh()
        assert (first.edition, first.changed) == (4, NAMES)
        assert client.copy("beta") == b"first of beta"
        world.publish("beta", b"second of beta")
        world.publish("delta", b"second of delta")
        second = client.refresh()
        assert (second.edition, second.changed) == (6, ("beta", "delta"))
        assert [client.copy(name).payload for name in NAMES] == [world.messages[name].body for name in NAMES]
        assert (client.copy("beta").version, client.copy("beta").edition) == (2, 6)
        third = client.refresh()
        assert (third.edition, third.changed) == (6, ())
        assert 0 < third.received < 200 < first.received
    assert paths(world) == [wire.CATALOGUE_PATH] + [wire.CHANGES_PATH] * 3
    assert all(headers == wire.CHANGES_HEADERS for _, path, headers, _ in world.requests[1:])


def test_reading_asks_nobody_and_leaves_no_trace(path):
    world = World()
    with client_of(world, path) as client:
        client.refresh()
        before = len(world.requests), files(path)
        for name in (*NAMES, "gamma", "gamma"):
            assert client.copy(name) == f"first of {name}".encode()
        assert {state.name: state.version for state in client.sources()} == dict.fromkeys(NAMES, 1)
        assert (len(world.requests), files(path)) == before


def files(path):
    return {file.name: file.read_bytes() for file in path.parent.iterdir()}


def test_what_was_fetched_is_there_after_a_restart(path):
    world = World()
    with client_of(world, path) as client:
        client.refresh()
        edition = client.mirror.edition
    world.requests.clear()
    with client_of(world, path) as client:
        assert client.mirror.edition == edition == world.editions[-1]
        assert client.copy("gamma") == b"first of gamma"
        assert world.requests == []
        assert client.refresh().changed == ()
    (asked,) = (path for _, path, _, _ in world.requests)
    assert asked == wire.changes_target(edition)


def test_another_life_or_catalogue_of_the_server_brings_everything(path):
    world = World()
    with client_of(world, path) as client:
        client.refresh()
        world.begin_life()
        assert client.refresh().changed == NAMES
        world.forget("alpha")
        assert client.refresh().changed == NAMES[1:]
        assert (client.copy("alpha").version, client.copy("alpha").payload) == (0, b"")
        renamed = ("zeta", *reversed(NAMES))
        world.rename(renamed)
        assert client.refresh().changed == ("delta", "gamma", "beta")
        assert [state.name for state in client.sources()] == list(renamed)
        assert client.copy("gamma") == b"first of gamma"
        with pytest.raises(UnknownSource):
            client.copy("nobody")


def test_a_server_whose_catalogue_never_rests_is_given_up():
    world = World()

    def rename(request):
        if request.path.startswith(wire.CHANGES_PATH):
            world.rename(tuple(reversed(world.catalogue.names)))

    with client_of(world, None, rename) as client, pytest.raises(BadAnswer, match="changes all the time"):
        client.refresh()


def test_before_the_first_refresh_there_is_nothing_to_read():
    with client_of(World()) as client:
        assert (client.age, client.sources(), client.mirror.size) == (None, (), 0)
        with pytest.raises(MirrorEmpty, match="nothing was fetched yet"):
            client.copy("alpha")


@pytest.mark.parametrize("status", [404, 405])
def test_a_server_of_an_older_version_is_named(status):
    reply = Reply(status, (), b"")
    with (
        client_of(World(), None, lambda request: reply if request.path != wire.CATALOGUE_PATH else None) as client,
        pytest.raises(NoChanges, match="does not tell what changed"),
    ):
        client.refresh()


# -- replies -----------------------------------------------------------------------------------------------


def changes_of(world, **changes):
    reply = world.answer("GET", wire.changes_target(None), (), b"")
    return replace(reply, **changes)


TYPE = (("content-type", wire.CHANGES_TYPE),)
ZIPPED = (*TYPE, ("content-encoding", "gzip"))


def bad_replies():
    body = changes_of(World()).body
    plain = gzip.decompress(body)
    yield "cut off", Reply(200, ZIPPED, body[:-9]), "end too early"
    yield "cut off, plain", Reply(200, TYPE, plain[:-1]), "end too early"
    yield "damaged", Reply(200, TYPE, plain[:-1] + b"x"), "damaged"
    yield "longer", Reply(200, TYPE, plain + b"x"), "after their end"
    yield "two members", Reply(200, ZIPPED, body + body), "after their end"
    yield "not gzip", Reply(200, ZIPPED, plain), "cannot be decompressed"
    yield "another encoding", Reply(200, (*TYPE, ("content-encoding", "br")), plain), "encoding that was not asked for"
    yield "another kind", Reply(200, (("content-type", "text/html"),), plain), "another kind"
    yield "empty", Reply(200, TYPE, b""), "end too early"


BAD = {name: case for name, *case in bad_replies()}


@pytest.mark.parametrize(("reply", "says"), BAD.values(), ids=BAD)
def test_a_reply_that_is_not_whole_changes_nothing(path, reply, says):
    world, bad = World(), None
    with client_of(world, path, lambda request: bad if request.path != wire.CATALOGUE_PATH else None) as client:
        client.refresh()
        edition = client.mirror.edition
        world.publish("beta", b"second of beta")
        bad = reply
        with pytest.raises(BadAnswer, match=says):
            client.refresh()
        assert (client.mirror.edition, client.copy("beta").payload) == (edition, b"first of beta")
        bad = None
        assert client.refresh().changed == ("beta",)


def test_the_same_request_is_sent_again_after_a_failure():
    world = World()
    failures = iter(["before", "after"])
    with client_of(
        world, None, lambda request: next(failures, None) if "since" in request.path else None, attempts=3
    ) as client:
        client.refresh()
    assert paths(world) == [wire.CATALOGUE_PATH] + [wire.CHANGES_PATH] * 2
    with client_of(world, None, lambda request: "before") as client, pytest.raises(ServerUnreachable, match="lost"):
        client.refresh()


# -- ages --------------------------------------------------------------------------------------------------


def test_ages_and_what_was_used_today():
    world, moment = World(), 1_000_000.0
    with client_of(world, now=lambda: moment) as client:
        received = client.refresh().received
        moment += 50
        assert client.age == 50
        assert client.copy("alpha").age == 50
        assert client.refresh_if_older(51) is None
        received += client.refresh_if_older(50).received
        assert client.age == 0
        assert client.used_today == received
        client.count_traffic(100)
        assert client.used_today == received + 100
        assert client.sources()[0].age == moment - 1.001
        moment += 86400
        assert client.used_today == 0
        moment -= 2 * 86400  # a clock that was set back says nothing about age
        assert client.age is None
        assert client.refresh_if_older(1e9) is not None


def test_what_was_used_is_kept(path):
    with client_of(World(), path, now=lambda: 5.0) as client:
        received = client.refresh().received
        client.count_traffic(7)
    with client_of(World(), path, now=lambda: 6.0) as client:
        assert client.used_today == received + 7


def test_the_server_is_asked_how_much_changes():
    world = World()
    with client_of(world) as client:
        assert client.newest().changed_per_hour == 3600
    assert paths(world) == [wire.EDITION_PATH]


# -- the file ----------------------------------------------------------------------------------------------


def test_the_file_is_for_its_owner_and_has_one_writer(path):
    with client_of(World(), path) as client:
        client.refresh()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(MirrorError, match="in use by another client"):
            Mirror(path)
    Mirror(path).close()


def test_a_database_of_another_program_is_left_alone(path):
    Journal(path.with_name("journal")).close()
    for file in (others.database(path), path.with_name("journal")):
        before = others.all_of(path.parent)
        for repair in (False, True):
            with pytest.raises(MirrorError, match="another program"):
                Mirror(file, repair=repair)
        assert others.all_of(path.parent) == before


def test_a_document_is_never_deleted_nor_renamed(path):
    before = others.document(path).read_bytes()
    for repair in (False, True):
        with pytest.raises(MirrorError, match="not a mirror"):
            Mirror(path, repair=repair)
        assert others.all_of(path.parent) == {"mirror": (before, stat.S_IFREG | 0o644)}


def test_a_damaged_mirror_is_deleted_as_all_of_it_can_be_fetched_again(path):
    with client_of(World(), path) as client:
        client.refresh()
    path.write_bytes(path.read_bytes().replace(b"first of gamma", b"wrong of gamma"))
    Mirror(path).close()
    assert [file.name for file in path.parent.iterdir()] == ["mirror"]


def test_a_mirror_that_is_forgotten_is_gone(path):
    with client_of(World(), path) as client:
        client.refresh()
    assert delete_mirror(path) == [path]
    assert delete_mirror(path) == []
    with client_of(World(), path) as client:
        assert client.mirror.edition is None


def test_a_write_that_fails_leaves_the_mirror_as_it_was(path, monkeypatch):
    world = World()
    with client_of(world, path) as client:
        client.refresh()
        world.publish("beta", b"second of beta")
        client.mirror._database.connection.execute("PRAGMA query_only = ON")
        with pytest.raises(MirrorError, match="the mirror is as it was"):
            client.refresh()
        assert client.copy("beta") == b"first of beta"  # opened again, and checked
        assert client.refresh().changed == ("beta",)
        assert client.copy("beta") == b"second of beta"


def damaged(content, rng):
    at = rng.randrange(len(content))
    match rng.randrange(4):
        case 0:
            return content[:at]
        case 1:
            length = rng.randrange(1, 512)
            start = rng.randrange(len(content))
            return content[:at] + content[start : start + length] + content[at + length :]
        case _:
            return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


@pytest.mark.slow(reason="many cases are worked out")
def test_damage_never_shows_another_message_and_one_restart_mends_it(path):
    """Bits, truncations and splices: what is read is right, or everything is fetched; what is fetched depends on the
    damage alone, not on what is read."""
    world = World(frame_size=None)
    for name in NAMES:
        world.publish(name, (f"second of {name} " * 300).encode())
    with client_of(world, path) as client:
        client.refresh()
    whole = path.read_bytes()
    rng, mended, kept = random.Random(3), 0, 0
    for _ in range(150):
        path.with_name("mirror-wal").unlink(missing_ok=True)
        path.write_bytes(damaged(whole, rng))
        try:
            client = client_of(world, path)
            edition = client.mirror.edition
        except MirrorError:
            delete_mirror(path)  # as the hint says, where it looks like a file of somebody else
            continue
        with client:
            if edition is None:
                mended += 1
                assert client.refresh().changed == NAMES
            else:
                kept += 1
                assert edition == world.editions[-1]
            assert [client.copy(name).payload for name in NAMES] == [world.messages[name].body for name in NAMES]
    assert mended > 30
    assert kept > 10  # damage where nothing is kept


def test_damage_after_opening_is_an_error_and_never_a_message(path):
    world = World()
    with client_of(world, path) as client:
        client.refresh()
        swap = "UPDATE message SET frame = (SELECT frame FROM message WHERE source = 1)"
        client.mirror._database.connection.execute(swap)
        assert client.copy("beta") == b"first of beta"
        with pytest.raises(MirrorError, match="damaged after it was opened"):
            client.copy("alpha")
        asked = len(world.requests)
    assert asked == len(world.requests)  # nobody is told which source was read
    with pytest.raises(MirrorError, match="is damaged"):
        Mirror(path, repair=False)
    with client_of(world, path) as client:
        assert client.mirror.edition is None


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM message WHERE source = 2",
        "UPDATE message SET source = 9 WHERE source = 2",
        "UPDATE message SET frame = substr(frame, 1, 50), checksum = substr(frame, 35, 16) WHERE source = 2",
        "UPDATE state SET number = number - 1",
        "UPDATE state SET digest = zeroblob(32)",
        "UPDATE state SET refreshed = refreshed + 1000000",
        "UPDATE state SET catalogue = x'7b7d'",
        "DELETE FROM state",
    ],
)
def test_a_mirror_that_does_not_add_up_is_thrown_away(path, statement):
    with client_of(World(), path) as client:
        client.refresh()
        client.mirror._database.connection.execute(statement)
    with client_of(World(), path) as client:
        assert client.mirror.edition is None
        assert client.refresh().changed == NAMES


def test_a_failure_is_not_a_message():
    with client_of(World(), MemoryMirror(), lambda request: Reply(500, (), b"")) as client:
        with pytest.raises(ServerUnreachable, match="HTTP 500"):
            client.get("alpha")
        with pytest.raises(MirrorEmpty):
            client.copy("alpha")
