"""For requests: `session.mount("https://api.example", onoff.requests.Adapter(client))`; see `adapters`."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import requests

from onoff.adapters import Listed, NotListed, WebClient, headers_of
from onoff.errors import OnOffError


class Adapter(requests.adapters.BaseAdapter):
    """Asks through a client of onoff: `Adapter(client, private=True)`."""

    def __init__(self, client: WebClient, *, private: bool = True) -> None:
        super().__init__()
        self._listed = Listed(client, private=private)

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        """The message of an address as a response. Raises NotListed before anything leaves."""
        try:
            message = self._listed.get(request.method or "", request.url or "", None)
        except NotListed:
            raise
        except OnOffError as error:
            raise requests.exceptions.ConnectionError(str(error), request=request) from error
        response = requests.Response()
        response.status_code, response.url, response.request = 200, request.url or "", request
        response.headers.update(dict(headers_of(message)))
        response.raw = BytesIO(message)
        response.encoding = requests.utils.get_encoding_from_headers(response.headers)
        response.onoff = message  # type: ignore[attr-defined]
        return response

    def close(self) -> None:
        """The client is its owner's to close."""
