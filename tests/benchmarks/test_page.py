"""The benchmark of the page: it opens it, clicks, and sees a task that holds it up."""

import contextlib

import pytest

from benchmarks import page as benchmark

pytestmark = pytest.mark.browser


def test_it_reports_medians_ratios_and_long_tasks():
    report = benchmark.run(sources=40, rounds=1)
    few, many = report["cases"]
    assert (few["sources"], many["sources"]) == (12, 40)
    for step in ("paint", "list", "click"):
        assert few[f"{step}_ms"] > 0
        assert report["ratios"][step] == many[f"{step}_ms"] / few[f"{step}_ms"]
    assert report["ok"] == (max(few["longest_task_ms"], many["longest_task_ms"]) <= 200)
    assert "many to few: first paint" in benchmark.show(report)


def test_a_task_that_holds_the_page_up_is_counted(monkeypatch):
    from playwright.sync_api import sync_playwright

    wait = "const end = performance.now() + 300; while (performance.now() < end);"
    busy = f"addEventListener('click', () => {{ {wait} }}, true);"
    monkeypatch.setattr(benchmark, "WATCH", benchmark.WATCH + busy)
    with (
        benchmark.page_of(12) as address,
        sync_playwright() as playwright,
        contextlib.closing(
            playwright.chromium.launch(executable_path=benchmark.CHROMIUM, args=benchmark.FLAGS)
        ) as browser,
    ):
        assert benchmark.visit(browser, address)["long_tasks"] >= 1
