"""What the page gets: groups worst first, lag in seconds, stories; and that a long history stays small."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from coterie.diagnosis import Grade, GroupSample, PartitionLag
from coterie.facts import RebalanceStarted
from coterie.web.groups import WatchedGroups, from_facts
from coterie.web.lag import MOST_ENDS, MOST_POINTS, EndOffsets, LagSeries
from diagnosis.script import histories_of
from web.page_groups import bad_group, small_group


def sample(at_ms: int, *partitions: PartitionLag, members: Sequence[str] = ("a",)) -> GroupSample:
    return GroupSample(at_ms, "Stable", 1, tuple(members), "1", partitions)


def test_groups_are_listed_worst_first_and_unknown_values_are_null() -> None:
    groups = from_facts([*small_group(), *bad_group()], Grade.OBSERVED, "broker")
    groups.add_samples({"quiet": sample(1_000, PartitionLag("t", 0, None, 5))})
    listed = groups.list()["groups"]
    assert [row["group"] for row in listed] == ["payments", "billing", "quiet"]
    assert listed[0]["lag"] is None and listed[0]["unassigned"] > 0
    assert listed[2]["lag"] is None and listed[2]["behind"] is None and listed[2]["unassigned"] is None
    assert listed[2]["members"] == 1 and listed[2]["findings"] == []
    json.dumps(groups.detail("payments", with_stories=True), allow_nan=False)


def test_a_group_without_samples_has_the_state_after_its_last_rebalance() -> None:
    facts = list(small_group())
    started = max(at for at, fact in enumerate(facts) if isinstance(fact, RebalanceStarted))
    for some, state, members in ((facts, "Stable", 1), (facts[: started + 1], None, None)):
        (row,) = from_facts(some, Grade.OBSERVED, "broker").list()["groups"]
        assert (row["state"], row["members"]) == (state, members)


def test_only_what_is_new_is_sent_again() -> None:
    facts = list(bad_group())
    groups = from_facts(facts[:-20], Grade.OBSERVED, "broker")
    first = groups.detail("payments")
    assert first is not None
    for fact in facts[-20:]:
        groups.tell(fact)
    assert groups.take() == {"payments"}
    last_ms = first["rows"][-1]["at"]
    more = groups.detail("payments", block=first["blocks"][-1]["number"], since_ms=last_ms)
    assert more is not None and 1 < len(more["rows"]) < len(first["rows"])
    assert all(row["at"] >= last_ms for row in more["rows"]) and len(more["blocks"]) == 1


def test_a_story_has_evidence_and_says_what_is_unknown() -> None:
    groups = from_facts(small_group(), Grade.OBSERVED, "broker")
    detail = groups.detail("billing", with_stories=True)
    assert detail is not None
    crash = next(row for row in detail["rows"] if row["cause"] == "session expired")
    story = groups.story("billing", crash["at"], crash["number"])
    assert story is not None and story in detail["stories"]
    told = {one["name"]: one for one in story["statements"]}
    assert told["member"]["value"] == "billing-2" and told["member"]["evidence"][0]["grade"] == "observed"
    assert told["reason"]["value"] == "unknown" and told["reason"]["grade"] is None
    dead = told["until the session of a crashed member ended"]
    assert dead["value"] == "at most 90.00 partition-seconds" and dead["grade"] == "inferred"
    assert sorted(story["moves"]) == [["billing-2", "billing-1", 1], ["billing-2", "billing-3", 1]]
    assert groups.story("billing", 1, 1) is None and groups.story("nobody", 1, 1) is None


def test_histories_of_a_watched_cluster_show_the_same() -> None:
    facts = list(bad_group())
    watched = WatchedGroups()
    histories = histories_of(facts, Grade.OBSERVED)
    watched.offer(histories)
    assert watched.take() == {"payments"} and watched.take() == set()
    told, seen = from_facts(facts, Grade.OBSERVED, "broker").detail("payments"), watched.detail("payments")
    assert told is not None and seen is not None
    for name in ("rows", "dead", "findings", "unassigned"):
        assert told[name] == seen[name], name
    one, other = (groups.groups["payments"].totals for groups in (from_facts(facts, Grade.OBSERVED, "broker"), watched))
    assert one == other and sum(one.causes.values()) == 59
    watched.offer(histories)
    watched.take()
    assert watched.groups["payments"].totals == one, "none is counted twice"


def test_a_long_history_is_trimmed_and_keeps_its_rows_and_stories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.web.groups.TRIM_EVERY", 50)
    monkeypatch.setattr("coterie.web.groups.MOST_MOVES", 100)
    monkeypatch.setattr("coterie.web.groups.MOST_INTERVALS", 100)
    trimmed = from_facts(bad_group(), Grade.OBSERVED, "broker")
    monkeypatch.undo()
    whole = from_facts(bad_group(), Grade.OBSERVED, "broker")
    group = trimmed.groups["payments"]
    assert len(group.history.rebalances) < 30 and len(group.history.intervals) < 400
    one, other = trimmed.detail("payments", with_stories=True), whole.detail("payments", with_stories=True)
    assert one is not None and other is not None
    assert [row["number"] for row in one["rows"]] == [row["number"] for row in other["rows"]]
    assert [story["number"] for story in one["stories"]] == [story["number"] for story in other["stories"]]
    assert one["unassigned"] == other["unassigned"] and group.totals == whole.groups["payments"].totals


def test_too_many_facts_are_counted_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.web.groups.MOST_WAITING", 10)
    groups = WatchedGroups()
    facts = list(small_group())
    for fact in facts:
        groups.tell(fact)
    groups.take()
    assert groups.list()["lost"] == len(facts) - 10


def test_lag_in_seconds_is_the_time_since_the_log_ended_there() -> None:
    ends, series = EndOffsets(), LagSeries()
    for second in range(11):
        now = sample(second * 1_000, PartitionLag("t", 0, 25, 10 * second), PartitionLag("t", 1, 100, 100))
        ends.add(now.partitions, now.at_ms)
        point = series.add(now, ends)
    assert point.records == 75 and point.seconds == pytest.approx(7.5), "offset 25 was written at 2.5 s"
    behind = sample(11_000, PartitionLag("t", 0, -1, 110))
    assert series.add(behind, ends).seconds is None, "before the first sample"
    assert series.add(sample(12_000, PartitionLag("t", 0, None, 1)), ends).records is None


def test_a_topic_that_was_created_again_and_old_samples_do_not_confuse_it() -> None:
    ends = EndOffsets()
    for at_ms in range(0, 10_000_000, 10_000):
        ends.add([PartitionLag("t", 0, 0, at_ms)], at_ms)
    assert len(ends._ends["t", 0][0]) <= MOST_ENDS
    assert ends.seconds_behind(PartitionLag("t", 0, 9_000_000, 9_990_000), 9_990_000) == pytest.approx(990)
    ends.add([PartitionLag("t", 0, 0, 3)], 10_000_000)
    assert ends.seconds_behind(PartitionLag("t", 0, 1, 3), 10_001_000) is None


def test_points_of_lag_are_bounded() -> None:
    ends, series = EndOffsets(), LagSeries()
    for at_ms in range(MOST_POINTS * 2):
        series.add(sample(at_ms), ends)
    assert len(series.points) <= MOST_POINTS and series.points[-1].at_ms == MOST_POINTS * 2 - 1
    times = [point.at_ms for point in series.points]
    assert times == sorted(times) and times[0] == 0
