"""The OpenAPI document of `/openapi.json`. Tests compare the server with it by generated requests."""

from __future__ import annotations

from typing import Any

import onoff
from onoff import wire

DESCRIPTION = (
    "Keeps the latest message of each of N sources and answers queries for sets of them. "
    "An answer is one frame for each asked source and depends on nothing else."
)
PUBLISH_PATH = "/v1/sources/{name}/message"

_MEANINGS = {
    400: "Not in the one form that is allowed",
    401: "Nobody has this token",
    403: "Not for whoever asks",
    404: "No source of that name",
    408: "The body came too slowly",
    409: "The catalogue has changed, the edition is gone, or the session has sent another query for this step",
    411: "The length is not stated",
    413: "Too long",
    415: "Not the right media type, or encoded",
    503: "Overload, or the store does not answer; try again after Retry-After",
    507: "The store is full",
}

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_INTEGER = {"type": "integer"}
_STRING = {"type": "string"}

_SCHEMAS: dict[str, dict[str, Any]] = {
    "Health": {"status": {"enum": ["ok"]}},
    "Readiness": {
        "status": {"enum": ["ready"]},
        "store": _STRING,
        "durable": {"type": "boolean"},
        "promise": {"type": "string", "description": "what an acknowledged message survives"},
    },
    "Catalogue": {
        "epoch": _INTEGER,
        "frame_size": {"type": "integer", "description": "bytes of every frame, where answers are padded"},
        "limit": {"type": "integer", "description": "bytes of the longest message, where they are not"},
        "sources": {"type": "array", "items": _STRING},
    },
    "Edition": {
        "epoch": _INTEGER,
        "life": _STRING,
        "edition": _INTEGER,
        "digest": _STRING,
        "changed_per_hour": {"type": "integer", "description": "bytes of frames, as a mean over the last day"},
        "longest": {"type": "integer", "description": "bytes of the longest frame, without padding"},
    },
    "Seen": {"step": {"type": ["integer", "null"]}, "sha256": {"type": ["string", "null"]}},
    "Receipt": {
        "source": _STRING,
        "version": {"type": "integer", "minimum": 1},
        "published": {"type": "integer", "description": "milliseconds since 1970"},
    },
    "Problem": {
        "type": _STRING,
        "title": _STRING,
        "status": _INTEGER,
        "hint": {"type": "string", "description": "how to mend it"},
        "epoch": {"type": "integer", "description": f"with {wire.EPOCH_CHANGED}: the epoch that now holds"},
        "step": {"type": "integer", "description": f"with {wire.STEP_CONFLICT}: the last step of the session"},
        "sha256": {"type": "string", "description": f"with {wire.STEP_CONFLICT}: the digest of its bytes"},
        "edition": {"type": "integer", "description": f"with {wire.EDITION_GONE}: the newest that is held"},
    },
}
_EDITION = {"type": "integer", "minimum": 0, "maximum": wire.VERSION_LIMIT - 1}
_OPTIONAL = {"Catalogue": {"frame_size", "limit"}, "Problem": {"epoch", "step", "sha256", "edition"}}


def describe() -> dict[str, Any]:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "onoff message server", "version": onoff.__version__, "description": DESCRIPTION},
        "paths": {path: {method: operation} for path, method, operation in _operations()},
        "components": {
            "schemas": {name: _schema(name, properties) for name, properties in _SCHEMAS.items()},
            "securitySchemes": {
                "publisher": {"type": "http", "scheme": "bearer"},
                "operator": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _schema(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    required = [key for key in properties if key not in _OPTIONAL.get(name, ())]
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


def _operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        ("/healthz", "get", _get("Alive", "This process serves. It asks nothing of the store.", _json("Health"))),
        (
            "/readyz",
            "get",
            _get("Ready", "A query would be answered and a publish kept; else 503 says which not.", _json("Readiness")),
        ),
        (
            "/metrics",
            "get",
            _get(
                "Counts",
                "Counts in Prometheus' text form, none by source, session or client; for the operator alone.",
                {"text/plain": {"schema": _STRING}},
                401,
                403,
                security="operator",
            ),
        ),
        (
            wire.CATALOGUE_PATH,
            "get",
            _get("Catalogue", "The sources in the order of their indices, the framing, the epoch.", _json("Catalogue")),
        ),
        (wire.EDITION_PATH, "get", _get("Edition", "The newest edition of the store.", _json("Edition"))),
        (wire.CHANGES_PATH, "get", _changes()),
        (wire.DIGESTS_PATH, "get", _digests()),
        (
            wire.QUERY_PATH,
            "post",
            _post(
                "Query",
                "The latest messages of a set of sources, one frame each, ascending.",
                {wire.QUERY_TYPE: _BINARY},
                "version 2 | epoch 6 | session 16 | step 8 | bitmap ceil(N/8); see the wire format",
                {wire.ANSWER_TYPE: _BINARY},
                409,
            ),
        ),
        (
            wire.SUM_PATH,
            "post",
            _post(
                "Sum",
                "The sum of chunks of messages that a vector asks for, for readers of several servers.",
                {wire.SUM_QUERY_TYPE: _BINARY},
                "version 2 | epoch 6 | session 16 | step 8 | edition 8 | digest 32 | K 1 | j 1 | vector",
                {wire.SUM_TYPE: _BINARY},
                409,
            ),
        ),
        (
            wire.SEEN_PATH,
            "post",
            _post(
                "Seen",
                "The last step under a session id, so that a client put back to an earlier state can know.",
                {wire.ANY_TYPE: _BINARY},
                f"a session id of {wire.SESSION_BYTES} bytes",
                _json("Seen"),
            ),
        ),
        (PUBLISH_PATH, "put", _publish()),
    ]


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _responses(content: dict[str, Any], *statuses: int) -> dict[str, Any]:
    problem = {wire.PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    refusals = {str(status): {"description": _MEANINGS[status], "content": problem} for status in sorted(statuses)}
    return {"200": {"description": "Done", "content": content}, **refusals}


def _get(summary: str, text: str, content: dict[str, Any], *statuses: int, security: str = "") -> dict[str, Any]:
    operation = {"summary": summary, "description": text, "responses": _responses(content, 503, *statuses)}
    return operation | ({"security": [{}, {security: []}]} if security else {})


def _post(
    summary: str, text: str, body: dict[str, Any], form: str, content: dict[str, Any], *statuses: int
) -> dict[str, Any]:
    return {
        "summary": summary,
        "description": text,
        "requestBody": {"required": True, "description": form, "content": body},
        "responses": _responses(content, 400, 408, 411, 413, 415, 503, *statuses),
    }


def _since() -> list[dict[str, Any]]:
    def hexadecimal(name: str, size: int) -> dict[str, Any]:
        return {"name": name, "in": "query", "schema": {"type": "string", "pattern": f"^[0-9a-f]{{{2 * size}}}$"}}

    return [
        {"name": "since", "in": "query", "required": True, "schema": _EDITION},
        hexadecimal("life", wire.LIFE_BYTES),
        hexadecimal("digest", wire.DIGEST_BYTES),
    ]


def _digests() -> dict[str, Any]:
    text = (
        "The SHA-256 of every frame that changed after an edition, and the root over all: what readers of several "
        "servers hold before they ask. All, if the edition is 0 or not of this life and digest."
    )
    wanted = {"name": "edition", "in": "query", "schema": _EDITION}
    return _get("Digests", text, {wire.DIGESTS_TYPE: _BINARY}, 400, 409) | {"parameters": [*_since(), wanted]}


def _changes() -> dict[str, Any]:
    text = (
        "Every message whose last change is after an edition, each once, and the edition they lead to. "
        "Everything, if the edition is 0 or not of this life and digest."
    )
    return _get("Changes", text, {wire.CHANGES_TYPE: _BINARY}, 400) | {"parameters": _since()}


def _publish() -> dict[str, Any]:
    return {
        "summary": "Publish",
        "description": "Make the body the latest message of a source; durable, as /readyz says, once this returns.",
        "security": [{"publisher": []}],
        "parameters": [{"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}],
        "requestBody": {"required": True, "content": {wire.ANY_TYPE: _BINARY, "text/plain": _BINARY}},
        "responses": _responses(_json("Receipt"), 400, 401, 403, 404, 408, 411, 413, 415, 503, 507),
    }
