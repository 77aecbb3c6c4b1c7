"""Take the screenshots of the gateway's page again: `.venv/bin/python docs/screenshots/take.py`."""

import contextlib
import json
from pathlib import Path
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from onoff.cli.demo import city_running
from onoff.cli.demo_city import RIDE, city_chain, ride
from onoff.gateway.run import Address
from onoff.model.patterns import parse

HERE = Path(__file__).parent
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
CLOSE = {("desktop", "light"), ("phone", "dark")}
SIZES = {"desktop": (1280, 1420), "phone": (390, 844)}
OPENER = build_opener(ProxyHandler({}))


def main() -> None:
    """A ride as in the demo, then the page at both widths and in both colours, and each state of the switch."""
    chain, statuses = city_chain(), parse(RIDE)
    wanted = ride(chain, len(statuses), np.random.default_rng(7))
    pages: list[tuple[Page, str]] = []
    with contextlib.ExitStack() as gateway, contextlib.ExitStack() as rest:
        _, address = gateway.enter_context(city_running(chain, "greedy", 0))
        playwright = rest.enter_context(sync_playwright())
        for x, private in zip(wanted, statuses, strict=True):
            call(address, "PUT", "/v1/privacy", {"private": private})
            call(address, "GET", f"/v1/entries/{quote(chain.names[x])}")
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        for colours in ("light", "dark"):
            for size in SIZES:
                call(address, "PUT", "/v1/privacy", {"private": False})
                page = visit(browser, address, size, colours)
                while True:
                    call(address, "PUT", "/v1/privacy", {"private": True})
                    call(address, "GET", "/v1/entries/Clinic")
                    call(address, "PUT", "/v1/privacy", {"private": False})
                    page.wait_for_selector("body[data-state=off]")
                    page.click(".tile[data-source=Castle]")
                    page.wait_for_selector("#message-title:text-is('Castle')")
                    page.wait_for_selector("#message-body[data-ready=true]", state="attached")
                    page.wait_for_selector("#map [data-wanted=Castle]")
                    page.wait_for_timeout(500)
                    if page.locator("#map .asked").count() in range(3, 13):  # some sets are of one
                        break
                page.wait_for_selector("#map-ours .share")
                page.evaluate("scrollTo(0, 0)")
                page.screenshot(path=HERE / f"{size}-{colours}.png", full_page=size == "phone")
                page.click("#evidence > summary")
                page.wait_for_selector("#seen svg")
                page.locator("#evidence").screenshot(path=HERE / f"evidence-{size}-{colours}.png")
                if (size, colours) not in CLOSE:
                    continue
                page.click("#switch")
                page.wait_for_selector("body[data-state=on]")
                hero(page, f"switch-{size}-{colours}-on.png")
                page.click(".timing > summary")
                page.select_option("#timer-for", "300")
                page.click("#timer-start")
                page.wait_for_selector("#countdown:has-text('OFF for another')")
                hero(page, f"switch-{size}-{colours}-off.png")
                page.click("#switch")
                page.wait_for_selector("body[data-state=on]")
                pages.append((page, f"switch-{size}-{colours}-gone.png"))
        gateway.close()
        for page, name in pages:
            page.wait_for_selector("body[data-state=gone]")
            hero(page, name)
        browser.close()


def call(address: Address, method: str, path: str, body: dict[str, bool] | None = None) -> None:
    headers = {"Authorization": f"Bearer {address.guard.page}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    OPENER.open(Request(address.base + path, data, headers, method=method), timeout=600).close()


def visit(browser: Browser, address: Address, size: str, colours: str) -> Page:
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=colours)
    page = context.new_page()
    page.goto(address.page)
    page.wait_for_selector("body[data-state=off]")
    page.wait_for_selector(".tile")
    return page


def hero(page: Page, name: str) -> None:
    page.locator(".hero").screenshot(path=HERE / name)


if __name__ == "__main__":
    main()
