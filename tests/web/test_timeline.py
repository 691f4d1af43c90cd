"""Columns of owners: the same as the intervals say, from facts and from a history; and what a crash leaves."""

from __future__ import annotations

import zlib
from array import array
from base64 import b64decode
from collections.abc import Iterable, Iterator

import pytest

from coterie.diagnosis import Grade
from coterie.facts import (
    CONSUMER,
    Cause,
    Fact,
    GroupEmptied,
    JoinPhaseCompleted,
    MemberAssigned,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    MemberRejoined,
    RebalanceStarted,
)
from coterie.ledger import intervals_of
from coterie.structs import replace
from coterie.web.timeline import ABSENT, BLOCK, FIRST_OWNER, UNASSIGNED, Timeline
from diagnosis.script import histories_of
from web.page_groups import bad_group, small_group
from web.test_report import story


def timeline(facts: Iterable[Fact]) -> Timeline:
    made: Timeline | None = None
    for fact in facts:
        made = made or Timeline(fact.group_id)
        made.add(fact)
    assert made is not None
    made.settle()
    return made


def owner_at(made: Timeline, partition: tuple[str, int], at_ms: int) -> str | int:
    """Read it as the page does: from the blocks as they are sent."""
    place, found = made.partitions[partition], ABSENT
    for block in made.blocks:
        sent = block.to_json()
        cells = array("H", zlib.decompress(b64decode(sent["data"])))
        for index, time_ms in enumerate(sent["times"]):
            if time_ms <= at_ms:
                found = cells[index * sent["partitions"] + place] if place < sent["partitions"] else ABSENT
                releases = sent["releases"]
                for column, member, released_ms in zip(releases[::3], releases[1::3], releases[2::3], strict=True):
                    if column == index and released_ms <= at_ms and found == FIRST_OWNER + member:
                        found = UNASSIGNED
    return found if found < FIRST_OWNER else made.members[found - FIRST_OWNER].member_id


def with_joins_in_one_fact(facts: Iterable[Fact]) -> Iterator[Fact]:
    """Return a story as brokers of today emit it: small_group has a fact for each join, as release 0.1.0."""
    began_ms, waiting = 0, list[MemberRejoined]()
    for fact in facts:
        if isinstance(fact, MemberRejoined):
            waiting.append(fact)
            continue
        if isinstance(fact, RebalanceStarted):
            began_ms = fact.at_ms
        if isinstance(fact, JoinPhaseCompleted):
            rejoined = [(one.metadata, [one.member_id]) for one in waiting]
            fact, waiting = replace(fact, took_ms=fact.at_ms - began_ms, rejoined=rejoined), []  # noqa: PLW2901
        yield fact


STORIES = {
    "small": list(small_group()),
    "in one fact": list(with_joins_in_one_fact(small_group())),
    "bad": list(bad_group()),
    "report": story(),
}


def test_the_joins_of_a_rebalance_in_one_fact_make_the_same_columns() -> None:
    made, as_before = timeline(STORIES["in one fact"]), timeline(STORIES["small"])
    assert any(one.releases for one in as_before.blocks)
    assert [one.to_json() for one in made.blocks] == [one.to_json() for one in as_before.blocks]


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("way", ["facts", "history"])
def test_columns_say_who_owned_what_as_the_intervals_do(name: str, way: str) -> None:
    facts = STORIES[name]
    if way == "facts":
        made = timeline(facts)
    else:
        (history,) = histories_of(facts, Grade.OBSERVED).values()
        made = Timeline.of_history(history)
    intervals = intervals_of(facts)
    times = sorted({one.began_ms for one in intervals} | {one.ended_ms or 0 for one in intervals} - {0})
    looked_at = [time for at in times[:: max(len(times) // 40, 1)] for time in (at, at + 1)]
    for at_ms in looked_at:
        owners = {
            one.partition: one.owner
            for one in intervals
            if one.began_ms <= at_ms and (one.ended_ms is None or at_ms < one.ended_ms)
        }
        for partition in list(made.partitions)[::3]:
            found = owner_at(made, partition, at_ms)
            assert found == owners.get(partition, found if isinstance(found, int) else None), (partition, at_ms)


def test_an_eager_rebalance_makes_one_column() -> None:
    made = timeline(bad_group())
    assert sum(len(block.times_ms) for block in made.blocks) <= 60, "59 rebalances"
    assert sum(len(block.releases) for block in made.blocks) > 200


def test_the_silence_of_a_crashed_member_is_kept_with_its_partitions() -> None:
    made = timeline(small_group())
    (span,) = made.dead
    assert span.to_ms - span.from_ms == 45_000 and span.partitions == 2
    assert made.dead_partition_ms == 90_000 == span.partition_ms


def test_a_member_that_comes_back_looks_as_before_and_two_at_once_are_told_apart() -> None:
    made = Timeline("g")
    for at_ms, who in enumerate(["a", "b"]):
        made.add(MemberJoined(at_ms, "g", who, None, "app", "/10.0.0.1"))
    made.add(MemberExpired(10, "g", "a", 0, never_heard=False))
    made.add(MemberJoined(11, "g", "c", None, "app", "/10.0.0.1"))
    made.add(MemberJoined(12, "g", "d", None, "app", "/10.0.0.2"))
    assert [member.ordinal for member in made.members] == [0, 1, 0, 0]


def test_a_group_without_members_has_no_owners_and_no_gap() -> None:
    """A group of KIP-848: what a member is assigned, and nobody after the last has left."""
    facts: list[Fact] = [
        MemberJoined(0, "g", "a", None, "a", "h"),
        RebalanceStarted(0, "g", Cause.NEW_MEMBER, "a", None, 1, ["a"], CONSUMER),
        MemberAssigned(5, "g", "a", 2, "Stable", {"t": [0, 1]}, {}),
        MemberLeft(50, "g", "a", None, None),
        GroupEmptied(50, "g", 3),
    ]
    made = timeline(facts)
    assert owner_at(made, ("t", 0), 10) == "a"
    assert owner_at(made, ("t", 0), 60) == ABSENT


def test_many_columns_are_packed_and_the_oldest_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.web.timeline.MOST_COLUMNS", 3 * BLOCK)
    made = Timeline("g")
    made.add(RebalanceStarted(0, "g", Cause.NEW_MEMBER, "a", None, 1, ["a"], CONSUMER))
    for at_ms in range(6 * BLOCK):
        made.add(MemberAssigned(at_ms, "g", "a", 2, "Stable", {"t": [at_ms % 7]}, {}))
    made.settle()
    assert sum(len(block.times_ms) for block in made.blocks) <= 3 * BLOCK
    assert made.blocks[0].number > 0 and all(block.packed and not block.columns for block in list(made.blocks)[:-1])
    assert owner_at(made, ("t", (6 * BLOCK - 1) % 7), 6 * BLOCK) == "a"
