"""Files of names: one source a line, for the commands that take the sources from a file."""

from __future__ import annotations

from pathlib import Path

from onoff.errors import InvalidInput
from onoff.system.reading import read_limited


def read_names(path: Path) -> list[str]:
    """The names in a file, in its order; empty lines do not count. Raises InvalidInput."""
    try:
        lines = read_limited(path).decode("utf-8-sig").splitlines()  # whatever the locale, with or without its mark
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}", hint="give a text file, one name a line") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"cannot read {path}: byte {error.start} is not UTF-8", hint="save it as UTF-8") from None
    return [line.strip() for line in lines if line.strip()]
