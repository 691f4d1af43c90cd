"""`make docs` makes HTML without a warning, in which every link inside the site leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import coterie
import coterie.testing.unittest
from docs.blocks import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the Makefile builds it."""
    out = tmp_path_factory.mktemp("site")
    command = ["-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "docs", str(out)]
    built = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0 and not built.stderr, built.stderr
    return out


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"href", "src"} and value and tag != "link":
                self.links.append(value)
            if name == "id" and value:
                self.anchors.add(value)


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    """Files and anchors, of what is shown and what is downloaded; addresses elsewhere are not asked."""
    seen = {path: Page(path.read_text()) for path in site.rglob("*.html")}
    lost = [
        f"{path.relative_to(site)}: {link}"
        for path, page in seen.items()
        for link in page.links
        if not _leads_somewhere(link, path, seen)
    ]
    assert len(seen) > 20 and not lost, lost


def _leads_somewhere(link: str, path: Path, seen: dict[Path, Page]) -> bool:
    there = urlsplit(link)
    if there.scheme or there.netloc:
        return True
    target = (path.parent / unquote(there.path)).resolve() if there.path else path
    if not target.exists():
        return False
    return not there.fragment or target not in seen or unquote(there.fragment) in seen[target].anchors


def test_every_public_name_is_in_the_api_reference() -> None:
    assert sorted(_named_on("api.rst")) == sorted({*coterie.__all__} - {"__version__"})
    assert sorted(_named_on("testing-api.rst")) == sorted({*coterie.testing.__all__, *coterie.testing.unittest.__all__})


def _named_on(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"^\.\. (?:auto)?(?:class|data|exception|function):: (\w+)", text, re.MULTILINE)


def test_every_page_is_in_the_table_of_contents(site: Path) -> None:
    contents = {link.partition("#")[0] for link in Page((site / "index.html").read_text()).links}
    sources = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.rst")]
    pages = {str(path.relative_to(ROOT / "docs").with_suffix(".html")) for path in sources}
    assert pages - {"index.html"} <= contents
