"""`onoff publish`: make a file the latest message of a source."""

from __future__ import annotations

import json as jsons
import mimetypes
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from onoff.cli.connection import DEFAULT_SERVER
from onoff.cli.output import progress
from onoff.errors import InvalidInput
from onoff.system.reading import read_limited
from onoff.wire import ANY_TYPE, MAX_LIMIT, check_media_type


def publish_command(
    name: str,
    file: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    *,
    server: Annotated[str, Parameter(env_var="ONOFF_SERVER")] = DEFAULT_SERVER,
    token: Annotated[str | None, Parameter(env_var="ONOFF_TOKEN")] = None,
    token_file: Annotated[Path | None, Parameter(env_var="ONOFF_TOKEN_FILE")] = None,
    media_type: str | None = None,
    json: bool = False,
) -> None:
    """Make a file the latest message of a source.

    ```console
    onoff publish news today.html --token-file token
    onoff publish news - --media-type text/plain --token-file token
    ```

    Parameters
    ----------
    name
        The source.
    file
        The message; - reads it from standard input.
    server
        The address of the message server.
    token
        The publisher's token, as `onoff serve --add-publisher` printed it.
    token_file
        A file that holds the token; unlike an argument it is not seen by other users.
    media_type
        What the message is; guessed from the file's name otherwise.
    json
        Print the receipt as JSON.
    """
    from onoff.client.publish import publish

    secret = token if token is not None else _read(token_file).decode(errors="replace").strip() if token_file else ""
    if not secret or not secret.isascii() or not secret.isprintable():
        raise InvalidInput(
            "no token, or one that is malformed",
            hint="give what `onoff serve --add-publisher` printed, in --token-file or ONOFF_TOKEN",
        )
    kind = media_type or mimetypes.guess_type(file.name)[0] or ANY_TYPE
    body = _read(file)
    with progress(f"publishing to {server}"):
        receipt = publish(server, secret, name, body, check_media_type(kind))
    print(jsons.dumps(receipt) if json else f"{name}: version {receipt['version']}")


def _read(path: Path) -> bytes:
    try:
        if str(path) == "-":
            return sys.stdin.buffer.read(MAX_LIMIT + 1)  # a byte too many is refused as any long message
        return read_limited(path, MAX_LIMIT)
    except OSError as error:
        raise InvalidInput(
            f"cannot read {path}: {error.strerror}", hint="give a file, or - for standard input"
        ) from None
