"""Rebalances of consumer groups (KIP-848) in the ledger: what bumped the epoch, who was waited for, what it cost.

Every story is told twice: by the coordinator's facts, and by the records that it wrote to `__consumer_offsets`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from uuid import UUID

import pytest

from coordinator.consumer.group_world import GroupWorld, pair
from coterie.facts import CONSUMER, Cause, Fact, GroupLoaded
from coterie.ledger import Bookmark, Move, Rebalance, RebalanceOutcome, fold, intervals_of, read_fact, write_fact
from coterie.ledger.derived import DerivedCause, derived_facts
from coterie.protocol.consumer_group_records import (
    CURRENT,
    EPOCH,
    MEMBER,
    TARGET_EPOCH,
    ClassicProtocol,
    ConsumerGroupEpoch,
    ConsumerGroupRecord,
    CurrentAssignment,
    MemberMetadata,
    TargetEpoch,
    TopicPartitions,
    read_consumer_group_record,
)
from coterie.structs import replace

T0 = 1_000_000
"""When a world begins."""


def rebalances(world: GroupWorld) -> list[Rebalance]:
    return world.world.ledger.rebalances


def read(world: GroupWorld) -> list[tuple[int, ConsumerGroupRecord]]:
    """Return the log, with times."""
    found = [(entry.at_ms, read_consumer_group_record(entry.key, entry.value)) for entry in world.world.log]
    return [(at_ms, one) for at_ms, one in found if one is not None]


def derived(world: GroupWorld) -> list[Fact]:
    return list(derived_facts(read(world), world.image.topic_names))


def newcomer() -> GroupWorld:
    """Member a owns four partitions; b joins at 1 s; a gives two up at 3 s; b heartbeats at 5 s."""
    world = GroupWorld(t=4)
    a = world.member("a").joins("t", assignor="range")
    world.world.advance(1_000)
    b = world.member("b").joins("t", assignor="range")
    world.world.advance(500)
    a.beats(expect={"t": [0, 1]})
    world.world.advance(1_500)
    a.gives_up()
    world.world.advance(2_000)
    b.beats(expect={"t": [2, 3]})
    return world


def test_a_newcomer_waits_for_the_member_that_gives_up() -> None:
    """K13: only what moves is unassigned, from the owner's report to the newcomer's next heartbeat."""
    first, second = rebalances(newcomer())
    assert (first.cause, first.culprit, first.old_generation_id, first.generation_id) == (Cause.NEW_MEMBER, "a", 1, 2)
    assert first.took_ms == 0 and [move.unassigned_ms for move in first.moves] == [None] * 4
    assert (second.cause, second.culprit, second.group_type) == (Cause.NEW_MEMBER, "b", CONSUMER)
    assert (second.began_ms, second.took_ms, second.outcome) == (T0 + 1_000, 4_000, RebalanceOutcome.STABLE)
    assert (second.join_ms, second.sync_ms) == (0, 4_000)
    assert second.revoked_after_ms == {"a": 2_000}
    assert second.joined_after_ms == {"a": 2_000, "b": 4_000} and second.last_to_join == "b"
    assert second.moves == [Move(("t", number), "a", "b", 2_000) for number in (2, 3)]
    assert (second.kept, second.unassigned_ms, second.protocol_name) == (2, 4_000, "range")


def slow_revocation() -> GroupWorld:
    """Member a does not give up within its rebalance timeout of 6 s, although it heartbeats."""
    world = GroupWorld(t=2)
    a = world.member("a").joins("t", timeout=6_000)
    b = world.member("b").joins("t")
    a.beats()
    for _ in range(3):
        world.world.advance(2_000)
        a.beats(expect="*")
    world.world.advance(1_000)
    b.beats(expect={"t": [0, 1]})
    return world


def test_a_member_that_does_not_give_up_is_named_and_removed() -> None:
    """K12: the rebalance that waited for it never ended; the next one is its doing."""
    _, second, third = rebalances(slow_revocation())
    assert (second.outcome, second.revoked_after_ms) == (RebalanceOutcome.SUPERSEDED, {"a": None})
    assert second.dropped == {"a": "did not give up partitions in time"}
    assert (third.cause, third.culprit) == (Cause.REVOCATION_TIMEOUT, "a")
    assert (third.began_ms, third.took_ms, third.unassigned_ms) == (T0 + 6_000, 1_000, 2_000)


def leave() -> GroupWorld:
    """Member b leaves; a hears of it 700 ms later."""
    world = GroupWorld(t=4)
    a, b = pair(world)
    b.leaves()
    world.world.advance(700)
    a.beats(expect={"t": [0, 1, 2, 3]})
    return world


def test_what_a_member_leaves_is_unassigned_until_another_heartbeats() -> None:
    """K2: nothing but a heartbeat computes the target."""
    last = rebalances(leave())[-1]
    assert (last.cause, last.culprit, last.waits_for) == (Cause.MEMBER_LEFT, "b", ["a"])
    assert (last.join_ms, last.sync_ms, last.took_ms) == (700, 0, 700)
    assert (last.unassigned_ms, last.kept) == (1_400, 2)
    assert last.moves == [Move(("t", number), "b", "a", 700) for number in (2, 3)]


def crash() -> GroupWorld:
    """Member b is silent for its session timeout."""
    world = GroupWorld(t=2)
    a, _ = pair(world)
    for _ in range(8):
        world.world.advance(5_000)
        a.beats()
    world.world.advance(5_250)
    a.beats()
    return world


def test_a_member_that_crashed_is_unassigned_from_the_end_of_its_session() -> None:
    """K10: before, the coordinator does not know."""
    last = rebalances(crash())[-1]
    assert (last.cause, last.culprit) == (Cause.SESSION_EXPIRED, "b")
    assert (last.began_ms - T0, last.took_ms, last.unassigned_ms) == (45_000, 250, 250)


def partitions_added() -> GroupWorld:
    world = GroupWorld(t=2)
    a, b = pair(world)
    world.world.advance(1_000)
    world.image.create("t", 4)
    world.world.advance(1_000)
    b.beats()
    a.beats()
    b.gives_up()
    a.beats()
    b.beats()
    return world


def test_partitions_that_were_added_have_no_old_owner_and_an_unknown_gap() -> None:
    """K28: no member asked for it."""
    last = rebalances(partitions_added())[-1]
    assert (last.cause, last.culprit, last.outcome) == (Cause.TOPICS_CHANGED, "", RebalanceOutcome.STABLE)
    assert {move.partition: (move.old_owner, move.unassigned_ms) for move in last.moves if not move.old_owner} == {
        ("t", 2): ("", None),
        ("t", 3): ("", None),
    }


def regex() -> GroupWorld:
    """The first resolution is a's doing; later a topic appears."""
    world = GroupWorld(orders=2)
    a = world.member("a").joins(pattern="ord.*")
    world.world.advance(1)
    a.beats(expect={"orders": [0, 1]})
    world.image.create("ordinary", 1)
    world.world.advance(11_000)
    a.beats()
    world.world.advance(1)
    a.beats(expect={"orders": [0, 1], "ordinary": [0]})
    return world


def test_a_regular_expression_that_is_resolved_bumps_the_epoch() -> None:
    """K7: with the member that brought it, and without one when topics have changed."""
    first, second = rebalances(regex())
    assert (first.cause, first.culprit, first.outcome) == (Cause.REGEX_RESOLVED, "a", RebalanceOutcome.STABLE)
    assert (second.cause, second.culprit) == (Cause.REGEX_RESOLVED, "")
    assert [move.partition for move in second.moves] == [("ordinary", 0)] and second.kept == 2


def static_restart() -> GroupWorld:
    """A static member is away for 20 s and comes back under another id."""
    world = GroupWorld(t=2)
    a = world.member("a", instance="i").joins("t")
    a.goes_away()
    world.world.advance(20_000)
    world.member("a2", instance="i").joins("t", expect={"t": [0, 1]})
    return world


def test_a_static_restart_is_no_rebalance_and_keeps_its_partitions() -> None:
    """K14: the owner has another id from then on."""
    world = static_restart()
    (only,) = rebalances(world)
    assert only.cause is Cause.NEW_MEMBER
    owners = [(one.owner, one.began_ms - T0, one.ended_ms) for one in intervals_of(world.world.facts)]
    assert owners == [("a", 0, T0 + 20_000)] * 2 + [("a2", 20_000, None)] * 2


def subscription_changed() -> GroupWorld:
    world = GroupWorld(t=2, u=2)
    a, b = pair(world)
    b.beats(topics=("t", "u"))
    a.beats()
    b.beats()
    return world


def superseded() -> GroupWorld:
    """Member c joins while a still gives up for b."""
    world = GroupWorld(t=6)
    a = world.member("a").joins("t", assignor="range")
    b = world.member("b").joins("t", assignor="range")
    a.beats()
    world.world.advance(1_000)
    c = world.member("c").joins("t", assignor="range")
    world.world.advance(1_000)
    a.gives_up()
    a.gives_up()
    b.beats()
    c.beats()
    return world


def emptied() -> GroupWorld:
    world = GroupWorld(t=2)
    a, b = pair(world)
    a.leaves()
    b.leaves()
    return world


def restart_and_newcomer() -> GroupWorld:
    """A static member restarts, and then another one joins."""
    world = static_restart()
    world.member("b").joins("t")
    return world


def timeout_changed() -> GroupWorld:
    """Member b has another rebalance timeout: its metadata is written again, and nothing else."""
    world = GroupWorld(t=2)
    _, b = pair(world)
    b.beats(rebalance_timeout_ms=30_000)
    return world


def assignment_interval() -> GroupWorld:
    """Members b and c join within a second: the target for both is computed at the next heartbeat after it."""
    world = GroupWorld({"group_consumer_assignment_interval_ms": 1_000}, t=3)
    a = world.member("a").joins("t", assignor="range")
    world.world.advance(100)
    b = world.member("b").joins("t", assignor="range", expect={})
    world.world.advance(100)
    c = world.member("c").joins("t", assignor="range", expect={})
    world.world.advance(1_000)
    a.beats(expect={"t": [0]}).gives_up()
    b.beats(expect={"t": [1]})
    c.beats(expect={"t": [2]})
    return world


STORIES: Mapping[str, Callable[[], GroupWorld]] = {
    story.__name__: story
    for story in (
        *(newcomer, slow_revocation, leave, crash, partitions_added, regex),
        *(static_restart, subscription_changed, superseded, emptied),
        *(restart_and_newcomer, timeout_changed, assignment_interval),
    )
}
SEEN_AS: Mapping[Cause, DerivedCause] = {
    Cause.MEMBER_LEFT: DerivedCause.MEMBER_GONE,
    Cause.SESSION_EXPIRED: DerivedCause.MEMBER_GONE,
    Cause.REVOCATION_TIMEOUT: DerivedCause.MEMBER_GONE,
    Cause.TOPICS_CHANGED: DerivedCause.UNKNOWN,
}
"""The causes that the log does not say."""


@pytest.mark.parametrize("story", STORIES)
def test_the_log_shows_the_same_rebalances_as_the_facts(story: str) -> None:
    """K27: every step is a record. Only why a member is gone, and who changed topics, is not in the log."""
    world = STORIES[story]()
    seen = fold(derived(world))
    assert all(one.is_derived for one in seen)
    has_ended = True
    for one, two in zip(rebalances(world), seen, strict=True):
        assert two.cause == SEEN_AS.get(Cause(one.cause), one.cause)
        two.dropped.pop(one.culprit, None)  # in the log the epoch comes before the members that are gone
        said = replace(two, cause=one.cause, reason=None, is_derived=False, protocol_name=one.protocol_name)
        said.dropped = one.dropped
        assert said == replace(one, waits_for=said.waits_for)
        assert sorted(one.waits_for) == (sorted(two.waits_for) if has_ended else [])
        has_ended = one.outcome is not RebalanceOutcome.SUPERSEDED
    assert intervals_of(derived(world)) == intervals_of(world.world.facts)


@pytest.mark.parametrize("story", STORIES)
def test_a_story_that_is_written_and_read_again_is_the_same(story: str) -> None:
    """As `__coterie_facts` has it, and with the state saved after each fact."""
    world = STORIES[story]()
    mark, ended = Bookmark("g"), []
    for fact in world.world.facts:
        again = read_fact(write_fact(fact))
        assert again is not None
        one = mark.add(again)
        ended += [] if one is None else [one]
        mark = Bookmark.from_json("g", json.loads(json.dumps(mark.to_json())))
    assert ended == [one for one in rebalances(world) if one.outcome is not RebalanceOutcome.RUNNING]


def test_a_group_that_turns_to_other_topics_names_the_member() -> None:
    """K1: the set of topic names has changed."""
    last = rebalances(subscription_changed())[-1]
    assert (last.cause, last.culprit) == (Cause.SUBSCRIPTION_CHANGED, "b")


def test_an_epoch_that_is_overtaken_is_superseded_and_its_moves_go_on() -> None:
    """Section 3: members reconcile towards the target of that moment."""
    _, second, third = rebalances(superseded())
    assert (second.outcome, second.revoked_after_ms) == (RebalanceOutcome.SUPERSEDED, {"a": None})
    assert (third.outcome, third.culprit, third.kept + len({move.partition for move in third.moves})) == (
        RebalanceOutcome.STABLE,
        "c",
        6,
    )


def test_an_epoch_whose_target_was_never_computed_is_superseded_and_nobody_has_reached_it() -> None:
    """K2: the assignor runs at most once in the interval; a newcomer is at the old epoch until then, with nothing."""
    _, second, third = rebalances(assignment_interval())
    assert (second.outcome, second.joined_ms, second.joined_after_ms) == (RebalanceOutcome.SUPERSEDED, None, {})
    assert (third.join_ms, third.sync_ms, third.revoked_after_ms) == (1_000, 0, {"a": 1_000})
    assert {move.partition: move.new_owner for move in third.moves} == {("t", 1): "b", ("t", 2): "c"}


def test_an_empty_group_owes_nothing() -> None:
    """K4: no members, no gaps."""
    *_, last = rebalances(emptied())
    assert (last.outcome, last.took_ms, last.unassigned_ms) == (RebalanceOutcome.EMPTY, 0, 0)


# --- logs that lack something -----------------------------------------------------------------------------------------


def owners(facts: list[Fact]) -> dict[tuple[str, int], str]:
    """Return who owns what in the end."""
    return {one.partition: one.owner for one in intervals_of(facts) if one.ended_ms is None}


def compacted(world: GroupWorld) -> list[tuple[int, ConsumerGroupRecord]]:
    """Return the last record of each key, without tombstones, in the order of the log."""
    records = read(world)
    last = {(one.type, one.about): at for at, (_, one) in enumerate(records)}
    return [records[at] for at in sorted(last.values()) if records[at][1].value is not None]


@pytest.mark.parametrize("story", STORIES)
def test_of_a_compacted_log_the_owners_are_known_and_nothing_is_made_up(story: str) -> None:
    """K27: what is left of a log has the last record of each key; epochs that are gone are not rebalances."""
    world = STORIES[story]()
    facts = list(derived_facts(compacted(world), world.image.topic_names))
    held = {
        (topic, number): who for who, share in world.shares().items() for topic, has in share.items() for number in has
    }
    assert owners(facts) == held
    epochs = [one.generation_id for one in fold(facts)]
    assert set(epochs) <= {one.generation_id for one in rebalances(world)}


def test_a_log_that_begins_in_the_middle_has_no_rebalance_that_it_does_not_show() -> None:
    """The first epoch that is known is 3: what led to it is not in the log."""
    records = read(newcomer())
    epochs = [at for at, (_, one) in enumerate(records) if isinstance(one.value, ConsumerGroupEpoch)]
    facts = list(derived_facts(records[epochs[1] :]))
    assert isinstance(facts[0], GroupLoaded) and fold(facts) == []


def converted() -> list[tuple[int, ConsumerGroupRecord]]:
    """Return what a conversion writes of a classic group in generation 1, and then of a consumer member that joins."""
    classic = MemberMetadata(None, None, "c", "/h", ("t",), "", 60_000, None, 45_000, (ClassicProtocol("range", b""),))
    owns = [TopicPartitions(UUID(int=1), [0, 1], [1, 1])]
    records = [
        ConsumerGroupRecord(MEMBER, "g", "a", classic),
        ConsumerGroupRecord(EPOCH, "g", "", ConsumerGroupEpoch(1)),
        ConsumerGroupRecord(TARGET_EPOCH, "g", "", TargetEpoch(1)),
        ConsumerGroupRecord(CURRENT, "g", "a", CurrentAssignment(1, 1, 0, owns, [])),
        ConsumerGroupRecord(MEMBER, "g", "b", replace(classic, classic_session_timeout_ms=None, classic_protocols=())),
        ConsumerGroupRecord(EPOCH, "g", "", ConsumerGroupEpoch(2)),
    ]
    return [(number * 10, record) for number, record in enumerate(records)]


def test_a_classic_group_that_was_converted_has_not_rebalanced_by_that() -> None:
    """K24: its members keep what they had; the rebalance is that of the consumer member that joins."""
    (only,) = fold(derived_facts(converted(), {UUID(int=1): "t"}))
    assert (only.cause, only.culprit, only.old_generation_id, only.began_ms) == (Cause.NEW_MEMBER, "b", 1, 50)
    assert only.outcome is RebalanceOutcome.RUNNING
    assert owners(list(derived_facts(converted(), {UUID(int=1): "t"}))) == {("t", 0): "a", ("t", 1): "a"}


def test_a_group_that_was_deleted_and_created_again_begins_anew() -> None:
    """K21: the tombstone may have been compacted away; then the lower epoch says so."""
    first, second = emptied(), leave()
    later = [(at_ms + 1_000_000, one) for at_ms, one in read(second)]
    seen = fold(derived_facts([*read(first), *later], second.image.topic_names))
    assert [one.generation_id for one in seen] == [2, 3, 4, 5, 2, 3, 4]
    assert [move.old_owner for move in seen[4].moves] == [""] * 4, "nobody owned anything in the new group"
    assert seen[4:] == fold(derived_facts(later, second.image.topic_names))
