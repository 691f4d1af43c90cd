"""A consumer group on a clock that is moved, with members that say heartbeats.

world = GroupWorld(t=4)
a = world.member("a").joins("t")
a.beats(expect={"t": [0, 1]})
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from coterie.coordinator.classic import Group
from coterie.coordinator.consumer import ConsumerGroup
from coterie.protocol.consumer_group_records import ConsumerGroupRecord, read_consumer_group_record
from coterie.protocol.messages import (
    CommitPartition,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    Heartbeat,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    Protocol,
    SyncedGroup,
    SyncGroup,
)
from coterie.protocol.subscription import (
    Assignment,
    Subscription,
    read_assignment,
    write_assignment,
    write_subscription,
)
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings
from coterie.stories.world import StoryTopics, StoryWorld

GROUP = "g"
ANYTHING = "*"
QUICK = {"group_consumer_assignment_interval_ms": 0}


class GroupWorld:
    def __init__(self, settings: dict[str, Any] | None = None, **topics: int) -> None:
        self.image = StoryTopics()
        for name, partitions in topics.items():
            self.image.create(name, partitions)
        chosen = GroupCoordinatorSettings(**{**QUICK, **(settings or {})})
        self.world = StoryWorld(chosen, now_ms=1_000_000, image=self.image)

    def member(self, name: str, instance: str | None = None) -> ConsumerMember:
        return ConsumerMember(self, name, instance)

    def classic(self, name: str, instance: str | None = None) -> ClassicMember:
        return ClassicMember(self, name, instance)

    @property
    def classic_group(self) -> Group:
        found = self.world.group(GROUP)
        assert found is not None
        return found

    @property
    def group(self) -> ConsumerGroup:
        found = self.world.consumer_group(GROUP)
        assert found is not None
        return found

    def ask(self, request: Any) -> Any:
        """Return the answer; None if it waits for a write."""
        request.token = self.world.token()
        self.world.send(request)
        return self.world.replies.get(request.token)

    def records(self, since: int = 0) -> list[ConsumerGroupRecord]:
        read = [read_consumer_group_record(entry.key, entry.value) for entry in self.world.log[since:]]
        return [record for record in read if record is not None]

    def expect(self, state: str, epoch: int, assignment_epoch: int | None = None) -> None:
        wanted = (state, epoch, epoch if assignment_epoch is None else assignment_epoch)
        assert (self.group.state.value, self.group.group_epoch, self.group.assignment_epoch) == wanted

    def shares(self) -> dict[str, dict[str, list[int]]]:
        """Return what each member is assigned."""
        names = self.image.topic_names
        return {
            member.member_id: {names[topic_id]: sorted(has) for topic_id, has in sorted(member.assigned.items())}
            for member in self.group.members.values()
        }


class ConsumerMember:
    def __init__(self, world: GroupWorld, name: str, instance: str | None = None) -> None:
        self.world = world
        self.name = name
        self.instance = instance
        self.epoch = 0
        self.owned: dict[str, list[int]] = {}
        self.heard: ConsumerGroupHeartbeatAnswer | None = None

    def says(self, epoch: int, *, expect: Any = None, **said: Any) -> Self:
        """Send a heartbeat. `expect` is the name of an error, or the partitions in the answer by topic."""
        owned = said.pop("owned", None)
        topics = self.world.image.topics
        by_id = None if owned is None else {topics[name].id: numbers for name, numbers in owned.items()}
        request = ConsumerGroupHeartbeat(
            0, GROUP, said.pop("id", self.name), epoch, client_id="c", client_host="/h", owned=by_id, **said
        )
        answer = self.heard = self.world.ask(request)
        if answer is None:
            return self
        if expect == ANYTHING and answer.error:
            return self
        if isinstance(expect, str) and expect != ANYTHING:
            assert answer.error.name == expect, answer
        else:
            assert answer.error.name == "NONE", answer
            self.epoch = answer.member_epoch
            names = self.world.image.topic_names
            given = answer.assignment
            shown = None if given is None else {names.get(each, "?"): list(given[each]) for each in given}
            if shown is not None:
                self.owned = shown
            if isinstance(expect, dict):
                assert shown == expect
        return self

    def joins(self, *topics: str, expect: Any = None, timeout: int = 60_000, **said: Any) -> Self:
        said.setdefault("instance_id", self.instance)
        return self.says(0, expect=expect, rebalance_timeout_ms=timeout, topics=topics, owned={}, **said)

    def beats(self, *, expect: Any = None, **said: Any) -> Self:
        return self.says(said.pop("epoch", self.epoch), expect=expect, **said)

    def gives_up(self, *, expect: Any = None) -> Self:
        """Report what it was told to own, and nothing else."""
        return self.beats(expect=expect, owned=self.owned)

    def leaves(self, *, expect: Any = None) -> Self:
        return self.says(-1, expect=expect)

    def goes_away(self, *, expect: Any = None) -> Self:
        return self.says(-2, expect=expect, instance_id=self.instance)

    def commits(self, partition: int = 0, topic: str = "t", epoch: int | None = None) -> str:
        to = CommitPartition(topic, partition, 7, topic_id=self.world.image.topics[topic].id)
        generation = self.epoch if epoch is None else epoch
        answer = self.world.ask(OffsetCommit(0, GROUP, self.name, None, generation, [to]))
        return str(answer.errors[0].name)


class ClassicMember:
    """A member of the classic protocol. Its id is its name, unless the group makes it one."""

    def __init__(self, world: GroupWorld, name: str, instance: str | None = None) -> None:
        self.world = world
        self.id = name
        self.instance = instance
        self.generation = -1
        self.owned: dict[str, list[int]] = {}
        self.topics: Sequence[str] = ("t",)
        self.parked: Any = None

    def joins(self, *topics: str, expect: str | None = "NONE", **said: Any) -> Self:
        """Join; `expect` is the name of the error, or None if no answer comes yet."""
        self.topics = topics or self.topics
        version = said.pop("version", 1)
        subscription = Subscription(self.topics, None, said.pop("owned", self.owned), version=version)
        metadata = said.pop("metadata", write_subscription(subscription))
        request = JoinGroup(
            0,
            GROUP,
            said.pop("id", self.id),
            said.pop("instance", self.instance),
            said.pop("type", "consumer"),
            [Protocol(name, metadata) for name in said.pop("protocols", ("range",))],
            said.pop("session", 30_000),
            said.pop("timeout", 60_000),
            f"fresh-{self.id}",
            client_id="c",
            client_host="/h",
            needs_member_id=said.pop("needs_member_id", False),
        )
        assert not said
        answer = self.world.ask(request)
        self.parked = request.token if answer is None else None
        if answer is None:
            assert expect is None
            return self
        return self._joined(answer, expect)

    def _joined(self, answer: JoinedGroup, expect: str | None) -> Self:
        assert answer.error.name == expect, answer
        if not answer.error:
            self.id, self.generation = answer.member_id, answer.generation_id
        return self

    def hears(self, expect: str = "NONE") -> Self:
        answer = self.world.world.replies[self.parked]
        if isinstance(answer, JoinedGroup):
            return self._joined(answer, expect)
        return self._synced(answer, expect)

    def syncs(self, expect: Any = None, **said: Any) -> Self:
        """Sync; `expect` is the name of an error, or what is assigned."""
        given = [(member.id, write_assignment(Assignment(shares))) for member, shares in said.pop("give", {}).items()]
        generation = said.pop("generation", self.generation)
        request = SyncGroup(0, GROUP, self.id, self.instance, generation, given, **said)
        answer = self.world.ask(request)
        self.parked = request.token if answer is None else None
        return self if answer is None else self._synced(answer, expect)

    def _synced(self, answer: SyncedGroup, expect: Any) -> Self:
        if isinstance(expect, str):
            assert answer.error.name == expect, answer
        else:
            assert not answer.error, answer
            read = read_assignment(answer.assignment)
            self.owned = {name: list(numbers) for name, numbers in read.partitions.items()}
            if expect is not None:
                assert self.owned == expect
        return self

    def beats(self, expect: str = "NONE", **said: Any) -> Self:
        generation = said.pop("generation", self.generation)
        error = self.world.ask(Heartbeat(0, GROUP, self.id, said.pop("instance", self.instance), generation))
        assert error.name == expect
        return self

    def leaves(self) -> str:
        answer = self.world.ask(LeaveGroup(0, GROUP, [LeavingMember(self.id, self.instance)]))
        return str(answer.members[0].error.name)

    def commits(self, generation: int | None = None) -> str:
        to = CommitPartition("t", 0, 7)
        at = self.generation if generation is None else generation
        return str(self.world.ask(OffsetCommit(0, GROUP, self.id, None, at, [to])).errors[0].name)


def classic_pair(world: GroupWorld) -> tuple[ClassicMember, ClassicMember]:
    """Return two members of a Stable classic group that share t, of four partitions."""
    a, b = world.classic("a"), world.classic("b")
    a.joins(id="", expect=None)
    world.world.advance(3_000)
    a.hears()
    b.joins(id="", expect=None)
    a.joins()
    b.hears()
    b.syncs()
    a.syncs({"t": [0, 1]}, give={a: {"t": [0, 1]}, b: {"t": [2, 3]}})
    b.hears()
    return a, b


def pair(world: GroupWorld, topics: Sequence[str] = ("t",)) -> tuple[ConsumerMember, ConsumerMember]:
    """Return two members that share the topics, by `range`, and are Stable."""
    a = world.member("a").joins(*topics, assignor="range")
    b = world.member("b").joins(*topics, assignor="range")
    a.beats().gives_up()
    b.beats()
    return a, b


def mixed_pair(world: GroupWorld) -> tuple[ClassicMember, ConsumerMember]:
    """Return a classic and a consumer member that share t, of four partitions, and are Stable."""
    z = world.member("z").joins("t", assignor="range")
    a = world.classic("a").joins()
    z.beats()
    z.gives_up()
    a.joins().syncs({"t": [0, 1]})
    return a, z
