"""K24 to K27: whatever members of both protocols do, and whatever happens to writes and coordinators."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.consumer.group_world import GROUP, GroupWorld
from coordinator.consumer.test_lifecycle import shape
from coterie.coordinator.classic import Group
from coterie.coordinator.classic.member_bytes import count_held
from coterie.coordinator.consumer import ConsumerGroup
from coterie.errors import ErrorCode
from coterie.protocol.messages import (
    ConsumerGroupHeartbeat,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    Protocol,
    SyncGroup,
)
from coterie.protocol.subscription import Assignment, Subscription, write_assignment, write_subscription

MEMBERS = 4
TOPICS = [("t",), ("t", "u"), ("u",), ("t",)]
DO = st.sampled_from(
    [
        *("consumer joins", "consumer beats", "consumer gives up", "consumer leaves", "goes away"),
        *("classic joins", "classic joins", "joins without id", "syncs", "beats", "leaves"),
        *("time passes", "writes are held", "writes end", "writes fail", "coordinator moves", "crashes"),
    ]
)
STEPS = st.lists(st.tuples(DO, st.integers(0, MEMBERS - 1), st.integers(0, 3)), max_size=50)


class Players:
    """Members that say anything at any time, with the ids and epochs that the group has for them."""

    def __init__(self) -> None:
        self.world = GroupWorld(t=4, u=2)
        self.ids = [f"m{number}" for number in range(MEMBERS)]

    @property
    def group(self) -> Group | ConsumerGroup | None:
        return self.world.world.shard.groups.get(GROUP)

    def epoch(self, member_id: str) -> int:
        group = self.group
        if isinstance(group, Group):
            return group.generation_id
        member = None if group is None else group.members.get(member_id)
        return 0 if member is None else member.epoch

    def owned(self, member_id: str) -> dict[UUID, list[int]]:
        group = self.group
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        return {} if member is None else {topic_id: list(some) for topic_id, some in member.assigned.items()}

    def does(self, what: str, number: int, which: int) -> None:
        world = self.world.world
        if what == "time passes":
            world.advance([1, 2_000, 12_000, 46_000][which])
        elif what == "writes are held":
            world.holds_writes = True
        elif what in {"writes end", "writes fail"}:
            world.end_writes(ErrorCode.NOT_ENOUGH_REPLICAS if what == "writes fail" else ErrorCode.NONE)
            world.holds_writes = False
            world.end_writes()
        elif what in {"coordinator moves", "crashes"}:
            (world.crash if what == "crashes" else world.move_coordinator)()
            world.holds_writes = False
        else:
            self.world.ask(self._request(what, number, which))

    def _request(self, what: str, number: int, which: int) -> Any:
        member_id = self.ids[number]
        instance = f"i{number}" if number == 0 else None
        epoch = self.epoch(member_id)
        if what.startswith(("consumer", "goes")):
            joins = what == "consumer joins"
            leaves = {"consumer leaves": -1, "goes away": -2 if instance else -1}.get(what)
            return ConsumerGroupHeartbeat(
                0,
                GROUP,
                member_id,
                0 if joins else epoch if leaves is None else leaves,
                instance_id=instance,
                rebalance_timeout_ms=10_000 if joins else -1,
                topics=TOPICS[which] if joins else None,
                assignor=["range", "uniform"][which % 2] if joins else None,
                owned={} if joins else self.owned(member_id) if what == "consumer gives up" else None,
                client_id="c",
                client_host="/h",
            )
        if what in {"classic joins", "joins without id"}:
            names = self.world.image.topic_names
            owned = {names[topic_id]: numbers for topic_id, numbers in self.owned(member_id).items()}
            metadata = write_subscription(Subscription(TOPICS[which], None, owned, version=which % 2))
            protocols = [Protocol("range", metadata), Protocol("sticky", metadata)]
            without = what == "joins without id"
            return JoinGroup(
                0,
                GROUP,
                "" if without else member_id,
                instance if without or which else None,
                "consumer",
                protocols,
                10_000,
                10_000,
                f"m{number}-{self.world.world._tokens}",
                client_id="c",
                client_host="/h",
                needs_member_id=False,
            )
        if what == "syncs":
            shares = [(each, write_assignment(Assignment({"t": [at]}))) for at, each in enumerate(self.ids)]
            return SyncGroup(0, GROUP, member_id, None, epoch, shares if which else ())
        if what == "beats":
            return Heartbeat(0, GROUP, member_id, None, epoch)
        return LeaveGroup(0, GROUP, [LeavingMember(member_id), LeavingMember(self.ids[which])])

    def learn_ids(self) -> None:
        """Take the ids that the group has made, so that their owners can be heard of again."""
        group = self.group
        if group is not None:
            for member_id in group.members:
                if member_id not in self.ids:
                    self.ids[int(member_id.removeprefix("c-").removeprefix("i0-")[1])] = member_id

    def check(self) -> None:
        world = self.world.world
        group = self.group
        assert world.shard.held_in_all.total == sum(
            each.held_bytes for each in (group, *_others(world.shard)) if each is not None
        )
        if isinstance(group, Group):
            assert group.held_bytes == count_held(group)
        if isinstance(group, ConsumerGroup):
            held = Counter(
                (topic_id, partition)
                for member in group.members.values()
                for some in (member.assigned, member.pending_revocation)
                for topic_id, partitions in some.items()
                for partition in partitions
            )
            assert not [place for place, owners in held.items() if owners > 1]
            assert group.classic_members == sum(member.is_classic for member in group.members.values())
        if world.writes_under_way:
            return
        if isinstance(group, ConsumerGroup):
            assert set(group.members) <= set(group.sessions)
        read = {each.group_id: each for each in world.replay().groups(world.settings, world.now_ms, image=world.image)}
        replayed = read.get(GROUP)
        assert type(replayed) is type(group)
        if isinstance(group, ConsumerGroup) and isinstance(replayed, ConsumerGroup):
            assert shape(replayed) == shape(group)


def _others(shard: Any) -> list[Group | ConsumerGroup]:
    """Return groups that wait for their place, or to be gone: an upgrade or a downgrade is on its way to the log."""
    successors = [getattr(item.then, "successor", None) for item in (*shard._under_way, *shard._queue)]
    found = [successor for successor in successors if successor is not None]
    upgraded = [each.upgrade for each in shard.groups.values() if isinstance(each, ConsumerGroup)]
    return found + [upgrade.classic for upgrade in upgraded if upgrade is not None]


@settings(max_examples=60)
@given(STEPS)
def test_members_of_both_protocols_do_anything(steps: list[tuple[str, int, int]]) -> None:
    """K11, K24 to K27: no partition has two owners, a replay gives the live group, and memory is counted."""
    players = Players()
    for step in steps:
        players.does(*step)
        players.learn_ids()
        players.check()
