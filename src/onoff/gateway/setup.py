"""The settings that a gateway was started with."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from onoff.client import default_journal
from onoff.client.transport import check_url
from onoff.model.contexts import Model


@dataclass(frozen=True)
class GatewaySetup:
    """The servers, the model, and where things are kept.

    urls: the addresses of the servers, without a slash at the end.
    chain: how requests follow one another; None: no model.
    journal: the file of the session; the switch, the mirror and the record are kept beside it.
    about: what the file of the model says of it.
    on_missing: what a client does where one of several servers does not answer.
    learn_command: the command that learns a model from what this gateway recorded.
    """

    urls: tuple[str, ...]
    chain: Model | None
    journal: Path
    about: Mapping[str, Any]
    on_missing: str
    learn_command: str

    @classmethod
    def of(
        cls,
        url: str | Sequence[str],
        chain: Model | None,
        journal: Path | None,
        about: Mapping[str, Any] | None,
        on_missing: str,
    ) -> GatewaySetup:
        """The setup of these arguments of an engine, checked."""
        urls = tuple(check_url(each).rstrip("/") for each in ([url] if isinstance(url, str) else url))
        path = default_journal(" ".join(urls)) if journal is None else Path(journal)
        place = "" if journal is None else f" --journal {shlex.quote(str(path))}"
        servers = " ".join(f"--server {shlex.quote(each)}" for each in urls)
        command = f"onoff learn --from-gateway {servers}{place} -o model.json"
        described: Mapping[str, Any] = getattr(chain, "about", {}) if about is None else about
        return cls(urls, chain, path, described, on_missing, command)

    @property
    def url(self) -> str:
        """All addresses, with spaces between them."""
        return " ".join(self.urls)

    @cached_property
    def several(self) -> bool:
        """Whether there is more than one server."""
        return len(self.urls) > 1

    @cached_property
    def always_private(self) -> bool:
        """Whether requests are private while OFF too: without a model it is not known what an open one tells."""
        return self.chain is None

    @property
    def mirror_path(self) -> Path:
        return self.journal.with_name(f"{self.journal.name}.mirror")

    @property
    def switch_path(self) -> Path:
        return self.journal.with_name(f"{self.journal.name}.switch.json")
