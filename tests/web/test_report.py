"""The page says what the ledger says, is well-formed, and takes nothing a client says for markup."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from coterie.facts import (
    CONSUMER,
    AssignmentStored,
    Cause,
    Fact,
    GroupDowngraded,
    GroupLoaded,
    GroupUpgraded,
    MemberAssigned,
    MemberJoined,
    MemberLeft,
    RebalanceStarted,
    TargetAssignmentComputed,
)
from coterie.ledger import fold, intervals_of
from coterie.ledger.derived import DerivedCause, MemberGone, RebalanceSeen
from coterie.protocol.subscription import Assignment, write_assignment
from coterie.web import picture, report
from coterie.web.picture import MemberNames
from coterie.web.report import Section


def story(client_id: str = "app") -> list[Fact]:
    """First a has both partitions; b comes and takes one; a leaves and b has both."""

    def owns(*numbers: int) -> bytes:
        return write_assignment(Assignment({"orders": list(numbers)}))

    return [
        MemberJoined(1_000, "g", "a-id", None, client_id, "h"),
        RebalanceStarted(1_000, "g", Cause.NEW_MEMBER, "a-id", None, 0, []),
        AssignmentStored(1_500, "g", 1, {"a-id": owns(0, 1)}),
        MemberJoined(4_000, "g", "b-id", "static-b", client_id, "h"),
        RebalanceStarted(4_000, "g", Cause.NEW_MEMBER, "b-id", None, 1, ["a-id"]),
        AssignmentStored(4_200, "g", 2, {"a-id": owns(0), "b-id": owns(1)}),
        RebalanceStarted(8_000, "g", Cause.MEMBER_LEFT, "a-id", "the consumer is being closed", 2, ["b-id"]),
        MemberLeft(8_000, "g", "a-id", None, "the consumer is being closed"),
        AssignmentStored(11_000, "g", 3, {"b-id": owns(0, 1)}),
    ]


class Checker(HTMLParser):
    """Every element is closed in order; keeps the text."""

    VOID = frozenset({"meta", "link", "br", "rect", "line"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, _attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, _attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_tells_cause_member_moves_and_cost_of_every_rebalance() -> None:
    page = Checker(report("Rebalances", story()))
    assert page.text.count("new member") >= 2 and "the consumer is being closed" in page.text
    assert "3 rebalances in 1 group" in page.text
    assert "3.00 s" in page.text  # partition 0 had nobody from 8.0 to 11.0
    assert "Not counted: time before a crashed member" in page.text  # what that figure is of


def test_the_picture_has_a_bar_for_each_interval_and_a_mark_for_each_rebalance() -> None:
    facts = story()
    drawing = picture(intervals_of(facts), fold(facts), MemberNames(facts))
    svg = ET.fromstring(drawing)
    classes = [element.get("class") for element in svg.iter()]
    assert classes.count("bar") == len(intervals_of(facts)) == 4
    assert classes.count("rebalance") == 3
    bars = [element for element in svg.iter() if element.get("class") == "bar"]
    ends = [float(bar.get("x", 0)) + float(bar.get("width", 0)) for bar in bars]
    assert sorted(ends)[-2:] == pytest.approx([944, 944], abs=0.6)  # what b still has goes on to the edge


def test_a_gap_in_a_row_is_as_long_as_nobody_owned_it() -> None:
    facts = story()
    svg = ET.fromstring(picture(intervals_of(facts), fold(facts), MemberNames(facts)))
    first_row = min(float(element.get("y", 0)) for element in svg.iter() if element.get("class") == "bar")
    bars = sorted(
        (float(element.get("x", 0)), float(element.get("width", 0)))
        for element in svg.iter()
        if element.get("class") == "bar" and float(element.get("y", 0)) == first_row
    )
    (x, width), (next_x, _) = bars
    whole = 960 - 110 - 16
    assert next_x - (x + width) == pytest.approx(whole * 3_000 / 10_000, abs=0.3)


@pytest.mark.parametrize("odd", ["<script>alert(1)</script>", '"><img src=x onerror=y>', "a&b", "\N{SNOWMAN}"])
def test_what_a_client_calls_itself_is_shown_and_never_run(odd: str) -> None:
    page = Checker(report(odd, story(odd), note=odd, sections=[Section(odd, [[odd], [odd]])]))
    assert page.text.count(odd) >= 4
    assert "script" not in page.tags and "img" not in page.tags


def test_members_of_the_same_name_are_told_apart_and_static_ones_go_by_their_instance() -> None:
    names = MemberNames([MemberJoined(0, "g", f"m{number}", None, "app", "h") for number in range(3)])
    assert [names.of(f"m{number}") for number in range(3)] == ["app", "app #2", "app #3"]
    assert MemberNames(story()).of("b-id") == "static-b"
    assert MemberNames().of("client-" + "0" * 36) == "client"


def test_a_page_about_nothing_says_so() -> None:
    page = Checker(report("Rebalances", []))
    assert "Nothing was recorded" in page.text and "No group has rebalanced" in page.text


def test_of_rebalances_derived_from_a_log_the_page_says_what_is_unknown() -> None:
    def owns(*numbers: int) -> bytes:
        return write_assignment(Assignment({"orders": list(numbers)}))

    def seen(at_ms: int, cause: Cause | DerivedCause, member_id: str, reason: str | None, generation: int) -> Fact:
        return RebalanceSeen(at_ms, "g", cause, member_id, reason, generation - 1, [], generation, "range", "a")

    told = [
        seen(1_000, Cause.NEW_MEMBER, "a", None, 1),
        AssignmentStored(1_000, "g", 1, {"a": owns(0), "b": owns(1)}),
        seen(4_000, DerivedCause.MEMBER_GONE, "b", None, 2),
        MemberGone(4_000, "g", "b", None),
        AssignmentStored(4_000, "g", 2, {"a": owns(0, 1)}),
        seen(9_000, DerivedCause.UNKNOWN, "", "2 generations were not logged", 5),
        AssignmentStored(9_000, "g", 5, {"a": owns(0)}),
    ]
    text = Checker(report("Kafka", told)).text
    assert "b: disappeared (left, crashed or timed out: the log does not say)" in text and "b: left" not in text
    assert "unknown" in text and "2 generations were not logged" in text and "leader rejoined" not in text
    assert "before 3.0 s" in text and "0.00 s" not in text and "0 ms" not in text.replace("before 0 ms", "")
    assert "unknownlongest rebalance" in text.replace("\n", "") and "0.0partition" not in text.replace("\n", "")
    later = [
        *told,
        seen(11_500, Cause.NEW_MEMBER, "c", None, 6),
        AssignmentStored(11_500, "g", 6, {"a": owns(0), "c": owns(1)}),
    ]
    assert "at least 2.50 s" in Checker(report("Kafka", later)).text


def test_a_consumer_group_has_epochs_its_own_phases_and_the_members_that_were_waited_for() -> None:
    """K13: a has t-0 to t-3; b joins; a revokes two of them after 2 s, and b takes them 2 s later."""
    told: list[Fact] = [
        MemberJoined(0, "g", "a-id", None, "a", "h"),
        RebalanceStarted(0, "g", Cause.NEW_MEMBER, "a-id", None, 1, ["a-id"], CONSUMER),
        TargetAssignmentComputed(0, "g", 2, "uniform"),
        MemberAssigned(0, "g", "a-id", 2, "Stable", {"t": [0, 1, 2, 3]}, {}),
        AssignmentStored(0, "g", 2, {"a-id": write_assignment(Assignment({"t": [0, 1, 2, 3]}))}),
        MemberJoined(1_000, "g", "b-id", None, "b", "h"),
        RebalanceStarted(1_000, "g", Cause.NEW_MEMBER, "b-id", None, 2, ["a-id", "b-id"], CONSUMER),
        TargetAssignmentComputed(1_500, "g", 3, "uniform"),
        MemberAssigned(1_500, "g", "b-id", 3, "UnreleasedPartitions", {}, {}),
        MemberAssigned(2_000, "g", "a-id", 2, "UnrevokedPartitions", {"t": [0, 1]}, {"t": [2, 3]}),
        MemberAssigned(3_000, "g", "a-id", 3, "Stable", {"t": [0, 1]}, {}),
        MemberAssigned(5_000, "g", "b-id", 3, "Stable", {"t": [2, 3]}, {}),
    ]
    page = report("Rebalances", told)
    text = Checker(page).text
    assert "<th>epoch</th><th>assigning</th><th>reconciling</th>" in page.replace("\n", "")
    assert "a revoked: 2.0 s" in text and "500 ms" in text
    assert [one.began_ms for one in intervals_of(told)] == [0, 0, 0, 0, 5_000, 5_000]
    svg = ET.fromstring(picture(intervals_of(told), fold(told)))
    assert [element.get("class") for element in svg.iter() if "phase" in element.get("class", "")] == []
    told.append(AssignmentStored(5_000, "g", 3, {}))
    svg = ET.fromstring(picture(intervals_of(told), fold(told)))
    widths = [float(one.get("width", 0)) for one in svg.iter() if one.get("class", "").startswith("phase")]
    assert widths == pytest.approx([834 * 0.1, 834 * 0.7], abs=0.2), "of 5 s, 500 ms and 3.5 s"


def test_a_rebalance_says_when_its_coordinator_restarted() -> None:
    """K27: a consumer group goes on."""
    facts: list[Fact] = [
        RebalanceStarted(0, "g", Cause.NEW_MEMBER, "a-id", None, 1, [], CONSUMER),
        GroupLoaded(3_000, "g", "Reconciling", 2, ["a-id"], 0, {}, CONSUMER),
        MemberAssigned(5_000, "g", "a-id", 2, "Stable", {"t": [0]}, {}),
        AssignmentStored(5_000, "g", 2, {"a-id": write_assignment(Assignment({"t": [0]}))}),
    ]
    text = Checker(report("Rebalances", facts)).text
    assert "stablecoordinator restarted after 3.0 s" in text
    assert "5.0 s" in text and "restarted" not in Checker(report("Rebalances", [facts[0], *facts[2:]])).text


def test_upgrades_and_downgrades_have_rows_between_the_rebalances() -> None:
    """K24, K26: in the order of their times, with the member behind them."""
    facts = [
        *story(),
        MemberJoined(20_000, "g", "z-id", None, "<z>", "h"),
        GroupUpgraded(20_000, "g", "z-id", 3, 3, ["b-id"]),
        RebalanceStarted(20_000, "g", Cause.NEW_MEMBER, "z-id", None, 3, ["b-id"], CONSUMER),
        GroupDowngraded(25_000, "g", "z-id", 4, 4, []),
        GroupUpgraded(25_000, "other", "", 1, 1, []),
    ]
    page = Checker(report("Rebalances", facts))
    upgrade = page.text.index("upgraded to a consumer group (KIP-848)<z>31 classic member stayed")
    downgrade = page.text.index("downgraded to a classic group<z>4it was empty")
    assert page.text.index("the consumer is being closed") < upgrade < downgrade
    assert page.text.count("graded to a c") == 2, "of this group alone"
    assert "4 rebalances in 1 group" in page.text
