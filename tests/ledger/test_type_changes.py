"""Upgrades and downgrades of groups as facts of their own: told by the coordinator, and shown by its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from coordinator.consumer.group_world import GroupWorld, classic_pair, mixed_pair
from coterie.errors import ErrorCode
from coterie.facts import (
    AssignmentStored,
    Cause,
    Fact,
    GroupCreated,
    GroupDied,
    GroupDowngraded,
    GroupLoaded,
    GroupUpgraded,
    MemberJoined,
    RebalanceStarted,
)
from coterie.ledger import RebalanceOutcome, TypeChange, fold, intervals_of, read_fact, write_fact
from coterie.ledger.derived import derived_facts
from coterie.protocol.consumer_group_records import MEMBER, ConsumerGroupRecord, read_consumer_group_record
from coterie.protocol.messages import GroupRecord
from coterie.protocol.offsets_topic import read_record


def changes(world: GroupWorld) -> list[TypeChange]:
    return [fact for fact in world.world.facts if isinstance(fact, TypeChange)]


def told_since(world: GroupWorld, change: type[Fact]) -> list[type[Fact]]:
    """Return the kinds of facts from a change of type on."""
    kinds = [type(fact) for fact in world.world.facts]
    return kinds[kinds.index(change) :]


def read(world: GroupWorld) -> Iterator[tuple[int, GroupRecord | ConsumerGroupRecord]]:
    """Return the records of groups in the log, with their times."""
    for entry in world.world.log:
        classic = read_record(entry.key, entry.value)
        one = classic if isinstance(classic, GroupRecord) else read_consumer_group_record(entry.key, entry.value)
        if one is not None:
            yield entry.at_ms, one


def derived(world: GroupWorld) -> list[Fact]:
    return list(derived_facts(read(world), world.image.topic_names))


# --- stories ----------------------------------------------------------------------------------------------------------


def upgraded() -> GroupWorld:
    """A consumer member joins two classic members in generation 2, and takes its share."""
    world = GroupWorld(t=4)
    a, b = classic_pair(world)
    world.world.advance(1_000)
    z = world.member("z").joins("t", assignor="range", expect={})
    world.world.advance(1_000)
    for each in (a, b, a, b):
        each.joins().syncs()
    z.beats()
    return world


def downgraded() -> GroupWorld:
    """The consumer member leaves the classic one, which joins again."""
    world = GroupWorld(t=4)
    a, z = mixed_pair(world)
    world.world.advance(1_000)
    z.leaves()
    world.world.advance(500)
    a.joins()
    a.syncs(give={a: {"t": [0, 1, 2, 3]}})
    return world


def emptied_and_upgraded() -> GroupWorld:
    world = GroupWorld(t=4)
    a, b = classic_pair(world)
    a.leaves()
    b.leaves()
    world.world.advance(1_000)
    world.member("z").joins("t")
    return world


def emptied_and_downgraded() -> GroupWorld:
    world = GroupWorld(t=4)
    world.member("z").joins("t").leaves()
    world.world.advance(1_000)
    a = world.classic("a").joins(id="", expect=None)
    world.world.advance(3_000)
    a.hears().syncs(give={a: {"t": [0, 1, 2, 3]}})
    return world


def replaced() -> GroupWorld:
    """A static consumer member, alone in its group, is replaced by a classic one with the same topics."""
    world = GroupWorld(t=4)
    world.member("z", "i").joins("t", assignor="range")
    world.world.advance(1_000)
    world.classic("a", "i").joins(id="").syncs()
    return world


def there_and_back() -> GroupWorld:
    world = upgraded()
    world.member("z").leaves()
    return world


STORIES: Mapping[str, Callable[[], GroupWorld]] = {
    story.__name__: story
    for story in (upgraded, downgraded, emptied_and_upgraded, emptied_and_downgraded, replaced, there_and_back)
}


# --- what the coordinator tells ---------------------------------------------------------------------------------------


def test_an_upgrade_is_told_before_the_join_that_asked_for_it() -> None:
    """K24: epochs are the generation; the rebalance is that of the consumer member."""
    world = upgraded()
    (change,) = changes(world)
    assert isinstance(change, GroupUpgraded)
    assert (change.member_id, change.generation_id, change.group_epoch) == ("z", 2, 2)
    assert sorted(change.members) == ["c-fresh-a", "c-fresh-b"]
    assert told_since(world, GroupUpgraded)[:3] == [GroupUpgraded, MemberJoined, RebalanceStarted]
    last = world.world.ledger.rebalances[-1]
    assert (last.cause, last.culprit, last.old_generation_id, last.outcome) == (
        Cause.NEW_MEMBER,
        "z",
        2,
        RebalanceOutcome.STABLE,
    )
    assert len(last.moves) + last.kept == 4 and all(move.new_owner == "z" for move in last.moves)


def test_an_empty_classic_group_that_is_upgraded_is_not_created() -> None:
    """K24: its epochs begin as those of a new group."""
    world = emptied_and_upgraded()
    (change,) = changes(world)
    assert isinstance(change, GroupUpgraded)
    assert (change.generation_id, change.group_epoch, change.members) == (3, 1, [])
    assert GroupCreated not in told_since(world, GroupUpgraded)


def test_an_upgrade_that_could_not_be_written_is_not_told() -> None:
    world = GroupWorld(t=4)
    classic_pair(world)
    world.world.holds_writes = True
    world.member("z").joins("t")
    world.world.end_writes(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert changes(world) == [] and world.classic_group


def test_a_classic_rebalance_is_superseded_by_the_upgrade() -> None:
    """K24: joins that wait are answered, and the members join again."""
    world = GroupWorld(t=4)
    a, _ = classic_pair(world)
    a.joins("t", "u", expect=None)
    world.member("z").joins("t")
    *_, before, last = world.world.ledger.rebalances
    assert (before.outcome, before.group_type) == (RebalanceOutcome.SUPERSEDED, "classic")
    assert (last.cause, last.culprit, last.waits_for) == (Cause.NEW_MEMBER, "z", [])


def test_a_classic_rebalance_ends_with_an_upgrade_that_needs_no_epoch() -> None:
    """K24: a static member is replaced by one with the same topics: each has what it had, and the group is Stable."""
    world = GroupWorld(t=4)
    a = world.classic("a", "i").joins(id="", expect=None)
    world.world.advance(3_000)
    a.hears().syncs({"t": [0, 1, 2, 3]}, give={a: {"t": [0, 1, 2, 3]}})
    world.classic("b").joins(id="", expect=None)
    world.world.advance(1_000)
    assert world.world.ledger.rebalances[-1].outcome is RebalanceOutcome.RUNNING
    world.member("z", "i").joins("t", expect={"t": [0, 1, 2, 3]})
    world.expect("Stable", a.generation)
    assert [type(change) for change in changes(world)] == [GroupUpgraded]
    last = world.world.ledger.rebalances[-1]
    assert (last.outcome, last.took_ms, last.group_type) == (RebalanceOutcome.STABLE, 1_000, "classic")
    assert (last.moves, last.kept) == ([], 4)


def test_a_downgrade_is_told_after_the_leave_and_before_the_rebalance() -> None:
    """K26: the generation is the group epoch."""
    world = downgraded()
    (change,) = changes(world)
    assert isinstance(change, GroupDowngraded)
    assert change.member_id == "z" and change.members == ["a"]
    assert change.generation_id == change.group_epoch > 1
    assert told_since(world, GroupDowngraded)[:2] == [GroupDowngraded, RebalanceStarted]
    last = world.world.ledger.rebalances[-1]
    assert (last.cause, last.culprit, last.group_type, last.outcome) == (
        Cause.MEMBER_LEFT,
        "z",
        "classic",
        RebalanceOutcome.STABLE,
    )
    assert {move.old_owner for move in last.moves} == {"z"} and last.unassigned_ms == 2 * 500


def test_an_empty_consumer_group_that_is_downgraded_begins_with_generation_0() -> None:
    """K26: the next one is 1."""
    (change,) = changes(emptied_and_downgraded())
    assert isinstance(change, GroupDowngraded)
    assert (change.group_epoch, change.generation_id, change.members) == (3, 0, [])


def test_a_static_replacement_that_changes_nothing_is_told_without_a_rebalance() -> None:
    """K26: the group is Stable."""
    world = replaced()
    (change,) = changes(world)
    assert isinstance(change, GroupDowngraded) and (change.member_id, change.members) == ("fresh-a", ["fresh-a"])
    assert told_since(world, GroupDowngraded) == [GroupDowngraded, AssignmentStored]
    assert [one.outcome for one in world.world.ledger.rebalances] == [RebalanceOutcome.STABLE]
    owners = {one.partition[1]: one.owner for one in intervals_of(world.world.facts) if one.ended_ms is None}
    assert owners == dict.fromkeys(range(4), "fresh-a")


def test_a_static_replacement_ends_a_rebalance_that_was_under_way() -> None:
    """K26: the assignment of the classic group is the target that its members were on the way to."""
    world = GroupWorld(t=4)
    world.member("z", "i").joins("t", assignor="range")
    world.classic("b").joins()
    world.world.advance(1_000)
    assert world.world.ledger.rebalances[-1].outcome is RebalanceOutcome.RUNNING
    world.classic("a", "i").joins(id="")
    last = world.world.ledger.rebalances[-1]
    assert (last.culprit, last.outcome, last.took_ms) == ("b", RebalanceOutcome.STABLE, 1_000)
    assert {move.new_owner for move in last.moves} == {"b"} and (len(last.moves), last.kept) == (2, 2)


def test_a_downgrade_that_could_not_be_written_is_not_told() -> None:
    world = GroupWorld(t=4)
    _, z = mixed_pair(world)
    world.world.holds_writes = True
    z.leaves()
    world.world.end_writes(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert changes(world) == [] and world.group


def test_upgrades_and_downgrades_are_facts_in_their_order() -> None:
    world = there_and_back()
    assert [type(change) for change in changes(world)] == [GroupUpgraded, GroupDowngraded]
    assert {change.group_id for change in changes(world)} == {"g"}


@pytest.mark.parametrize("story", STORIES)
def test_a_change_that_is_written_and_read_again_is_the_same(story: str) -> None:
    for fact in changes(STORIES[story]()):
        assert read_fact(write_fact(fact)) == fact


# --- what the log shows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("story", STORIES)
def test_the_log_shows_the_same_changes(story: str) -> None:
    """K27: a conversion is one write, the tombstones of one type and the records of the other."""
    world = STORIES[story]()
    facts = derived(world)
    seen = [fact for fact in facts if isinstance(fact, TypeChange)]
    known = changes(world)
    assert [(type(one), one.at_ms, one.generation_id, one.group_epoch, sorted(one.members)) for one in seen] == [
        (type(one), one.at_ms, one.generation_id, one.group_epoch, sorted(one.members)) for one in known
    ]
    since = facts[facts.index(seen[0]) :]
    assert not [fact for fact in since if isinstance(fact, GroupLoaded)], "the log shows what it was before"
    assert not [fact for fact in facts if isinstance(fact, GroupDied)], "the group goes on"


@pytest.mark.parametrize("story", STORIES)
def test_the_log_shows_the_same_owners(story: str) -> None:
    """Members keep what they have over a conversion."""
    world = STORIES[story]()

    def owners(facts: list[Fact]) -> dict[tuple[str, int], str]:
        return {one.partition: one.owner for one in intervals_of(facts) if one.ended_ms is None}

    assert owners(derived(world)) == owners(world.world.facts)


def test_the_log_shows_who_caused_the_rebalance_after_a_downgrade() -> None:
    facts = derived(downgraded())
    (change,) = [fact for fact in facts if isinstance(fact, GroupDowngraded)]
    assert change.member_id == "z"
    last = fold(facts)[-1]
    assert (last.culprit, last.group_type, {move.old_owner for move in last.moves}) == ("z", "classic", {"z"})


def test_a_group_that_was_deleted_is_not_converted() -> None:
    """Only records of the other type right after the tombstones say so."""
    world = emptied_and_upgraded()
    tombstone = next(
        at for at, (_, one) in enumerate(read(world)) if isinstance(one, GroupRecord) and one.value is None
    )
    records = [*read(world)]
    other = (records[tombstone][0], GroupRecord("other", None))
    facts = list(derived_facts([*records[: tombstone + 1], other, *records[tombstone + 1 :]]))
    assert not [fact for fact in facts if isinstance(fact, TypeChange)]
    assert [fact.group_id for fact in facts if isinstance(fact, GroupDied)] == ["g", "other"]
    assert [fact.group_id for fact in derived_facts(records[: tombstone + 1]) if isinstance(fact, GroupDied)] == ["g"]


def test_an_empty_consumer_group_that_kafka_downgrades_leaves_no_tombstones() -> None:
    """K26, as observed in Kafka's log: the record of a classic group in generation 0 is all."""
    world = emptied_and_downgraded()
    records = [(at_ms, one) for at_ms, one in read(world) if one.value is not None or _is_of_member(one)]
    facts = list(derived_facts(records, world.image.topic_names))
    assert [fact for fact in facts if isinstance(fact, TypeChange)] == changes(world)
    assert fold(facts)[-1].group_type == "classic" and not [fact for fact in facts if isinstance(fact, GroupDied)]


def test_a_classic_group_in_a_later_generation_may_have_been_downgraded_long_ago() -> None:
    """What was compacted is not made up."""
    world = emptied_and_downgraded()
    records = [(at_ms, one) for at_ms, one in read(world) if one.value is not None or _is_of_member(one)]
    later = [(at, one) for at, one in records if not isinstance(one, GroupRecord) or _generation(one) > 0]
    assert not [fact for fact in derived_facts(later) if isinstance(fact, TypeChange)]


def _is_of_member(record: GroupRecord | ConsumerGroupRecord) -> bool:
    return isinstance(record, ConsumerGroupRecord) and record.type == MEMBER


def _generation(record: GroupRecord) -> int:
    return -1 if record.value is None else record.value.generation_id
