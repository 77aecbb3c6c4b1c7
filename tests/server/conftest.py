"""Real stores for the server's tests: SQLite files, and a redis-server of our own."""

from collections.abc import Iterator

import pytest
from tests.support.redis import Redis, redis_server
from tests.support.waiting import PATIENCE


@pytest.fixture(scope="session", autouse=True)
def patient_stores() -> Iterator[None]:
    """A disk or a processor that is busy with other work for seconds is not a store that does not answer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onoff.server.valkey._SECONDS", PATIENCE)
        patch.setattr("onoff.server.sqlite.BUSY_SECONDS", PATIENCE)
        patch.setattr("onoff.server.store.SHARE_SECONDS", PATIENCE)
        yield


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[Redis]:
    with redis_server() as redis:
        yield redis


@pytest.fixture(params=["sqlite", pytest.param("valkey", marks=pytest.mark.redis)])
def where(request, tmp_path) -> str:
    """The address of an empty store of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "messages.db")
    redis = request.getfixturevalue("shared_redis")
    redis.flush()
    return redis.url
