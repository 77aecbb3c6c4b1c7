"""What `/openapi.json` says beyond what the framework finds by itself: the query, publishing, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from onoff import wire

DESCRIPTION = (
    "Keeps the latest message of each of N sources and answers queries for sets of them. "
    "An answer is one frame of fixed size for each asked source and depends on nothing else."
)

PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "hint"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "hint": {"type": "string", "description": "how to mend it"},
        "epoch": {"type": "integer", "description": f"with {wire.EPOCH_CHANGED}: the epoch that now holds"},
        "step": {"type": "integer", "description": f"with {wire.STEP_CONFLICT}: the last step of the session"},
        "sha256": {"type": "string", "description": f"with {wire.STEP_CONFLICT}: the digest of its bytes"},
    },
}

_MEANINGS = {
    400: "Not in the one form that is allowed",
    401: "No publisher has this token",
    403: "This publisher may not write that source",
    404: "No source of that name",
    408: "The body came too slowly",
    409: "The catalogue has changed, or the session has sent another query for this step",
    411: "The length is not stated",
    413: "Too long",
    415: "Not the right media type, or encoded",
    503: "Overload, or the store does not answer; try again after Retry-After",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The description of the refusals that an operation can end with; 422 is none of ours."""
    content = {wire.PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _MEANINGS[status], "content": content} for status in statuses}


def metrics() -> dict[int | str, dict[str, Any]]:
    text = {"text/plain": {"schema": {"type": "string"}}}
    return {200: {"description": "Counts", "content": text}, **refusals(503)}


_BINARY = {"schema": {"type": "string", "format": "binary"}}

PUBLISH: dict[str, Any] = {
    "summary": "Publish",
    "description": "Make the body the latest message of a source. It is durable, as /readyz says, once this returns.",
    "operationId": "publish_v1_sources__name__message_put",
    "security": [{"publisher": []}],
    "parameters": [{"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}],
    "requestBody": {"required": True, "content": {"application/octet-stream": _BINARY, "text/plain": _BINARY}},
    "responses": {
        "200": {
            "description": "Its version and time",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Receipt"}}},
        },
        **{str(k): v for k, v in refusals(400, 401, 403, 404, 408, 411, 413, 415, 503).items()},
    },
}

RECEIPT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["source", "version", "published"],
    "additionalProperties": False,
    "properties": {
        "source": {"type": "string"},
        "version": {"type": "integer", "minimum": 1},
        "published": {"type": "integer", "description": "milliseconds since 1970"},
    },
}

SEEN: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": f"a session id of {wire.SESSION_BYTES} bytes",
        "content": {wire.ANY_TYPE: _BINARY},
    },
}

QUERY: dict[str, Any] = {
    "summary": "Query",
    "description": "The latest messages of a set of sources, one frame each, ascending.",
    "operationId": "query_v1_query_post",
    "requestBody": {
        "required": True,
        "description": "version 2 | epoch 6 | session 16 | step 8 | bitmap ceil(N/8); see the wire format",
        "content": {wire.QUERY_TYPE: _BINARY},
    },
    "responses": {
        "200": {"description": "The frames", "content": {wire.ANSWER_TYPE: _BINARY}},
        **{str(k): v for k, v in refusals(400, 408, 409, 411, 413, 415, 503).items()},
    },
}


_HEX = "^[0-9a-f]{%d}$"

CHANGES: dict[str, Any] = {
    "summary": "Changes",
    "description": "Every message whose last change is after an edition, each once, and the edition they lead to. "
    "Everything, if the edition is 0 or not of this life and digest.",
    "operationId": "changes_v1_changes_get",
    "parameters": [
        {
            "name": "since",
            "in": "query",
            "required": True,
            "schema": {"type": "integer", "minimum": 0, "maximum": wire.VERSION_LIMIT - 1},
        },
        {"name": "life", "in": "query", "schema": {"type": "string", "pattern": _HEX % (2 * wire.LIFE_BYTES)}},
        {"name": "digest", "in": "query", "schema": {"type": "string", "pattern": _HEX % (2 * wire.DIGEST_BYTES)}},
    ],
    "responses": {
        "200": {"description": "Head, frames, trailer", "content": {wire.CHANGES_TYPE: _BINARY}},
        **{str(k): v for k, v in refusals(400, 503).items()},
    },
}


def describe(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """A function that gives the whole description, made once."""

    def description() -> dict[str, Any]:
        if app.openapi_schema is None:
            whole = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            for operations in whole["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)  # names are judged by us, with 400
            whole["paths"][wire.CHANGES_PATH] = {"get": CHANGES}
            whole["paths"][wire.QUERY_PATH] = {"post": QUERY}
            whole["paths"]["/v1/sources/{name}/message"] = {"put": PUBLISH}
            components = whole.setdefault("components", {})
            components.setdefault("schemas", {}).update(Problem=PROBLEM_SCHEMA, Receipt=RECEIPT_SCHEMA)
            components["securitySchemes"] = {"publisher": {"type": "http", "scheme": "bearer"}}
            app.openapi_schema = whole
        return app.openapi_schema

    return description
