"""The walk of a newcomer: the built wheel in a clean environment, a list of feeds, two commands, and reading.

The environment is a fresh one with the wheel in it. What the wheel depends on is lent to it from the environment of the
tests, so that nothing is downloaded; `onoff` itself is not, and the walk checks that the wheel's files are what runs.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.typed import present
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.browser, pytest.mark.slow(reason="builds a wheel, and starts two programs and a browser")]

ROOT = Path(__file__).parents[2]
FEEDS = 40
ENTRY = (
    "<item><title>Story {k} of {title}</title><link>https://news.example/{number}/{k}</link>"
    "<pubDate>Mon, {day:02} Jan 2024 08:00:00 GMT</pubDate><description>&lt;p&gt;Text {k} of {title}.&lt;/p&gt;"
    "</description></item>"
)


def title_of(number):
    return f"Paper {number}" if number < FEEDS - 1 else "Paper 0"  # the last has the title of the first


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this source tree."""
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], cwd=ROOT, check=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean(wheel, tmp_path_factory):
    """The folder of commands of an environment that has the wheel and its dependencies."""
    place = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    python = place / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", "--no-deps", "--quiet"]
    subprocess.run([*install, str(wheel)], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    # Lines of a .pth are only folders: what an editable install left in there is not followed.
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


@pytest.fixture
def at_home(tmp_path):
    """Variables of a user who has nothing yet."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "XDG_", "ONOFF_", "COV_"))
    }
    (tmp_path / "home").mkdir()
    return {**kept, "HOME": str(tmp_path / "home")}


@pytest.fixture
def site(tmp_path):
    """A folder of feeds on a web server; its address."""
    folder = tmp_path / "site"
    folder.mkdir()
    for number in range(FEEDS):
        title = title_of(number)
        entries = "".join(ENTRY.format(k=k, title=title, number=number, day=10 - k) for k in range(3))
        (folder / f"{number}.xml").write_text(
            f"<rss version='2.0'><channel><title>{title}</title>{entries}</channel></rss>"
        )

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@contextlib.contextmanager
def command(clean, at_home, *words):
    """A command of the wheel while it runs; gives the lines that it prints."""
    process = subprocess.Popen(
        [str(clean / "onoff"), *words], env=at_home, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process.stdout
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def test_the_wheel_holds_all_that_the_page_needs(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("gateway/static", "gateway/templates"):
        wanted = {f"onoff/{folder}/{path.name}" for path in (ROOT / "src" / "onoff" / folder).iterdir()}
        assert wanted <= held
    assert "onoff/py.typed" in held


def test_from_the_wheel_and_a_list_of_feeds_to_reading_in_two_commands(clean, at_home, site, tmp_path, visitor):
    told = subprocess.run(
        [str(clean / "python"), "-c", "import onoff; print(onoff.__file__)"],
        env=at_home,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert Path(told.stdout.strip()).is_relative_to(clean.parent)
    outlines = "".join(f'<outline type="rss" text="{title_of(k)}" xmlUrl="{site}/{k}.xml"/>' for k in range(FEEDS))
    (tmp_path / "list.opml").write_text(f'<opml version="2.0"><head/><body>{outlines}</body></opml>')
    with (
        command(clean, at_home, "serve", "--feeds", str(tmp_path / "list.opml"), "--port", "0") as served,
        command(clean, at_home, "gateway", "--server", served.readline().strip(), "--port", "0") as gateway,
    ):
        page = present(re.fullmatch(r"the page:  (http://\S+)\n", gateway.readline())).group(1)
        visit = visitor(viewport={"width": 1280, "height": 900})
        visit.page.goto(page)
        visit.see(f"#show-all:text-is('All {FEEDS}')")
        visit.see(f"#show-new:text-is('New {FEEDS}')")  # all were fetched, and nobody pressed anything
        assert visit.text("#word") == "ON"
        for name in ("Paper 7", "Paper 0", "Paper 0 2"):
            visit.page.fill("#filter", name)
            visit.choose(name)
            visit.see("#message-body[data-ready=true]")
            heads = visit.page.locator("#message-body h3").all_inner_texts()
            assert heads == [f"Story {k} of {name.removesuffix(' 2')}" for k in range(3)]
            text = visit.page.frame_locator("#message-body iframe").first.locator("p").inner_text()
            assert text == f"Text 0 of {name.removesuffix(' 2')}."
        assert "nobody was asked" in visit.text("#message-about")
        visit.turn("OFF")
        visit.page.fill("#filter", "Paper 12")
        visit.choose("Paper 12")
        visit.page.fill("#filter", "")
        visit.see(f"#show-new:text-is('New {FEEDS - 4}')")
        assert visit.complaints == []
        if where := os.environ.get("ONOFF_WALK_SCREENS"):
            visit.page.screenshot(path=f"{where}/walk-1280.png")
            visit.page.set_viewport_size({"width": 390, "height": 844})
            visit.page.screenshot(path=f"{where}/walk-390.png", full_page=True)
    kept = [json.loads(path.read_bytes()) for path in (tmp_path / "home").rglob("*.switch.json")]
    assert len(kept) == 1
