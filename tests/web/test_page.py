"""The page in a real browser: live, by keyboard, wide and narrow, light and dark, from a server and as one file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coterie.diagnosis import Grade, GroupSample, PartitionLag
from coterie.facts import Fact
from coterie.web.app import WebApp
from coterie.web.groups import WatchedGroups, from_facts
from coterie.web.page import file_page
from coterie.web.web_server import WebAddress, WebServer
from web.browsing import AXE, browser, needs_chromium, opened
from web.page_groups import bad_group, small_group

pytestmark = needs_chromium
ODD = '<img src=x onerror="document.title=1">'
ROWS = "document.querySelectorAll('table.cards tbody tr').length"
VIEW = "[Coterie.open.view.from, Coterie.open.view.to]"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture
def groups() -> WatchedGroups:
    return from_facts([*small_group(), *bad_group()], Grade.OBSERVED, "broker", title="Consumer groups")


@pytest.fixture
def url(groups: WatchedGroups) -> Iterator[str]:
    address = WebAddress("127.0.0.1", 0, "")
    with WebServer(WebApp(groups).guarded(), address) as server:
        yield server.url


def test_a_rebalance_appears_live(chromium: Any, groups: WatchedGroups, url: str) -> None:
    """The last rebalance happens while the page is open; nothing is reloaded."""
    facts = list(small_group())
    fresh: list[Fact] = []
    for fact in facts:
        fact.group_id = "fresh"
        fresh.append(fact)
    for fact in fresh[:-7]:
        groups.tell(fact)
    with opened(chromium, url) as page:
        page.until("document.querySelectorAll('table.cards tbody tr').length === 3")
        page.page.click("text=fresh")
        page.drawn()
        before = page.page.evaluate("Coterie.open.history.rows.length")
        asked = len(page.asked)
        for fact in fresh[-7:]:
            groups.tell(fact)
        page.until(f"Coterie.open.history.rows.length > {before}")
        page.until(f"{ROWS} === {before} + 1")
        assert page.said == [] and all("api/groups/fresh" in one for one in page.asked[asked:])


def test_the_worst_group_is_first_and_leads_to_its_page(chromium: Any, url: str) -> None:
    with opened(chromium, url) as page:
        page.until(f"{ROWS} === 2")
        first = page.page.locator("table.cards tbody tr").first
        assert "payments" in first.inner_text() and "slow-processing" in first.inner_text()
        first.locator("a").click()
        page.drawn()
        assert "payments" in page.page.url and page.page.locator(".finding").count() == 3
        assert page.said == []


def test_everything_can_be_done_by_keyboard(chromium: Any, url: str) -> None:
    with opened(chromium, f"{url}/#/group/billing") as page:
        page.drawn()
        page.page.focus(".bands")
        keyboard = page.page.keyboard
        start, end = page.page.evaluate(VIEW)
        keyboard.press("+")
        zoomed = page.page.evaluate(VIEW)
        assert start < zoomed[0] < zoomed[1] < end
        keyboard.press("ArrowLeft")
        assert page.page.evaluate(VIEW)[0] < zoomed[0]
        keyboard.press("Home")
        assert page.page.evaluate(VIEW) == [start, end]
        keyboard.press("n")
        page.until("document.querySelector('.story h3')?.textContent === 'Rebalance to generation 1'")
        keyboard.press("n")
        page.until("document.querySelector('.story h3')?.textContent === 'Rebalance to generation 2'")
        page.until("location.hash.includes('rebalance=2.')")
        keyboard.press("PageUp")
        assert page.page.evaluate("Coterie.open.view.lastRow - Coterie.open.view.firstRow") == 4
        keyboard.press("Escape")
        page.until("document.querySelector('.story') === null")
        assert page.said == []


def test_a_click_on_a_rebalance_tells_its_story_with_evidence(chromium: Any, url: str) -> None:
    with opened(chromium, f"{url}/#/group/billing") as page:
        page.drawn()
        x = page.page.evaluate(
            "(() => { const o = Coterie.open;"
            " const row = o.history.rows.find((one) => one.cause === 'session expired');"
            " const area = o.area('owners'); return area.left + o.view.xOf(row.began, area.width) + 1; })()"
        )
        page.page.click("#band-rebalances", position={"x": x, "y": 68 * 5 / 8})
        page.until("document.querySelector('.story')?.textContent.includes('session expired')")
        story = page.page.locator(".story").inner_text()
        assert "billing-2" in story and "observed" in story and "unknown" in story
        assert page.said == []


def test_a_link_leads_to_its_moment_and_dragging_moves_it(chromium: Any, url: str) -> None:
    first_ms = 1_794_900_000_000
    with opened(chromium, f"{url}/#/group/billing?from={first_ms + 10_000}&to={first_ms + 30_000}&rows=1-4") as page:
        page.drawn()
        assert page.page.evaluate(VIEW) == [first_ms + 10_000, first_ms + 30_000]
        assert page.page.evaluate("[Coterie.open.view.firstRow, Coterie.open.view.lastRow]") == [1, 4]
        box = page.page.locator("#band-cost").bounding_box()
        page.page.mouse.move(box["x"] + 500, box["y"] + 30)
        page.page.mouse.down()
        page.page.mouse.move(box["x"] + 400, box["y"] + 30, steps=4)
        page.page.mouse.up()
        page.until(f"{VIEW}[0] > {first_ms + 10_000}")
        page.until(f"location.hash.includes('from=') && !location.hash.includes('from={first_ms + 10_000}&')")
        page.page.reload()
        page.drawn()
        assert page.page.evaluate(VIEW)[0] > first_ms + 10_000
        assert page.said == []


def test_owners_gaps_and_dead_time_are_drawn_where_they_were(chromium: Any, url: str) -> None:
    """The colours of pixels: an owner, red while nobody reads, and hatched while its owner is silent."""
    first_ms = 1_794_900_000_000
    look = """(at) => { const o = Coterie.open; const canvas = o.canvases.owners; const area = o.area('owners');
        const ratio = canvas.width / o.bands.clientWidth; const x = (area.left + o.view.xOf(at[0], area.width)) * ratio;
        const y = area.height * ratio * (at[1] + 0.85) / (o.view.lastRow - o.view.firstRow);
        return [...canvas.getContext('2d').getImageData(Math.round(x), Math.round(y), 8, 1).data]; }"""
    with opened(chromium, f"{url}/#/group/billing?from={first_ms}&to={first_ms + 140_000}") as page:
        page.drawn()

        def pixels(at_ms: int, row: int) -> list[tuple[int, ...]]:
            data = page.page.evaluate(look, [at_ms, row])
            return [tuple(data[index : index + 3]) for index in range(0, len(data), 4)]

        assert len(set(pixels(first_ms + 60_000, 2))) == 1, "one owner, one colour"
        assert pixels(first_ms + 60_000, 2)[0] != pixels(first_ms + 60_000, 0)[0] != pixels(first_ms + 60_000, 5)[0]
        assert len(set(pixels(first_ms + 110_000, 2))) > 1, "hatched: silent since 90 s"
        assert len(set(pixels(first_ms + 110_000, 0))) == 1, "others go on"
        page.page.evaluate(f"Coterie.open.view.show({first_ms + 135_000}, {first_ms + 137_000})")
        page.until("Coterie.open.isWhole")
        page.page.wait_for_timeout(100)
        red, green, blue = pixels(first_ms + 135_500, 2)[0]
        assert red > 180 and green < 80 and blue < 90, "nobody reads it until 136.3 s"


@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_readable(chromium: Any, tmp_path: Path, width: int, scheme: str) -> None:
    """As one file: nothing sticks out, nothing is asked for, names of clients are texts."""
    facts = list(small_group())
    for fact in facts:
        if hasattr(fact, "client_id"):
            fact.client_id = ODD
    groups = from_facts(facts, Grade.OBSERVED, "broker", title=ODD, note=ODD)
    partitions = (PartitionLag("orders", 0, 5, 9, "a"),)
    groups.add_samples({"billing": GroupSample(1_794_900_200_000, "Stable", 3, ("a",), "1", partitions)})
    detail = groups.detail("billing", with_stories=True)
    assert detail is not None
    (tmp_path / "page.html").write_text(file_page(ODD, groups.list(), [detail], "<p>tables</p>", ""))
    where = (tmp_path / "page.html").as_uri()
    with opened(chromium, where, width=width, scheme=scheme) as page:
        for hash_ in ("", f"#/group/billing?rebalance=4.{1_794_900_135_000}"):
            page.page.goto(where + hash_)
            page.until(f"{ROWS} > 0")
            assert page.page.evaluate("document.documentElement.scrollWidth") <= width
        page.drawn()
        page.until("document.querySelector('.story') !== null")
        assert page.page.evaluate("document.title") == ODD and page.page.locator("img").count() == 0
        assert ODD in page.page.locator(".legend").inner_text()
        dark = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (dark == "rgb(18, 22, 28)") == (scheme == "dark")
        page.page.click("#theme")  # light
        page.page.click("#theme")  # dark
        page.until("getComputedStyle(document.body).backgroundColor === 'rgb(18, 22, 28)'")
        assert page.said == [] and [one for one in page.asked if not one.startswith(("file:", "data:"))] == []


def test_a_page_without_groups_says_so(chromium: Any) -> None:
    address = WebAddress("127.0.0.1", 0, "")
    with WebServer(WebApp(WatchedGroups()).guarded(), address) as server, opened(chromium, server.url) as page:
        page.until("document.body.innerText.includes('No group has been seen yet.')")
        page.page.goto(f"{server.url}/#/group/none")
        page.until("document.body.innerText.includes('There is no group none.')")
        assert [one for one in page.said if "404" not in one] == []


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not here: make axe brings it with npm")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(chromium: Any, url: str, scheme: str) -> None:
    """WCAG 2 A and AA, as far as axe can tell."""
    for hash_ in ("", "#/group/payments", f"#/group/billing?rebalance=4.{1_794_900_135_000}"):
        page = chromium.new_context(bypass_csp=True, color_scheme=scheme).new_page()
        page.goto(f"{url}/{hash_}")
        for _ in range(1_000):
            page.wait_for_timeout(50)
            if page.evaluate(f"{ROWS} > 0"):
                break
        page.add_script_tag(content=AXE.read_text())
        found = page.evaluate("axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']})")
        told = [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in found["violations"]]
        assert told == []
        page.context.close()
