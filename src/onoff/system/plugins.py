"""What other distributions add to onoff, by entry points of these groups:

    onoff.schemes    NAME = "package.module:function"     function(rows, **options) gives a QueryTable
    onoff.stores     KIND = "package.module:Store"        a class whose `open` takes what follows `serve --store KIND://`
    onoff.upstreams  KIND = "package.module:function"     function(address) gives a Web with its own list of sources
                                                          and connections, or servers, for addresses KIND://...
    onoff.commands   NAME = "package.module:function"     a command of the command line

Nothing is imported before it is asked for by its name, and a name of onoff's own is never given away.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any, Literal

from onoff.errors import OnOffError

Group = Literal["onoff.schemes", "onoff.stores", "onoff.upstreams", "onoff.commands"]


def plugins(group: Group) -> dict[str, metadata.EntryPoint]:
    """The entry points of a group by their names."""
    return {entry.name: entry for entry in metadata.entry_points(group=group)}


def load_plugin(entry: metadata.EntryPoint) -> Any:
    """What the entry point names. Raises OnOffError where its distribution is broken."""
    try:
        return entry.load()
    except Exception as error:
        of = entry.dist.name if entry.dist is not None else entry.group
        raise OnOffError(
            f"{entry.value}, of {of}, cannot be loaded: {error}", hint=f"upgrade or uninstall {of}"
        ) from error
