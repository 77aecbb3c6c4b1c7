"""Schemathesis over the published description: no 5xx, and no answer that the description does not allow.

A random token or query opens no door, so every second case is led past it: with the right token, a real source,
a query that is whole.
"""

from collections import Counter

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from tests.support.raw import Line, catalogue, query
from tests.support.waiting import PATIENCE

from onoff import wire
from onoff.server import running

CHECKS = [
    not_a_server_error,
    allow_header_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
]
schemathesis.serializer.alias(wire.QUERY_TYPE, "application/octet-stream")
schemathesis.serializer.alias(wire.SUM_QUERY_TYPE, "application/octet-stream")
OPERATIONS = [
    ("/healthz", "GET"),
    ("/metrics", "GET"),
    ("/readyz", "GET"),
    (wire.CATALOGUE_PATH, "GET"),
    (wire.CHANGES_PATH, "GET"),
    (wire.DIGESTS_PATH, "GET"),
    (wire.EDITION_PATH, "GET"),
    (wire.QUERY_PATH, "POST"),
    (wire.SEEN_PATH, "POST"),
    (wire.SUM_PATH, "POST"),
    ("/v1/sources/{name}/message", "PUT"),
]
quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much]


@pytest.fixture(scope="module")
def server():
    with running({"news": b"x", "weather": b"y"}, frame_size=512) as server:
        yield server


@pytest.fixture(scope="module")
def api(server):
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


def fuzz(server, operation, how: settings) -> Counter[int]:
    """Send generated requests, judge each answer, and count the statuses."""
    known = catalogue(server.url)
    with Line(server.url) as line:
        line.send(f"GET {wire.EDITION_PATH} HTTP/1.1\r\nhost: h\r\n\r\n".encode())
        edition_text = line.reply().body
    statuses: Counter[int] = Counter()
    modes = st.sampled_from([GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
    cases = modes.flatmap(lambda mode: operation.as_strategy(generation_mode=mode))

    @how
    @given(case=cases, lead=st.integers(0, 3), source=st.integers(0, 1))
    def judge(case, lead, source):
        if lead >= 2:
            case.headers = {**(case.headers or {}), "Authorization": f"Bearer {server.token}"}
        if lead == 3 and "name" in (case.path_parameters or {}):
            case.path_parameters["name"] = known.names[source]
        if lead == 3 and operation.path == wire.QUERY_PATH:
            case.body = query(known, source)
        if lead == 3 and operation.path == wire.SUM_PATH:
            edition = wire.decode_edition(edition_text).edition
            vector = bytes([source, 1 - source])
            case.body = wire.encode_sum_query(
                wire.SumQuery(known.epoch, bytes([source]) * 16, 0, edition.number, edition.digest, 2, 1, vector)
            )
        if lead == 3 and operation.path == wire.SEEN_PATH:
            case.body = bytes(wire.SESSION_BYTES)
        response = case.call(timeout=PATIENCE)
        case.validate_response(response, checks=CHECKS)
        statuses[response.status_code] += 1

    judge()
    return statuses


@pytest.mark.slow(reason="programs are started and waited for")
def test_the_list_of_operations_is_whole(api):
    described = [(found.ok().path, found.ok().method.upper()) for found in api.get_all_operations()]
    assert sorted(described) == sorted(OPERATIONS)


@pytest.mark.slow(reason="dozens of generated requests for each operation")
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_generated_requests_get_described_answers(server, api, path, method):
    count = 60 if method != "GET" else 25
    how = settings(max_examples=count, deadline=None, derandomize=True, database=None, suppress_health_check=quiet)
    statuses = fuzz(server, api[path][method], how)
    assert statuses[200]
    assert method == "GET" or statuses.total() >= count  # a GET has few forms
    assert method == "GET" or sum(n for status, n in statuses.items() if status >= 400)


@pytest.mark.deep
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_ten_thousand_generated_requests_get_described_answers(server, api, path, method):
    count = 3400 if method != "GET" else 250
    how = settings(max_examples=count, deadline=None, database=None, suppress_health_check=quiet)
    statuses = fuzz(server, api[path][method], how)
    assert statuses[200]
    assert method == "GET" or statuses.total() >= count
