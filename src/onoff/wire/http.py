"""The HTTP around it: paths, media types, and the headers of either side, which are these and no others."""

from __future__ import annotations

from typing import Final

QUERY_PATH: Final = "/v1/query"
CATALOGUE_PATH: Final = "/v1/catalogue"
SEEN_PATH: Final = "/v1/seen"
CHANGES_PATH: Final = "/v1/changes"
EDITION_PATH: Final = "/v1/edition"
SUM_PATH: Final = "/v1/sum"
DIGESTS_PATH: Final = "/v1/digests"
QUERY_TYPE: Final = "application/vnd.onoff.query"
ANSWER_TYPE: Final = "application/vnd.onoff.answer"
CHANGES_TYPE: Final = "application/vnd.onoff.changes"
SUM_QUERY_TYPE: Final = "application/vnd.onoff.sum-query"
SUM_TYPE: Final = "application/vnd.onoff.sum"
DIGESTS_TYPE: Final = "application/vnd.onoff.digests"
PROBLEM_TYPE: Final = "application/problem+json"
ANY_TYPE: Final = "application/octet-stream"
ENTRY_TYPE: Final = "application/vnd.onoff.entry+json"  # entries of a feed: title, link, time, html or text

# The client sends these and no others (Host and Content-Length are the transport's); the server answers with
# these and Content-Length and no others. No cookie, validator or range on either side, and no encoding but gzip for
# changes.
QUERY_HEADERS: Final = (
    ("accept", ANSWER_TYPE),
    ("accept-encoding", "identity"),
    ("content-type", QUERY_TYPE),
    ("user-agent", "onoff"),
)
CATALOGUE_HEADERS: Final = (
    ("accept", "application/json"),
    ("accept-encoding", "identity"),
    ("user-agent", "onoff"),
)
SEEN_HEADERS: Final = (*CATALOGUE_HEADERS, ("content-type", ANY_TYPE))
ANSWER_HEADERS: Final = (("content-type", ANSWER_TYPE), ("cache-control", "no-store"))
CHANGES_HEADERS: Final = (
    ("accept", CHANGES_TYPE),
    ("accept-encoding", "gzip"),
    ("user-agent", "onoff"),
)
SUM_QUERY_HEADERS: Final = (
    ("accept", SUM_TYPE),
    ("accept-encoding", "identity"),
    ("content-type", SUM_QUERY_TYPE),
    ("user-agent", "onoff"),
)
DIGESTS_HEADERS: Final = (
    ("accept", DIGESTS_TYPE),
    ("accept-encoding", "identity"),
    ("user-agent", "onoff"),
)
SUM_HEADERS: Final = (("content-type", SUM_TYPE), ("cache-control", "no-store"))
