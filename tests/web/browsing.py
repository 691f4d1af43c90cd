"""A real browser for tests: pages that keep what their console said and what they asked for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["AXE", "CHROMIUM", "Page", "needs_chromium", "opened"]

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium on this machine")
AXE = Path(__file__).parents[2] / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
"""Where `make axe` puts the accessibility checks."""
LOOK_EVERY_MS, LOOKS = 20, 4_500


class Page:
    """A page of the browser."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def until(self, expression: str) -> Any:
        """Return the value of an expression as soon as it is true."""
        for _ in range(LOOKS):
            value = self.page.evaluate(expression)
            if value:
                return value
            self.page.wait_for_timeout(LOOK_EVERY_MS)
        raise AssertionError(f"it never was so: {expression}; the console said {self.said}")

    def drawn(self) -> None:
        """Wait until the group of the page is drawn in all detail, and its texts are there."""
        self.until("!!(Coterie.open && Coterie.open.isWhole && document.querySelector('table.cards'))")


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@contextmanager
def opened(chromium: Any, url: str, *, width: int = 1200, scheme: str = "light") -> Iterator[Page]:
    page = chromium.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    found = Page(page)
    page.goto(url)
    yield found
    page.close()
