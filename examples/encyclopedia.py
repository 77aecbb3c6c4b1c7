"""Articles of an encyclopedia: large pages that seldom change. What is known already is not sent again.

Run it: `python examples/encyclopedia.py`. The site is on this machine, in the shape of `/page/summary/TITLE`.
"""

import json
import zlib
from urllib.parse import unquote

import numpy as np
from local_site import spend_a_day

import onoff

TITLES = ["Heart", "Lung", "Asthma", "Stroke", "Rome", "Athens", "Cairo", "Troy", "Piano", "Opera", "Jazz", "Fugue"]
TOPIC = 4
"""Articles in a row that are about one subject."""
DAY = [("Opera", False), ("Stroke", True), ("Jazz", False), ("Fugue", False)]


def page(path, now):
    """An article of two to ten thousand bytes."""
    title = unquote(path.rpartition("/")[2])
    text = f"{title}: " + "what is known about it. " * (80 + zlib.crc32(title.encode()) % 340)
    return "application/json", json.dumps({"title": title, "extract": text}).encode()


def listed(url, titles):
    """A title is its own id."""
    tables = "\n".join(f'[sources."{name}"]\n' for name in titles)
    return f'[upstream]\nurl = "{url}/page/summary/{{name}}"\n{tables}'


def habits(titles, topic=TOPIC):
    """Readers go on within a subject, and now and then to any other article."""
    n = len(titles)
    subject = np.arange(n) // topic
    near = (subject[:, None] == subject[None, :]).astype(float)
    return onoff.MarkovChain(0.7 * near / near.sum(axis=1, keepdims=True) + 0.3 / n, names=titles)


def main():
    total = spend_a_day(page, listed, habits(TITLES), DAY, "articles")
    print(f"{total} requests; always private would have taken {len(DAY) * len(TITLES)}")


if __name__ == "__main__":
    main()
