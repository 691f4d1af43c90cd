"""Histories from descriptions of a group: what two samples show, and what they cannot."""

from __future__ import annotations

from coterie.diagnosis import Bound, Departure, Grade, GroupSample, Happening, PartitionLag
from coterie.diagnosis.detectors import findings_of
from coterie.diagnosis.samples import NO_NUMBER, SampledMember, history_of_samples
from coterie.facts import CONSUMER, Cause

ABOUT = {one: SampledMember(one, f"client-{one}", "/h", None, ("t",)) for one in "abc"}


def sample(
    at_ms: int, members: str, *, state: str = "Stable", epoch: int | None = None, where: str = "h:1"
) -> GroupSample:
    shares = (
        [PartitionLag("t", number, 5, 5 + number, members[number % len(members)]) for number in range(2)]
        if members
        else []
    )
    return GroupSample(at_ms, state, epoch, tuple(members), where, tuple(shares))


def test_a_member_that_came_between_two_samples_has_limits_and_no_exact_times() -> None:
    history = history_of_samples("g", [sample(1_000, "a"), sample(9_000, "ab")], ABOUT)
    (one,) = history.rebalances
    assert (one.number, one.cause.value, one.member.value) == (NO_NUMBER, Cause.NEW_MEMBER, "b")
    assert (one.began_ms.value, one.began_ms.bound) == (1_000, Bound.AT_LEAST)
    assert (one.ended_ms.value, one.ended_ms.bound) == (9_000, Bound.AT_MOST)
    assert one.took == (8_000, Bound.AT_MOST) and one.cause.grade is Grade.SAMPLED
    assert history.name_of("b") == "client-b" and one.unassigned_ms.value is None


def test_several_changes_between_two_samples_have_no_cause() -> None:
    history = history_of_samples("g", [sample(1_000, "ab"), sample(9_000, "bc")], ABOUT)
    assert history.rebalances[0].cause.value is None
    assert history.members["a"].departure.value == Departure.DISAPPEARED


def test_a_static_member_that_came_back_with_another_id_is_no_rebalance() -> None:
    about = {**ABOUT, "a": SampledMember("a", "x", "/h", "i"), "b": SampledMember("b", "x", "/h", "i")}
    history = history_of_samples("g", [sample(1_000, "a"), sample(9_000, "b"), sample(12_000, "bc")], about)
    assert [(one.cause.value, one.member.value) for one in history.rebalances] == [(Cause.NEW_MEMBER, "c")]


def test_epochs_of_a_consumer_group_that_no_sample_saw_are_counted() -> None:
    history = history_of_samples("g", [sample(1_000, "a", epoch=3), sample(9_000, "ab", epoch=6)], ABOUT, CONSUMER)
    (one,) = history.rebalances
    assert (one.number, one.spans, one.cause.value) == (6, 3, None)


def test_owners_and_a_moved_coordinator_are_seen() -> None:
    samples = [sample(1_000, "a"), sample(5_000, "", state="PreparingRebalance"), sample(9_000, "ab", where="h:2")]
    history = history_of_samples("g", samples, ABOUT)
    assert [(one.partition[1], one.owner, one.began_ms, one.ended_ms) for one in history.intervals] == [
        (0, "a", 1_000, None),
        (1, "a", 1_000, 9_000),
        (1, "b", 9_000, None),
    ]
    assert [one.what for one in history.events] == [Happening.COORDINATOR_MOVED]


def test_samples_alone_show_members_without_partitions() -> None:
    history = history_of_samples("g", [sample(1_000, "ab"), sample(9_000, "abc")], ABOUT)
    assert [one.name for one in findings_of(history)] == ["idle-members"]
