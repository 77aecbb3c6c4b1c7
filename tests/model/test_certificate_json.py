"""certificate_json: every kind of certificate survives a file, and nothing else is read as one."""

import json

import pytest

from onoff.errors import InvalidTable
from onoff.model.certificate import (
    LEAF,
    GroupCertificate,
    HittingBound,
    LeakCertificate,
    LeakLimit,
    PartsBound,
    RowCertificate,
    RowGroup,
    SetCertificate,
    SimpleBound,
    from_json,
    to_json,
)


@pytest.mark.parametrize(
    "certificate",
    [
        SimpleBound("outer"),
        SimpleBound("pencil", 3),
        SetCertificate(5, ((0, 1), ()), (1, 2), (1, LEAF, LEAF), (((0, 1), (1, 2)), ()), 3),
        RowCertificate((0, 2), ((1, -2), (3, 4))),
        HittingBound(2),
        GroupCertificate((RowGroup((0, 2), (1, 3), (4, 5), ((1, -2), (3, 4))), RowGroup((1,), (), (), ((),)))),
        PartsBound(((0, 2), (1,)), (HittingBound(2), SimpleBound("outer"))),
        LeakCertificate(LeakLimit(5, None, (1, 2)), ((1, -2), (3, 4)), 7, ((0, -1),)),
        LeakCertificate(LeakLimit(None, 6, (1,)), ((1,),), 0),
    ],
    ids=str,
)
def test_json_gives_the_same_back(certificate):
    assert from_json(json.loads(json.dumps(to_json(certificate)))) == certificate


@pytest.mark.parametrize(
    "given",
    [
        None,
        [],
        {},
        {"kind": "other"},
        {"kind": "simple", "name": 3, "source": None},
        {"kind": "groups", "groups": [{"rows": [0], "sources": [0], "shares": [0.5], "phi": [[1]]}], "scale": 1},
        {"kind": "groups", "groups": [3], "scale": 1},
    ],
)
def test_what_is_no_certificate_is_refused(given):
    with pytest.raises(InvalidTable, match="not a certificate"):
        from_json(given)
