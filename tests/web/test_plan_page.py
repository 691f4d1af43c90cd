"""The page of `coterie plan`: one file, with nothing from elsewhere, and with what was asked for in it."""

from __future__ import annotations

from coterie.forecast import Deploy, Forecast, Origin, Question, WorldCost, parse_group, variants_of
from coterie.web.plan_page import PlanPage, _labels

QUESTION = Question(
    parse_group({"members": 2, "topics": {"t<b>": {"partitions": 2, "records_per_s": 1}}}, "t"), Deploy()
)


def cost(seed: int, unread_s: float, rebalances: int, lag_s: float) -> WorldCost:
    return WorldCost(
        seed, rebalances, unread_s, unread_s, 1, lag_s, 1, 0.0, 0, 10.0, None, 1.0, 0, True, [0.0, lag_s, 0.0]
    )


def page() -> str:
    first, *others = variants_of(QUESTION, ["group.instance.id=each", "deploy.batch=2", "max.poll.records=9"])
    found = [
        Forecast(question, [cost(seed, unread_s, rebalances, 3.0) for seed in range(3)])
        for question, unread_s, rebalances in zip(
            [first, *others], (100.0, 50.0, 80.0, 90.0), (8, 4, 2, 9), strict=True
        )
    ]
    return PlanPage(
        "Plan for <orders>",
        "rolling deploy",
        found,
        found[1],
        "static members <are> better",
        ["group.instance.id=NAME"],
        {"members": Origin("measured", "by 2 & 3 samples")},
        {},
    ).html()


def test_the_page_is_one_file_in_which_names_are_escaped() -> None:
    html = page()
    assert "&lt;orders&gt;" in html and "<orders>" not in html and "static members &lt;are&gt; better" in html
    assert "<script" not in html and html.count("http") == html.count("http://www.w3.org/2000/svg")
    assert "measured: by 2 &amp; 3 samples" in html and "12 simulated worlds" in html
    assert "<pre>group.instance.id=NAME</pre>" in html


def test_the_frontier_outlines_what_no_other_variant_beats() -> None:
    """Static members have the fewest unread partition-seconds, and a batch of two the fewest rebalances."""
    dots = [line for line in page().splitlines() if line.startswith("<circle")]
    front = [line for line in dots if 'class="dot front"' in line]
    assert len(dots) == 4 and len(front) == 2
    assert any("group.instance.id=each" in line for line in front) and any("deploy.batch=2" in line for line in front)


def test_dots_have_the_numbers_of_the_table_and_near_ones_share_a_label() -> None:
    assert list(_labels([(1, 10.0, 10.0), (2, 200.0, 50.0), (3, 12.0, 8.0)])) == [
        ("1, 3", 12.0, 8.0),
        ("2", 200.0, 50.0),
    ]
    html = page()
    assert '<td class=n>4</td><td class="variant">max.<wbr>poll.<wbr>records=<wbr>9</td>' in html
    assert [f">{number}</text>" in html for number in range(1, 5)] == [True] * 4


def test_the_lag_has_a_line_for_each_variant_and_p90_for_the_group_as_it_is_and_for_the_best() -> None:
    html = page()
    assert html.count('<polyline class="line"') == 4 and html.count('<polyline class="line high"') == 2
    assert "2 group.<wbr>instance.<wbr>id=<wbr>each</li>" in html, "the key names lines by number and variant"
