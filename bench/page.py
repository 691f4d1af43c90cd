"""Measure the page: open a group of 10 000 partitions and 1 000 rebalances in Chromium, then pan and zoom it.

It prints how long the fold of the facts took, the size of what is sent, the time from opening the page until it is
drawn in all detail, and how many frames a second are drawn while it is panned.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

from coterie.diagnosis import Grade  # noqa: E402
from coterie.web.groups import from_facts  # noqa: E402
from coterie.web.page import file_page  # noqa: E402
from web.browsing import browser  # noqa: E402
from web.page_groups import huge_group  # noqa: E402

PAN = """async (seconds) => {
  const page = Coterie.open;
  const took = [];
  let last = performance.now();
  const until = last + seconds * 1000;
  let by = 0.004;
  while (last < until) {
    page.view.panBy(by);
    if (page.view.from < page.history.from || page.view.to > page.history.to) by = -by;
    await new Promise((done) => requestAnimationFrame(done));
    const now = performance.now();
    took.push(now - last);
    last = now;
  }
  took.sort((a, b) => a - b);
  return {frames: took.length, median: took[took.length >> 1], slowest: took[Math.floor(took.length * 0.99)]};
}"""
OPENED = """() => new Promise((done) => {
  const look = () => (Coterie.open && Coterie.open.isWhole ? done(performance.now()) : requestAnimationFrame(look));
  look();
})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--rebalances", type=int, default=1_000)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long it is panned")
    parser.add_argument("--keep", type=Path, help="write the page there, or use the one that is there")
    parser.add_argument("--picture", type=Path, help="write a screenshot there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        file = options.keep or Path(home) / "page.html"
        if not file.exists():
            began_s = time.process_time()
            facts = huge_group(options.partitions, options.rebalances, options.members)
            groups = from_facts(facts, Grade.OBSERVED, "broker", title="Consumer groups")
            detail = groups.detail("clickstream", with_stories=True)
            assert detail is not None
            file.write_text(file_page("Consumer groups", groups.list(), [detail], "", ""))
            print(f"folded and written in {time.process_time() - began_s:.1f} s of CPU")
            print(f"{detail['rebalances']} rebalances, {sum(len(one['times']) for one in detail['blocks'])} columns")
        print(f"{file.stat().st_size / 1e6:.1f} MB")
        with browser() as chromium:
            page = chromium.new_page(viewport={"width": 1400, "height": 900})
            page.goto(f"{file.as_uri()}#/group/clickstream")
            print(f"opened and drawn after {page.evaluate(OPENED):.0f} ms")
            if options.picture:
                page.wait_for_timeout(500)
                page.screenshot(path=options.picture)
            for name, zoom in (("everything", 1.0), ("a tenth", 0.1), ("a hundredth", 0.01)):
                page.evaluate("(zoom) => { Coterie.open.view.fit(); Coterie.open.view.zoomBy(zoom); }", zoom)
                found = page.evaluate(PAN, options.seconds)
                rate = 1_000 * found["frames"] / (options.seconds * 1_000)
                print(
                    f"panning {name}: {rate:.0f} frames a second; a frame takes {found['median']:.1f} ms, "
                    f"one of a hundred {found['slowest']:.1f} ms"
                )


if __name__ == "__main__":
    main()
