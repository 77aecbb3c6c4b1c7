"""For httpx: `httpx.Client(mounts={"https://api.example": onoff.httpx.Transport(client)})`; see `adapters`."""

from __future__ import annotations

import httpx

from onoff.adapters import transport_class

Transport = transport_class(httpx)
