"""Departures by stop: an ordinary web site that knows nothing of onoff, and a rider who is private around one stop.

Run it: `python examples/departures.py`. The site is on this machine; its access log is what is printed.
"""

import numpy as np
from local_site import spend_a_day

import onoff

STOPS = ["Harbour", "Market", "Castle", "Museum", "Clinic", "Park", "Station", "Bridge", "Garden", "School", "Mill"]
DAY = [("Museum", False), ("Clinic", True), ("Park", False), ("Station", False), ("Station", False)]


def page(path, now):
    """/stops/3/departures is what leaves from stop 3 within the next minutes."""
    stop = int(path.split("/")[2])
    minute = int(now) // 60
    return "text/plain", f"tram {stop % 4 + 1} in {minute % 7 + stop % 3} min".encode()


def listed(url, stops):
    """The list of sources, as a person would write it: one pattern, and a number for each stop."""
    tables = "\n".join(f'[sources."{name}"]\nid = "{number}"\n' for number, name in enumerate(stops))
    return f'[upstream]\nurl = "{url}/stops/{{id}}/departures"\nbudget = "600/min"\n\n{tables}'


def habits(stops):
    """Riders ask for one of the next stops on the ring line, or go where many go; seldom for the same stop again."""
    same, busy = np.eye(len(stops)), 1 / np.arange(1, len(stops) + 1)
    line = sum(np.roll(same, hop, axis=1) for hop in (-2, -1, 1, 2)) / 4
    return onoff.MarkovChain(0.1 * same + 0.4 * line + 0.5 * busy / busy.sum(), names=stops)


if __name__ == "__main__":
    total = spend_a_day(page, listed, habits(STOPS), DAY, "stops")
    always, naive = len(DAY) * len(STOPS), len(DAY) - 1 + len(STOPS)
    print(f"{total} requests; always private would have taken {always}, naive switching {naive}")
