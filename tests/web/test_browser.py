"""The page in a real browser: light and dark, wide and narrow, with nothing on its console and nothing off its edge."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from coterie.web import report
from web.test_report import story

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium on this machine")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_is_readable(browser: Any, tmp_path: Path, scheme: Literal["light", "dark"], width: int) -> None:
    (tmp_path / "report.html").write_text(report("Rebalances", story("a rather long name of an application")))
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800})
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / "report.html").as_uri())
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == [], "it needs nothing from elsewhere"
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
    ink, paper = (_lightness(page, f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor"))
    assert (paper < ink) == (scheme == "dark") and abs(paper - ink) > 150
    bars = page.locator("svg .bar")
    assert bars.count() == 4
    assert bars.first.bounding_box()["height"] > 8, "large enough to be seen"
    assert page.locator("table.rebalances tbody tr").count() == 3
    page.close()


def _lightness(page: Any, expression: str) -> float:
    red, green, blue = (int(part) for part in page.evaluate(expression).removeprefix("rgb(").rstrip(")").split(","))
    return 0.3 * float(red) + 0.6 * green + 0.1 * blue
