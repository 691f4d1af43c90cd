"""K27, K28: what is written, how a group comes back from it, and writes that fail."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.consumer.group_world import ANYTHING, GroupWorld, pair
from coterie.coordinator.consumer import ConsumerGroup
from coterie.errors import ErrorCode
from coterie.facts import Cause, GroupDied, RebalanceStarted
from coterie.protocol.consumer_group_records import (
    MEMBER,
    ClassicProtocol,
    ConsumerGroupRecord,
    MemberMetadata,
    read_consumer_group_record,
    write_consumer_group_record,
)
from coterie.protocol.messages import (
    CommitPartition,
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
)


def shape(group: ConsumerGroup) -> Any:
    """Return all that records say of a group."""
    return (
        group.group_epoch,
        group.metadata_hash,
        group.assignment_epoch,
        group.assigned_ms,
        {
            member.member_id: (
                member.metadata,
                member.epoch,
                member.previous_epoch,
                member.state,
                member.assigned,
                member.pending_revocation,
            )
            for member in group.members.values()
        },
        group.static,
        {member_id: {topic: list(ids) for topic, ids in target.items()} for member_id, target in group.targets.items()},
        {pattern: list(resolved.topics) for pattern, resolved in group.resolved.items()},
        deepcopy(group.holders),
        group.held_bytes,
    )


def _types(world: GroupWorld, since: int) -> list[tuple[int, str, bool]]:
    return [(record.type, record.about, record.value is not None) for record in world.records(since)]


def test_what_a_join_a_reconciliation_and_a_leave_write() -> None:
    """K27: written together, only what changed."""
    world = GroupWorld(t=2)
    world.member("a").joins("t", assignor="range")
    log = world.world.log
    assert _types(world, 0) == [(5, "a", True), (3, "", True), (7, "a", True), (6, "", True), (8, "a", True)]
    at = len(log)
    b = world.member("b").joins("t", assignor="range")
    assert _types(world, at) == [
        *((5, "b", True), (3, "", True), (7, "a", True), (7, "b", True), (6, "", True), (8, "b", True)),
    ]
    at = len(log)
    b.leaves()
    assert _types(world, at) == [(8, "b", False), (7, "b", False), (5, "b", False), (3, "", True)]


def test_a_group_comes_back_as_it_was() -> None:
    """K27: with fresh sessions, and the time to give up partitions."""
    world = GroupWorld(t=4, u=1)
    a = world.member("a", "i").joins("t", assignor="range", timeout=2_000)
    b = world.member("b").joins("t", pattern="u", assignor="range")
    world.world.advance(1)
    a.beats()
    before = shape(world.group)
    world.world.move_coordinator()
    assert shape(world.group) == before
    world.world.advance(1_999)
    assert set(world.group.members) == {"a", "b"}
    world.world.advance(1)
    assert set(world.group.members) == {"b"}
    b.beats(expect={"t": [0, 1, 2, 3], "u": [0]})


def test_members_that_are_not_heard_of_after_a_load_expire() -> None:
    """K27."""
    world = GroupWorld(t=1)
    world.member("a").joins("t")
    world.world.crash()
    world.world.advance(45_000)
    world.expect("Empty", 3, 2)
    causes = [fact.cause for fact in world.world.facts if isinstance(fact, RebalanceStarted)]
    assert causes[-1] is Cause.COORDINATOR_MOVED


ACTIONS = st.sampled_from(["join", "leave", "topics", "time", "pattern", "beat", "give up", "own nothing"])


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 4), ACTIONS, st.integers(0, 3)), max_size=60))
def test_live_and_replayed_groups_are_the_same(actions: list[tuple[int, str, int]]) -> None:
    """K11, K27: whatever members do, no partition has two owners, and a replay gives the live group."""
    world = GroupWorld(t=5, u=3)
    members = [world.member(f"m{number}", f"i{number}" if number < 2 else None) for number in range(5)]
    for who, do, which in actions:
        member = members[who]
        instance = member.instance
        if do == "join":
            topics = [("t",), ("t", "u"), ("u",), ()][which]
            member.joins(*topics, timeout=700, expect=ANYTHING)
        elif do == "leave":
            member.says(-2 if instance and which else -1, instance_id=instance, expect=ANYTHING)
        elif do == "topics":
            world.image.create("u", 3 + which)
        elif do == "time":
            world.world.advance([1, 300, 11_000, 50_000][which])
        elif do == "pattern":
            member.beats(pattern=["u.*", "", "t|u", "t"][which], expect=ANYTHING)
        else:
            owned = {"beat": None, "give up": member.owned, "own nothing": {}}[do]
            member.beats(owned=owned, expect=ANYTHING)
        live = world.world.consumer_group("g")
        if live is None:
            continue
        held = [
            (topic, partition)
            for each in live.members.values()
            for assigned in (each.assigned, each.pending_revocation)
            for topic, partitions in assigned.items()
            for partition in partitions
        ]
        assert len(held) == len(set(held))
        assert {(topic, partition) for topic, ids in live.holders.items() for partition in ids} == set(held)
        (read,) = world.world.replay().groups(world.world.settings, world.world.now_ms, image=world.image)
        assert isinstance(read, ConsumerGroup)
        assert shape(read) == shape(live)


def test_answers_wait_for_the_log_and_later_requests_see_the_change() -> None:
    """K27: two joins are on their way at once, and a heartbeat that writes nothing waits for them."""
    world = GroupWorld(t=2)
    world.world.holds_writes = True
    a = world.member("a").joins("t", assignor="range")
    b = world.member("b").joins("t", assignor="range")
    assert a.heard is None
    assert b.heard is None
    assert b.beats(epoch=3).heard is None
    assert world.group.group_epoch == 3
    replies = world.world.replies
    world.world.end_write()
    assert [answer.member_epoch for answer in replies.values()] == [2]
    world.world.end_writes()
    assert [answer.member_epoch for answer in replies.values()] == [2, 3, 3]
    world.world.holds_writes = False
    assert shape(world.group)[0] == 3


def test_a_write_that_fails_takes_back_all_that_follows_from_it() -> None:
    """K27: the members hear an error, and the group is what the log has."""
    world = GroupWorld(t=2)
    a = world.member("a").joins("t", assignor="range")
    before = shape(world.group)
    world.world.holds_writes = True
    for name in ("b", "c", "d"):
        world.member(name).joins("t", assignor="range")
    a.leaves()
    assert world.world.writes_under_way == 1
    world.world.end_write(ErrorCode.NOT_ENOUGH_REPLICAS)
    errors = [answer.error for answer in list(world.world.replies.values())[1:]]
    assert errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 4
    assert shape(world.group) == before
    world.world.holds_writes = False
    assert world.world.writes_under_way == 0
    a.beats()
    world.world.advance(45_000)
    world.expect("Empty", 3, 2)


def test_a_member_that_left_stays_away_when_a_later_write_fails() -> None:
    """K27: its end is in the log."""
    world = GroupWorld(t=2)
    a, b = pair(world)
    b.leaves()
    world.world.holds_writes = True
    a.beats(owned={"t": [0]})
    world.world.end_write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert set(world.group.members) == {"a"}


def test_a_group_whose_first_write_fails_is_not_there() -> None:
    world = GroupWorld(t=2)
    world.world.holds_writes = True
    world.member("a").joins("t")
    world.world.end_write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.world.consumer_group("g") is None


def test_requests_are_answered_when_the_coordinator_moves() -> None:
    world = GroupWorld(t=2)
    world.world.holds_writes = True
    world.member("a").joins("t")
    world.world.move_coordinator()
    (answer,) = world.world.replies.values()
    assert answer.error is ErrorCode.NOT_COORDINATOR


def test_new_partitions_arrive_without_anybody_asking() -> None:
    """K28: and a topic that is created after it was subscribed; each bumps the epoch once."""
    world = GroupWorld(t=1)
    a = world.member("a").joins("t", "later")
    world.image.create("t", 2)
    a.beats(expect={"t": [0, 1]})
    world.expect("Stable", 3)
    world.image.create("later", 1)
    a.beats(expect={"t": [0, 1], "later": [0]})
    world.image.create("unrelated", 1)
    a.beats()
    world.expect("Stable", 4)


def test_new_partitions_arrive_after_a_write_of_them_that_failed() -> None:
    """K28: the epoch that was taken back begins with the next heartbeat."""
    world = GroupWorld(t=1)
    a = world.member("a").joins("t")
    world.image.create("t", 2)
    world.world.holds_writes = True
    a.beats()
    world.world.end_write(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.world.holds_writes = False
    a.beats(expect={"t": [0, 1]})
    world.expect("Stable", 3)


def test_a_new_topic_that_an_expression_matches_arrives_after_a_write_that_failed() -> None:
    """K7, K28: the expression is resolved again."""
    world = GroupWorld(t1=1)
    a = world.member("a").joins(pattern="t.*")
    world.world.advance(1)
    a.beats(expect={"t1": [0]})
    world.image.create("t2", 1)
    world.world.advance(10_001)
    a.beats()
    world.world.holds_writes = True
    world.world.advance(1)
    world.world.end_write(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.world.holds_writes = False
    a.beats()
    world.world.advance(1)
    a.beats(expect={"t1": [0], "t2": [0]})


def test_a_group_that_moves_during_a_write_holds_no_memory() -> None:
    """C4: what the write would have changed is not made again in a group that is gone."""
    world = GroupWorld(t=2)
    a = world.member("a").joins("t")
    world.world.holds_writes = True
    world.member("b").joins("t")
    a.leaves()
    held = world.world.shard.held_in_all
    world.world.shard.unload(world.world.now_ms)
    assert held.total == 0


def test_the_offsets_of_a_group() -> None:
    """K19, K20: the epoch counts; an older one is checked for each partition."""
    world = GroupWorld(t=4)
    a, b = pair(world)
    assert a.commits(3) == "NONE"  # of any partition, with the right epoch
    assert a.commits(0, epoch=2) == "NONE"
    assert a.commits(2, epoch=2) == "STALE_MEMBER_EPOCH"
    assert a.commits(0, epoch=4) == "STALE_MEMBER_EPOCH"
    assert b.commits(2, epoch=2) == "STALE_MEMBER_EPOCH"
    nobody = OffsetCommit(0, "g", "", None, -1, [CommitPartition("t", 0, 1)])
    assert world.ask(nobody).errors == [ErrorCode.UNKNOWN_MEMBER_ID]
    old = OffsetCommit(0, "g", "a", None, 3, [CommitPartition("t", 0, 1)], knows_group_id_not_found=False)
    assert world.ask(old).errors == [ErrorCode.UNSUPPORTED_VERSION]
    fetches = {
        ("a", 3): "NONE",
        ("a", 2): "STALE_MEMBER_EPOCH",
        ("a", 4): "STALE_MEMBER_EPOCH",
        ("", 3): "UNKNOWN_MEMBER_ID",
        (None, -1): "NONE",
    }
    for (member_id, epoch), error in fetches.items():
        fetch = OffsetFetch(0, "g", [("t", [0])], member_id=member_id, member_epoch=epoch)
        assert world.ask(fetch).error.name == error


def test_the_transactional_offsets_of_a_group() -> None:
    """TO3: without ids they are taken; a wrong epoch is ILLEGAL_GENERATION, never STALE_MEMBER_EPOCH."""
    world = GroupWorld(t=4)
    pair(world)

    def commits(partition: int, member_id: str, epoch: int) -> str:
        to = CommitPartition("t", partition, 1)
        commit = OffsetCommit(0, "g", member_id, None, epoch, [to], producer_id=5, producer_epoch=0)
        commit.knows_group_id_not_found = False
        return str(world.ask(commit).errors[0].name)

    assert commits(0, "", -1) == "NONE"
    assert commits(3, "a", 3) == "NONE"
    assert commits(0, "a", 2) == "NONE", "it has held the partition since then"
    assert commits(2, "a", 2) == "ILLEGAL_GENERATION"
    assert commits(0, "a", 4) == "ILLEGAL_GENERATION"
    assert commits(0, "stranger", 3) == "UNKNOWN_MEMBER_ID"


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    """K21: by name or expression; others of the request are."""
    world = GroupWorld(t=1, u=1, v=1)
    a = world.member("a").joins("t", pattern="u")
    world.world.advance(1)
    a.beats()
    assert [a.commits(0, topic) for topic in ("t", "u", "v")] == ["NONE"] * 3
    answer = world.ask(OffsetDelete(0, "g", [("t", [0]), ("u", [0]), ("v", [0])]))
    errors = [entry.error.name for entry in answer.partitions]
    assert errors == ["GROUP_SUBSCRIBED_TO_TOPIC", "GROUP_SUBSCRIBED_TO_TOPIC", "NONE"]
    assert set(world.group.offsets) == {"t", "u"}


def test_only_an_empty_group_is_deleted_and_a_new_one_starts_anew() -> None:
    """K21: a static member that is away is a member."""
    world = GroupWorld(t=1)
    a = world.member("a", "i").joins("t")
    a.commits()
    a.goes_away()
    assert world.ask(DeleteGroup(0, "g")) is ErrorCode.NON_EMPTY_GROUP
    a.leaves()
    assert world.ask(DeleteGroup(0, "g")) is ErrorCode.NONE
    assert world.world.consumer_group("g") is None
    world.world.crash()
    assert not world.world.shard.groups
    assert world.member("a").joins("t").epoch == 2


def test_offsets_expire_in_every_state_and_an_empty_group_with_them() -> None:
    """K21: those of topics that nobody subscribes to, from each commit."""
    world = GroupWorld({"offsets_retention_minutes": 1, "offsets_retention_check_interval_ms": 30_000}, t=1, u=1)
    a = world.member("a").joins("t")
    a.commits(0, "t")
    a.commits(0, "u")
    for _ in range(3):
        world.world.advance(30_000)
        a.beats()
    assert set(world.group.offsets) == {"t"}
    a.leaves()
    world.world.advance(120_000)
    assert world.world.consumer_group("g") is None
    assert any(isinstance(fact, GroupDied) for fact in world.world.facts)


def test_what_is_seen_of_a_group_by_others() -> None:
    """K22, K23: the classic API does not know it, a list does."""
    world = GroupWorld(t=1)
    world.member("a").joins("t")
    described = world.ask(DescribeGroup(0, "g"))
    assert (described.state, described.exists) == ("Dead", False)
    (listed,) = world.ask(ListGroups(0, types=["CONSUMER"], states=["stable"])).groups
    assert (listed.group_type, listed.protocol_type, listed.state) == ("consumer", "consumer", "Stable")
    assert not world.ask(ListGroups(0, types=["classic"])).groups


def test_a_member_is_described_with_what_it_has_still_to_give_up() -> None:
    """K22."""
    world = GroupWorld(t=2)
    a = world.member("a").joins("t", assignor="range")
    world.member("b").joins("t", assignor="range")
    a.beats(expect={"t": [0]})
    described = world.ask(DescribeConsumerGroup(0, "g")).members[0]
    topic_id = world.image.topics["t"].id
    assert (described.member_id, described.assignment) == ("a", {topic_id: [0, 1]})
    assert described.target == {topic_id: (0,)}


def test_records_of_classic_members_are_read_back() -> None:
    """K27: the tagged field of record 5."""
    metadata = MemberMetadata(None, "r", "c", "/h", ("t",), "", 9, "range", 5, [ClassicProtocol("range", b"x")])
    record = ConsumerGroupRecord(MEMBER, "g", "a", metadata)
    read = read_consumer_group_record(*write_consumer_group_record(record))
    assert read is not None
    assert isinstance(read.value, MemberMetadata)
    assert read.value.classic_session_timeout_ms == 5
    assert list(read.value.classic_protocols) == [ClassicProtocol("range", b"x")]
