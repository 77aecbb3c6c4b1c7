"""Environment variables for options, the same for every command that has the option.

    ONOFF_SERVER      --server         ONOFF_CHAIN       the chain, whether it is an option or an argument
    ONOFF_JOURNAL     --journal        ONOFF_MIRROR      --mirror
    ONOFF_STORE       --store          ONOFF_SCHEME      --scheme
    ONOFF_TOKEN       --token          ONOFF_TOKEN_FILE  --token-file

What is given on the command line comes first. Options that change what a command does, such as --open, have none: a
forgotten variable must not switch privacy.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cyclopts import Token

if TYPE_CHECKING:
    from cyclopts import App, ArgumentCollection

VARIABLE_PREFIX = "ONOFF_"
OPTIONS = ("server", "chain", "journal", "mirror", "store", "scheme", "token", "token-file")


def fill_in(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Give each of these options that was left out the value of its variable; cyclopts calls it before it binds."""
    for argument in arguments:
        if argument.tokens or argument.hint is bool:  # a switch of the same name, such as `demo --mirror`
            continue
        names = {name.removeprefix("--").lower().replace("_", "-") for name in argument.names}
        for option in names.intersection(OPTIONS):
            variable = VARIABLE_PREFIX + option.upper().replace("-", "_")
            if value := os.environ.get(variable):
                argument.append(Token(keyword=variable, value=value, source="environment"))
