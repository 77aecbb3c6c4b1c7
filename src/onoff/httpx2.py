"""For httpx2: `httpx2.Client(mounts={"https://api.example": onoff.httpx2.Transport(client)})`; see `adapters`."""

from __future__ import annotations

import httpx2

from onoff.adapters import transport_class

Transport = transport_class(httpx2)
