"""The recipe for Home Assistant: the configuration as printed, and a program that does what its REST sensor does.

The sensor asks by httpx: GET, the headers of its configuration and of Home Assistant, and takes a value out of the
JSON by a Jinja template with `value_json`. The other recipes of that page are run by tests/docs/test_pages.py.
"""

import contextlib

import httpx
import jinja2
import yaml
from tests.support.gateway import gateway
from tests.support.pages import ROOT, blocks
from tests.support.waiting import PATIENCE
from tests.support.website import Answer, website

from onoff import MarkovChain
from onoff.upstream.sources import Source, SourceList
from onoff.upstream.transport import origin_of
from onoff.upstream.web import Web

STOPS = {"Harbour": "/stops/17.json", "Market": "/stops/18.json", "Castle": "/stops/19.json"}
CHAIN = MarkovChain([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]], names=tuple(STOPS))


def sensor(site):
    """The configuration of the recipe, with the address of a gateway."""
    (text,) = [body for kind, body in blocks(ROOT / "docs/howto/recipes.md") if kind == "text"]
    (found,) = yaml.safe_load(text.replace("SITE", site))["sensor"]
    assert found["platform"] == "rest"
    return found


def scan(found):
    """One scan: the state of the sensor, and the answer."""
    headers = {"User-Agent": "HomeAssistant/2026.11 httpx", **found["headers"]}
    with httpx.Client(trust_env=False, timeout=PATIENCE) as client:
        answer = client.request(found["method"], found["resource"], headers=headers, follow_redirects=True)
    answer.raise_for_status()
    template = jinja2.Environment(autoescape=False).from_string(found["value_template"])
    return template.render(value=answer.text, value_json=answer.json()), answer


@contextlib.contextmanager
def city(folder):
    with website() as site:
        body = '{{"departures": [{{"line": "4", "minutes": {}}}]}}'
        site.answers = {
            path: Answer(body.format(3 + at).encode(), headers={"content-type": "application/json"})
            for at, path in enumerate(STOPS.values())
        }
        listed = tuple(Source(name, site.url + path) for name, path in STOPS.items())
        web = Web(SourceList(listed, hosts=frozenset({origin_of(site.url)}), every=3600.0))
        with gateway(folder, url=web, chain=CHAIN) as local:
            local.engine.refresher.first.result(PATIENCE)
            yield local, site


def test_the_sensor_reads_its_value_while_on_and_the_site_sees_nothing_of_it(tmp_path):
    with city(tmp_path) as (local, site):
        asked = list(site.targets)
        assert asked == list(STOPS.values())
        for _ in range(3):
            state, answer = scan(sensor(local.address.site))
            assert state == "3"
            assert answer.headers["content-type"] == "application/json"
        assert site.targets == asked


def test_while_off_each_scan_is_a_set_with_the_headers_of_the_gateway_alone(tmp_path):
    with city(tmp_path) as (local, site):
        local.turn(private=False)
        site.log.clear()
        state, _ = scan(sensor(local.address.site))
        assert state == "3"
        assert "/stops/17.json" in site.targets
        assert all("homeassistant" not in str(headers).lower() for _, _, headers in site.log)
        assert len({str({**headers, "if-none-match": ""}) for _, _, headers in site.log}) == 1
