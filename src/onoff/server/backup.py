"""Backups of a store: its catalogue and all its messages, in the form in which a new reader gets them.

    file    gzip of: catalogue, as on the wire | line feed | changes since 0, as on the wire

Publishers and sessions are not in it. Restoring puts catalogue and messages in place of those in a store, versions
included; the store begins a new life, so that every reader fetches everything once.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from onoff.errors import InvalidInput, InvalidWire
from onoff.server.changes import ChangesBuilder
from onoff.server.shelf import Shelf
from onoff.server.store import Store
from onoff.system.atomic import atomic_write
from onoff.system.reading import open_ordinary
from onoff.wire import (
    MAX_CATALOGUE,
    Catalogue,
    ChangesDecoder,
    Since,
    WireMessage,
    decode_catalogue,
    encode_catalogue,
)

READ_BYTES = 1024 * 1024


async def write_backup(store: Store, path: Path) -> int:
    """Write all messages of the store to `path`, atomically; return how many.

    Raises
    ------
    InvalidInput
        If the file cannot be written.
    """
    shelf = Shelf()
    reply = await ChangesBuilder(store, shelf).reply(Since(0), gzip=False)
    try:
        with (
            atomic_write(path, mode=0o600, durable=True) as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=0) as out,
        ):
            out.write(encode_catalogue(shelf.catalogue) + b"\n")
            for part in reply.parts:
                out.write(part)
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}", hint="check free space and permissions") from None
    return sum(changed > 0 for changed in shelf.changed)


def read_backup(path: Path) -> tuple[Catalogue, dict[str, WireMessage]]:
    """Catalogue and messages of a backup, all checked.

    Raises
    ------
    InvalidInput
        If the file is not a backup, or not whole.
    """
    messages: dict[str, WireMessage] = {}
    try:
        with open_ordinary(path) as packed, gzip.open(packed, "rb") as file:
            catalogue = decode_catalogue(file.readline(MAX_CATALOGUE + 1).removesuffix(b"\n"))
            decoder = ChangesDecoder(catalogue)
            while piece := file.read(READ_BYTES):
                messages.update((catalogue.names[source], message) for source, message in decoder.feed(piece))
            decoder.finish()
    except (OSError, EOFError, zlib.error, InvalidWire) as error:
        reason = error.message if isinstance(error, InvalidWire) else getattr(error, "strerror", None) or str(error)
        raise InvalidInput(
            f"cannot restore {path}: {reason}", hint="give a file that `onoff serve --backup` wrote"
        ) from None
    return catalogue, messages
