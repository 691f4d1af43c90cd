"""Take the pictures of docs/web.md: an empty, a small, a bad and a huge group. Look at them before you keep them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "bench"), str(HERE.parent / "tests")]

from coterie.diagnosis import Grade, GroupSample, PartitionLag  # noqa: E402
from coterie.facts import Fact  # noqa: E402
from coterie.web.groups import WatchedGroups, from_facts  # noqa: E402
from coterie.web.page import file_page  # noqa: E402
from web.browsing import browser, opened  # noqa: E402
from web.page_groups import BEGAN_MS, bad_group, huge_group, small_group  # noqa: E402

PICTURES = HERE / "screens"


def sampled(groups: WatchedGroups, name: str, topic: str, minutes: int, pauses: Iterable[tuple[int, int]]) -> None:
    """Add samples: the group keeps up, except in pauses, given in seconds. Its members are those at the end."""
    members = tuple(one.member_id for one in groups.groups[name].history.stays if not one.departure.is_known)
    stops = list(pauses)
    committed = 0
    for second in range(0, minutes * 60, 2):
        end = 400 * second
        if not any(first <= second < last for first, last in stops):
            committed = max(committed, min(end, committed + 2_600))
        at_ms = BEGAN_MS + second * 1_000
        lag = PartitionLag(topic, 0, committed, end, "a")
        groups.add_samples({name: GroupSample(at_ms, "Stable", 1, members, "1", (lag,))})


def main() -> None:
    bad: list[Fact] = list(chain(small_group(), bad_group()))
    shown = from_facts(bad, Grade.OBSERVED, "broker", title="Consumer groups")
    sampled(shown, "billing", "orders", 4, [(90, 137), (180, 181)])
    sampled(shown, "payments", "payments", 24, [(60 + 50 * turn, 70 + 50 * turn) for turn in range(24)])
    empty = from_facts([], Grade.OBSERVED, "broker", title="Consumer groups")
    huge = from_facts(huge_group(), Grade.OBSERVED, "broker", title="Consumer groups") if "--huge" in sys.argv else None
    story = f"#/group/billing?rebalance=4.{BEGAN_MS + 135_000}"
    wanted = [
        ("page-empty", empty, "", 900, "light"),
        ("page-groups", shown, "", 1200, "light"),
        ("page-small", shown, story, 1200, "light"),
        ("page-bad", shown, "#/group/payments", 1200, "dark"),
        ("page-narrow", shown, "#/group/billing", 360, "light"),
        ("page-huge", huge, "#/group/clickstream", 1200, "light"),
    ]
    with tempfile.TemporaryDirectory() as home, browser() as chromium:
        for name, groups, place, width, scheme in wanted:
            if groups is None:
                continue
            found = [groups.detail(group, with_stories=True) for group in groups.groups]
            file = Path(home) / "page.html"
            details = [one for one in found if one is not None]
            file.write_text(file_page("Consumer groups", groups.list(), details, "", ""))
            with opened(chromium, file.as_uri() + place, width=width, scheme=scheme) as page:
                if place:
                    page.drawn()
                high = {"page-empty": 260, "page-groups": 330, "page-narrow": 1_250}.get(name, 1_200)
                page.page.set_viewport_size({"width": width, "height": high})
                page.page.wait_for_timeout(400)
                page.page.screenshot(path=PICTURES / f"{name}.png")
                print(f"{name}.png: {page.said or 'the console said nothing'}")


if __name__ == "__main__":
    main()
