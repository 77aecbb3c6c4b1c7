"""The site of the demo: a made-up city, an ordinary web server for the departures of its stops, and a rider.

The server is of the standard library. It knows nothing of onoff: each stop has a page, which changes every minute.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import numpy as np

from onoff.model.chain import MarkovChain

STOPS: Final = {
    "Old Mill": (4, 1), "West Gate": (5, 4), "Brewery": (4, 7), "Orchard": (5, 10), "Airfield": (4, 14),
    "Harbour": (10, 0), "Fish Market": (9, 3), "Town Hall": (10, 6), "Library": (9, 9), "University": (11, 12),
    "Lighthouse": (15, 1), "Theatre": (14, 4), "Cathedral": (13, 7), "Clinic": (15, 9), "Gardens": (14, 12),
    "Ferry": (19, 0), "Castle": (18, 4), "Main Station": (18, 7), "Market": (19, 10), "Court": (17, 13),
    "Shipyard": (24, 2), "Museum": (23, 5), "Post Office": (23, 8), "Bridge": (22, 11), "Stadium": (24, 14),
    "Meadows": (28, 1), "Cemetery": (27, 4), "Tannery": (28, 7), "Waterworks": (27, 10), "East Gate": (28, 13),
}  # fmt: skip
"""Where each stop is, in steps of a kilometre: east of the west edge, and south of the north edge."""
CENTRE: Final = ("Main Station", "Town Hall", "Market", "University")
NORTH_EDGE, WEST_EDGE = 47.5, 8.4
NORTHWARD, EASTWARD = 0.009, 0.0133
"""Degrees of a kilometre there."""
NEAR_KM: Final = 5.0
CITY_LINES: Final = 9
REFRESH_SECONDS: Final = 60.0
RIDE: Final = "OFF*5 ON*3 OFF*6 ON*3 OFF*5"
APPOINTMENTS: Final = {6: "Clinic", 15: "Court"}
"""Where the rider is at which request: in the middle of what is private."""


def places() -> dict[str, tuple[float, float]]:
    """Latitude and longitude of each stop."""
    return {
        name: (NORTH_EDGE - south * NORTHWARD, WEST_EDGE + east * EASTWARD) for name, (east, south) in STOPS.items()
    }


def city_chain() -> MarkovChain:
    """A rider asks next for a stop nearby, or for one that many go to, and seldom for the same again."""
    at = np.array(list(STOPS.values()))
    far = np.hypot(*(at[:, None] - at).transpose(2, 0, 1))
    near = np.exp(-((far / NEAR_KM) ** 2)) * (far > 0)
    busy = np.array([5.0 if name in CENTRE else 1.0 for name in STOPS])
    P = 0.1 * np.eye(len(STOPS)) + 0.5 * near / near.sum(axis=1, keepdims=True) + 0.4 * busy / busy.sum()
    return MarkovChain(P, names=tuple(STOPS), initial=busy / busy.sum())


def ride(chain: MarkovChain, steps: int, rng: np.random.Generator) -> list[int]:
    """A walk on the chain that keeps the appointments: each step is drawn given the next one."""
    P, x = chain.dense(), -1
    meetings = {time: chain.names.index(name) for time, name in APPOINTMENTS.items()}
    walk = []
    for t in range(steps):
        row = chain.initial if x < 0 else P[x]
        assert row is not None
        due = next(((time, place) for time, place in meetings.items() if time >= t), None)
        if due is not None:
            row = row * np.linalg.matrix_power(P, due[0] - t)[:, due[1]]
        x = int(rng.choice(len(row), p=row / row.sum()))
        walk.append(x)
    return walk


def departures(stop: int, now: float) -> bytes:
    """The page of a stop: what leaves within the next minutes."""
    minute, names = int(now) // 60, list(STOPS)
    rows = []
    for hop in (1, 7, 11):
        line, end = (stop + hop) % CITY_LINES + 1, names[(stop * hop + 3 * hop) % len(names)]
        every = 4 + line
        rows.append((every - (minute + stop * hop) % every, line, end))
    times = "\n".join(f"line {line} to {end} in {wait} min" for wait, line, end in sorted(rows))
    return f"{names[stop]}, {time.strftime('%H:%M', time.localtime(now))}\n\n{times}\n".encode()


class CitySite:
    """The web server: its address, its access log, and who is told of each line of it."""

    def __init__(self) -> None:
        site = self
        self.log: list[str] = []
        self.watch: Callable[[str], object] = lambda line: None

        class Pages(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # head and body are written apart, and must not wait for one another

            def do_GET(self) -> None:
                number = self.path.removeprefix("/stops/").removesuffix("/departures")
                known = number.isdigit() and int(number) < len(STOPS)
                body = departures(int(number), time.time()) if known else b"no such page\n"
                etag = f'"{zlib.crc32(body):08x}"'
                same = known and self.headers["if-none-match"] == etag
                self.send_response(304 if same else 200 if known else 404)
                self.send_header("etag", etag)
                if not same:
                    self.send_header("content-type", "text/plain; charset=utf-8")
                    self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(b"" if same else body)

            def log_message(self, format: str, *args: object) -> None:
                line = f"{time.strftime('%H:%M:%S')} {format % args}"
                site.log.append(line)
                site.watch(line)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="onoff-demo-site")
        self._thread.start()

    def asked(self, since: int) -> list[str]:
        """The stops that were asked for, by the access log from this line on."""
        names = list(STOPS)
        return [names[int(line.split("/stops/")[1].split("/")[0])] for line in self.log[since:] if "/stops/" in line]

    def close(self) -> None:
        """Stop it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def running_site() -> Iterator[CitySite]:
    """The site, until the end of the block."""
    site = CitySite()
    try:
        yield site
    finally:
        site.close()


def write_list(path: Path, url: str) -> Path:
    """The list of sources of the city, as a person would write it."""
    head = f'[upstream]\nurl = "{url}/stops/{{id}}/departures"\nevery = "{REFRESH_SECONDS:g} s"\nbudget = "600/min"\n'
    stops = (
        f'[sources."{name}"]\nid = "{number}"\nat = [{north:.3f}, {east:.3f}]\n'
        for number, (name, (north, east)) in enumerate(places().items())
    )
    path.write_text("\n".join((head, *stops)), encoding="utf-8")
    return path
