"""How an operator says how messages are framed."""

import pytest

from onoff.errors import InvalidInput
from onoff.server.admin import reframed
from onoff.wire import DEFAULT_FRAME_SIZE, DEFAULT_LIMIT, Catalogue

PADDED = Catalogue(("a",), 512)
UNPADDED = Catalogue(("a",), None, 1000)


@pytest.mark.parametrize(
    ("old", "said", "new"),
    [
        (PADDED, {}, (512, 408)),
        (UNPADDED, {}, (None, 1000)),
        (PADDED, {"padding": "fixed"}, (512, 408)),
        (UNPADDED, {"padding": "fixed"}, (DEFAULT_FRAME_SIZE, DEFAULT_FRAME_SIZE - 104)),
        (UNPADDED, {"frame_size": 1024}, (1024, 920)),
        (PADDED, {"padding": "none"}, (None, DEFAULT_LIMIT)),
        (UNPADDED, {"padding": "none"}, (None, 1000)),
        (PADDED, {"limit": 2000}, (None, 2000)),
        (PADDED, {"padding": "none", "limit": 300}, (None, 300)),
    ],
)
def test_what_is_not_said_stays(old, said, new):
    found = reframed(old, **said)
    assert (found.frame_size, found.limit) == new
    assert found.names == ("a",)


@pytest.mark.parametrize(
    "said",
    [{"padding": "fixed", "limit": 1000}, {"padding": "none", "frame_size": 512}, {"frame_size": 512, "limit": 1000}],
)
def test_contradictions_are_refused(said):
    with pytest.raises(InvalidInput, match="--padding"):
        reframed(PADDED, **said)
