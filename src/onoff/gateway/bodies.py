"""The bodies that callers send to the gateway: small JSON objects, read strictly."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from onoff.errors import InvalidInput

LONGEST_BODY: Final = 4096
"""Bytes."""


class Turn(BaseModel):
    """What PUT /v1/privacy takes."""

    model_config = ConfigDict(strict=True, extra="forbid")

    private: bool
    seconds: Annotated[float, Field(allow_inf_nan=False)] | None = None
    until: str | None = None


class Rules(BaseModel):
    """What PUT /v1/schedule takes."""

    model_config = ConfigDict(strict=True, extra="forbid")

    rules: list[str]


class Learning(BaseModel):
    """What PUT /v1/learning takes."""

    model_config = ConfigDict(strict=True, extra="forbid")

    remember: bool


Body = TypeVar("Body", bound=BaseModel)


def parsed(kind: type[Body], body: bytes, *, hint: str) -> Body:
    """`body` as an object of `kind`. Raises InvalidInput, which names the wrong field."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise InvalidInput(f"{where}: {first['msg']}", hint=hint) from None


async def read_json(request: Request) -> bytes:
    """The body of a request with the content type of JSON. Raises HTTPException 415 for another type."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "the body is not JSON")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST_BODY:
            raise InvalidInput("the body is too long", hint='such as {"private": true}')
    return body


def moment(text: str) -> float:
    """An ISO 8601 time with its zone, as seconds since 1970."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InvalidInput("until: not a time with a zone", hint="such as 2030-01-31T18:00:00+01:00")
    return found.timestamp()
