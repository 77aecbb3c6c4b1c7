"""Weather by place, from a site that takes lists: a set of places is one request, whatever its size.

Run it: `python examples/weather.py`. The site is on this machine, in the shape of `/group?id=1,2,3`.
"""

import json
from urllib.parse import parse_qs, urlsplit

import numpy as np
from local_site import spend_a_day

import onoff

PLACES = ["Oslo", "Bergen", "Lund", "Kiel", "Ghent", "Lille", "Basel", "Turin", "Nice", "Porto", "Cadiz", "Split"]
DAY = [("Basel", False), ("Lille", True), ("Basel", False), ("Turin", False)]


def page(path, now):
    """Hours of weather for each of the places, by their numbers."""
    hour = int(now) // 3600
    asked = parse_qs(urlsplit(path).query)["id"][0].split(",")
    found = [{"id": int(x), "hours": [(int(x) * 7 + hour + t) % 31 for t in range(24)]} for x in asked]
    return "application/json", json.dumps({"cnt": len(found), "list": found}).encode()


def listed(url, places):
    """`[upstream.list]` says how several are asked for, and where each stands in the answer."""
    tables = "\n".join(f'[sources."{name}"]\nid = "{number}"\n' for number, name in enumerate(places))
    group = f'[upstream.list]\nurl = "{url}/group?id={{ids}}"\nanswer = "array"\nat = "list"\nkey = "id"\n'
    return f'[upstream]\nurl = "{url}/weather?id={{id}}"\n{group}\n{tables}'


def habits(places):
    """People look at the same place again, or at one that many look at."""
    busy = 1 / np.arange(1, len(places) + 1)
    return onoff.MarkovChain(0.3 * np.eye(len(places)) + 0.7 * busy / busy.sum(), names=places)


if __name__ == "__main__":
    total = spend_a_day(page, listed, habits(PLACES), DAY, "places")
    print(f"{total} requests for {len(DAY)} sets")
