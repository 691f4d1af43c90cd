"""K24 to K26: groups that change their type, and requests of the other protocol."""

from __future__ import annotations

from coordinator.consumer.group_world import GROUP, GroupWorld
from coterie.errors import ErrorCode
from coterie.protocol.messages import (
    CommitPartition,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    Protocol,
)


def _join(member_id: str = "") -> JoinGroup:
    protocols = [Protocol("range", b"")]
    return JoinGroup(0, GROUP, member_id, None, "consumer", protocols, 10_000, 10_000, "u", client_id="c")


def _commit_simply(world: GroupWorld) -> None:
    answer = world.ask(OffsetCommit(0, GROUP, "", None, -1, [CommitPartition("t", 0, 5)]))
    assert answer.errors == [ErrorCode.NONE]


def test_an_empty_classic_group_becomes_a_consumer_group() -> None:
    """K24: epochs start again from the beginning, offsets stay, also after a load."""
    world = GroupWorld(t=1)
    _commit_simply(world)
    a = world.member("a").joins("t")
    assert a.epoch == 2
    assert world.group.offsets["t"][0].offset == 5
    world.world.crash()
    assert world.group.offsets["t"][0].offset == 5
    assert list(world.group.members) == ["a"]


def test_an_empty_classic_group_stays_if_it_cannot_be_written() -> None:
    """K24: and so does what it committed."""
    world = GroupWorld(t=1)
    _commit_simply(world)
    world.world.holds_writes = True
    world.member("a").joins("t")
    world.world.end_write(ErrorCode.NOT_ENOUGH_REPLICAS)
    group = world.world.group(GROUP)
    assert group is not None
    assert group.offsets["t"][0].offset == 5


def test_leave_group_removes_consumer_members_with_one_bump() -> None:
    """K25: by id or instance; none found is no bump."""
    world = GroupWorld(t=1)
    world.member("a", "i").joins("t")
    world.member("b").joins("t")
    epoch = world.group.group_epoch
    leave = LeaveGroup(0, GROUP, [LeavingMember("", "i"), LeavingMember("b"), LeavingMember("c")])
    answer = world.ask(leave)
    assert [each.error.name for each in answer.members] == ["NONE", "NONE", "UNKNOWN_MEMBER_ID"]
    world.expect("Empty", epoch + 1, epoch)
    world.ask(LeaveGroup(0, GROUP, [LeavingMember("c")]))
    world.expect("Empty", epoch + 1, epoch)


def test_an_empty_consumer_group_becomes_classic_by_a_join_without_id() -> None:
    """K26: offsets stay, generation 1 follows; with an id nothing changes."""
    world = GroupWorld(t=1)
    a = world.member("a").joins("t")
    a.commits()
    a.leaves()
    assert world.ask(_join("x")).error is ErrorCode.UNKNOWN_MEMBER_ID
    world.expect("Empty", 3, 2)
    given = world.ask(_join())
    assert given.error is ErrorCode.MEMBER_ID_REQUIRED
    request = _join(given.member_id)
    world.ask(request)
    world.world.advance(3_000)
    assert world.world.replies[request.token].generation_id == 1  # type: ignore[index]
    group = world.world.group(GROUP)
    assert group is not None
    assert group.offsets["t"][0].offset == 7
    world.world.crash()
    assert world.world.consumer_group(GROUP) is None
