"""Departures by stop: an ordinary web site that knows nothing of onoff, and a rider who is private around one stop.

Run it: `python examples/departures.py`. The site is on this machine; its access log is what is printed.
"""

import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np

import onoff

STOPS = [
    "Harbour",
    "Market",
    "Castle",
    "Museum",
    "Clinic",
    "Park",
    "Station",
    "Bridge",
    "Garden",
    "School",
    "Mill",
    "Gate",
]


class Departures(BaseHTTPRequestHandler):
    """The site: /stops/3/departures is what leaves from stop 3 within the next minutes."""

    protocol_version = "HTTP/1.1"
    log: ClassVar[list[str]] = []

    def do_GET(self):
        self.log.append(self.path)
        stop = int(self.path.split("/")[2])
        body = f"tram {stop % 4 + 1} in {int(time.time()) // 60 % 7 + stop % 3} min".encode()
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """The log is kept above."""


def city(url, folder):
    """The list of sources, as a person would write it: one pattern, and a number for each stop."""
    path = Path(folder) / "city.toml"
    stops = "\n".join(f'[sources.{name}]\nid = "{number}"\n' for number, name in enumerate(STOPS))
    path.write_text(f'[upstream]\nurl = "{url}/stops/{{id}}/departures"\nbudget = "600/min"\n\n{stops}')
    return onoff.Web.load(path)


def rides():
    """Riders ask again for the stop where they are, or for one of its two neighbours on the ring line."""
    n = len(STOPS)
    around = np.eye(n) * 0.4 + np.roll(np.eye(n), 1, axis=1) * 0.3 + np.roll(np.eye(n), -1, axis=1) * 0.3
    return onoff.MarkovChain(around, names=STOPS)


def main():
    site = ThreadingHTTPServer(("127.0.0.1", 0), Departures)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    day = [("Museum", False), ("Clinic", True), ("Park", False), ("Station", False), ("Station", False)]
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        web = city(f"http://127.0.0.1:{site.server_port}", folder)
        with onoff.Client(web, rides(), journal=Path(folder) / "journal") as client:
            for stop, private in day:
                Departures.log.clear()
                message = client.get(stop, private=private)
                total += message.requests
                asked = ", ".join(message.asked) if len(message.asked) < len(STOPS) else f"all {len(STOPS)} stops"
                print(f"{'ON ' if private else 'OFF'}  {message.decode():<18} the site was asked for {asked}")
                assert len(Departures.log) == message.requests
    always, naive = len(day) * len(STOPS), len(day) - 1 + len(STOPS)
    print(f"{total} requests; always private would have taken {always}, naive switching {naive}")
    site.shutdown()
    site.server_close()


if __name__ == "__main__":
    main()
