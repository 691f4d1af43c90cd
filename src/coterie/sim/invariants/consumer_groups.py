"""Invariants of consumer groups (KIP-848): who holds a partition, epochs, what was acknowledged, why an epoch began."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from coterie.client.member import ConsumerMembership
from coterie.client.types import TopicPartition
from coterie.coordinator.consumer import ConsumerGroup, GroupState, MemberState
from coterie.coordinator.consumer.group import ConsumerGroupMember
from coterie.errors import ErrorCode
from coterie.facts import (
    CONSUMER,
    Cause,
    Fact,
    GroupCreated,
    GroupDied,
    GroupDowngraded,
    GroupEmptied,
    GroupLoaded,
    GroupUnloaded,
    GroupUpgraded,
    MemberExpired,
    MemberMissedRevocation,
    RebalanceStarted,
    WriteFailed,
)
from coterie.protocol.apis import consumer_group_heartbeat, join_group, leave_group, offset_commit
from coterie.protocol.apis.consumer_group_heartbeat import Request
from coterie.sim.clients import Asked, Client
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.machine import BrokerLink, Machine
from coterie.sim.world import Observer, World

_HEARTBEAT, _COMMIT, _JOIN_GROUP, _LEAVE_GROUP = (
    module.API.key for module in (consumer_group_heartbeat, offset_commit, join_group, leave_group)
)
_JOIN, _LEAVE, _STATIC_LEAVE = 0, -1, -2
_NEW_LIFE = (GroupCreated, GroupDied, GroupEmptied)
"""An Empty group may change its type, and counts again then (K24, K26)."""
_OTHER_STATE = (WriteFailed, GroupLoaded, GroupUnloaded, *_NEW_LIFE)
"""The events that may take back an epoch that no answer had."""


class GroupObserver(Observer):
    """Looks at a consumer group before each of its requests is handled: so it sees what the last one has done."""

    requests: tuple[int, ...] = (_HEARTBEAT, _COMMIT, _JOIN_GROUP)

    def request_arrived(self, _machine: Machine, link: BrokerLink, _frame: bytes) -> None:
        if link.wire.client.group_id in self.world.consumer_protocol_groups:
            self._look_at(link.wire.client.group_id)

    def sample(self) -> None:
        for group_id in self.world.consumer_protocol_groups:
            self._look_at(group_id)

    def _look_at(self, group_id: str) -> None:
        group = self.world.consumer_group(group_id)
        if group is not None:
            self.look(group)

    def look(self, group: ConsumerGroup) -> None:
        raise NotImplementedError


def _held(member: ConsumerGroupMember) -> Iterator[tuple[UUID, int]]:
    for some in (member.assigned, member.pending_revocation):
        for topic_id, partitions in some.items():
            for partition in partitions:
                yield topic_id, partition


class OneHolder(GroupObserver):
    """No partition is held by two members, as the coordinator sees it (K11), and no two consumers that the coordinator
    has as members in their epoch read the same partition. A topic that was created again is another one, by its id.
    """

    name = "one holder"

    def look(self, group: ConsumerGroup) -> None:
        holders: dict[tuple[UUID, int], str] = {}
        for member in group.members.values():
            for one in _held(member):
                other = holders.setdefault(one, member.member_id)
                if other != member.member_id:
                    self.fails(f"{one} of {group.group_id} is held by {other} and by {member.member_id}")
        known = {(topic_id, at): who for topic_id, of in group.holders.items() for at, who in of.items()}
        if known != holders:
            self.fails(f"{group.group_id} takes {known} for the holders, which are {holders}")

    def ownership_changed(self, consumer: ConsumerProcess) -> None:
        group = self.world.consumer_group(consumer.group_id)
        if group is None or not _is_member(group, consumer):
            return
        for other in (*self.world.consumers.values(), *self.world.displaced):
            if other is not consumer and other.group_id == consumer.group_id and _is_member(group, other):
                both = _read_by(group, consumer) & _read_by(group, other)
                if both:
                    self.fails(f"{consumer.name} and {other.name} read {both}")


def _read_by(group: ConsumerGroup, consumer: ConsumerProcess) -> set[tuple[UUID, int]]:
    """Return the partitions that a consumer reads, by the ids of their topics as it knows them."""
    member = consumer.member
    if isinstance(member, ConsumerMembership):
        return {
            (topic_id, at)
            for topic_id, partitions in member.owned.items()
            for at in partitions
            if (member.topic_names.get(topic_id), at) in member.assigned
        }
    topics = group.image.topics
    return {(topics[one.topic].id, one.partition) for one in member.assigned if one.topic in topics}


def _is_member(group: ConsumerGroup, consumer: ConsumerProcess) -> bool:
    """Return whether it is in the group with its epoch, or the one before: then its last answer is on its way."""
    member = group.members.get(consumer.member.member_id)
    return member is not None and consumer.member.generation_id in (member.epoch, member.previous_epoch)


@dataclass(slots=True)
class _LastAnswer:
    """The last answer that a member got."""

    epoch: int
    sent_ms: int
    """The time at which it sent the heartbeat that was answered so."""
    at_ms: int
    """The time at which it got the answer."""
    assigned: Mapping[UUID, frozenset[int]] = field(default_factory=dict)


class EpochsNeverGoBack(GroupObserver):
    """Epochs of groups, targets and members only grow, and a heartbeat that was answered is durable (K1 to K3, K27).

    What no answer had may be taken back, if it could not be written or the coordinator died.
    """

    name = "epochs never go back"
    answers = (_HEARTBEAT,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._seen: dict[str, tuple[int, int]] = {}
        """The group epoch and the assignment epoch of each group."""
        self._was_empty: set[str] = set()
        self._answers: dict[str, dict[str, _LastAnswer]] = {}
        """The last answer of each member, by group."""
        self._left: set[str] = set()
        """Members that have sent a leave."""
        self.count = 0

    def on_fact(self, _machine: Machine, fact: Fact) -> None:
        if isinstance(fact, _OTHER_STATE):
            self._seen.pop(fact.group_id, None)
        if isinstance(fact, _NEW_LIFE):
            self._answers.pop(fact.group_id, None)
        elif type(fact) is GroupLoaded:
            group = self.world.consumer_group(fact.group_id)
            if group is None:
                self._answers.pop(fact.group_id, None)
            else:
                self.look(group)
                self._are_there(group)

    def heartbeat_sent(self, _client: Client, request: Request) -> None:
        if request.member_epoch in {_LEAVE, _STATIC_LEAVE}:
            self._left.add(request.member_id)
        elif request.member_epoch == _JOIN:
            self._left.discard(request.member_id)

    def answered(self, client: Client, asked: Asked, answer: Any) -> None:
        if answer.error or answer.member_epoch <= 0:
            return
        self.count += 1
        request: Request = asked.request
        members = self._answers.setdefault(request.group_id, {})
        last = members.get(request.member_id)
        if last is not None and asked.sent_ms > last.at_ms and answer.member_epoch < last.epoch:
            self.fails(f"{client.name} was answered epoch {last.epoch}, and then {answer.member_epoch}")
        if last is None or asked.sent_ms >= last.sent_ms:
            assigned = last.assigned if last is not None else {}
            if answer.assignment is not None:
                assigned = {one.topic_id: frozenset(one.partitions) for one in answer.assignment.topic_partitions}
            now_ms = self.world.schedule.now_ms
            members[request.member_id] = _LastAnswer(answer.member_epoch, asked.sent_ms, now_ms, assigned)

    def look(self, group: ConsumerGroup) -> None:
        group_id = group.group_id
        epochs = (group.group_epoch, group.assignment_epoch)
        before = self._seen.get(group_id, epochs)
        if group_id in self._was_empty and epochs < before:
            self._answers.pop(group_id, None)  # it has expired, and another has its name
            before = epochs
        self._seen[group_id] = epochs
        (self._was_empty.add if group.state is GroupState.EMPTY else self._was_empty.discard)(group_id)
        if epochs[0] < before[0] or epochs[1] < before[1]:
            self.fails(f"{group_id} had the epochs {before}, and has {epochs}")
        if not 1 <= epochs[1] <= epochs[0]:
            self.fails(f"{group_id} has the group epoch {epochs[0]} and the assignment epoch {epochs[1]}")
        answers = self._answers.get(group_id, {})
        for member in group.members.values():
            if member.epoch > epochs[1]:
                self.fails(f"{member.member_id} is in epoch {member.epoch}, and the target is of {epochs[1]}")
            last = answers.get(member.member_id)
            if last is not None and member.epoch < last.epoch and not member.is_away:
                self.fails(f"{member.member_id} was answered epoch {last.epoch}, and is in {member.epoch}")
        newest = max((one.epoch for one in answers.values()), default=0)
        if newest > epochs[1]:
            self.fails(f"a member of {group_id} was answered epoch {newest}, and the target is of {epochs[1]}")

    def _are_there(self, group: ConsumerGroup) -> None:
        """Check a group that was loaded: it has what its members were answered."""
        now_ms = self.world.schedule.now_ms
        for member_id, last in list(self._answers.get(group.group_id, {}).items()):
            member = group.members.get(member_id)
            if member is None:
                if member_id in self._is_beating(group, last, now_ms):
                    self.fails(f"{member_id} was answered epoch {last.epoch}; {group.group_id} is loaded without it")
                del self._answers[group.group_id][member_id]
            elif member.epoch == last.epoch:
                subscribed = {
                    group.image.topics[name].id for name in group.topics_of(member) if name in group.image.topics
                }
                wanted = {
                    (topic_id, at)
                    for topic_id, partitions in last.assigned.items()
                    if topic_id in subscribed
                    for at in partitions
                }
                missing = wanted - set(_held(member))
                if missing:
                    self.fails(f"{member_id} was assigned {missing} in epoch {last.epoch}, which are not loaded")

    def _is_beating(self, group: ConsumerGroup, last: _LastAnswer, now_ms: int) -> set[str]:
        """Return the members that must be there: they were heard a short while ago, and nothing removes them."""
        if now_ms - last.sent_ms > _shortest_session_ms(self.world, group.group_id) * 3 // 4:
            return set()
        return {
            consumer.member.member_id
            for consumer in self.world.consumers.values()
            if consumer.group_id == group.group_id and consumer.member.has_generation and not consumer.is_paused
        } - self._left


def _shortest_session_ms(world: World, group_id: str) -> int:
    """Return the shortest session timeout that the group has had."""
    settings = world.machine.settings
    return min([settings.group_consumer_session_timeout_ms, *world.admin.session_ms.get(group_id, [])])


@dataclass(slots=True)
class _Bumps:
    epoch: int | None = None
    """The group epoch of the last fact; None: it is not known."""
    topics_changed: int = 0
    """The number of epochs that began since topics changed."""


_BY_A_JOIN = {Cause.NEW_MEMBER, Cause.PROTOCOLS_CHANGED, Cause.SUBSCRIPTION_CHANGED}


class EpochsHaveCauses(GroupObserver):
    """Every group epoch has a fact that says why it began, and that really happened (K1)."""

    name = "group epochs have causes"
    requests = (*GroupObserver.requests, _LEAVE_GROUP)
    answers = (_HEARTBEAT,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._bumps: dict[str, _Bumps] = {}
        self._joined: set[str] = set()
        self._left: set[str] = set()
        """Members of the newer protocol that have sent a join or a leave, and groups in which classic members have."""
        self._heard_ms: dict[str, int] = {}
        """The time at which each member sent its last heartbeat that was accepted."""
        self._unrevoked_ms: dict[str, tuple[int, int]] = {}
        """The epoch in which a member has partitions to give up, and since when."""
        self.count = 0

    def request_arrived(self, machine: Machine, link: BrokerLink, frame: bytes) -> None:
        if frame[1] in GroupObserver.requests:
            super().request_arrived(machine, link, frame)
        if frame[1] == _JOIN_GROUP:
            self._joined.add(link.wire.client.group_id)
        elif frame[1] == _LEAVE_GROUP:
            self._left.add(link.wire.client.group_id)

    def heartbeat_sent(self, _client: Client, request: Request) -> None:
        if request.member_epoch == _JOIN:
            self._joined.add(request.member_id)
        elif request.member_epoch == _LEAVE:
            self._left.add(request.member_id)

    def answered(self, _client: Client, asked: Asked, answer: Any) -> None:
        if not answer.error and asked.request.member_epoch >= 0:
            who = asked.request.member_id
            self._heard_ms[who] = max(self._heard_ms.get(who, 0), asked.sent_ms)

    def look(self, group: ConsumerGroup) -> None:
        now_ms = self.world.schedule.now_ms
        for member in group.members.values():
            if member.state is not MemberState.UNREVOKED_PARTITIONS:
                self._unrevoked_ms.pop(member.member_id, None)
            elif self._unrevoked_ms.get(member.member_id, (None, 0))[0] != member.epoch:
                self._unrevoked_ms[member.member_id] = (member.epoch, now_ms)
        bumps = self._bumps.get(group.group_id)
        if bumps is not None and bumps.epoch not in (None, group.group_epoch) and not group.unwritten:
            self.fails(f"{group.group_id} is in epoch {group.group_epoch}; facts say {bumps.epoch}")

    def on_fact(self, machine: Machine, fact: Fact) -> None:
        if fact.group_id not in self.world.consumer_protocol_groups:
            return
        bumps = self._bumps.setdefault(fact.group_id, _Bumps())
        if type(fact) is RebalanceStarted:
            self._started(bumps, fact)
        elif type(fact) is MemberExpired:
            self._expired(machine, fact)
        elif type(fact) is MemberMissedRevocation:
            self._too_late(fact)
        elif isinstance(fact, (GroupLoaded, GroupUnloaded, GroupDied, GroupUpgraded, GroupDowngraded)):
            bumps.epoch = None

    def _started(self, bumps: _Bumps, fact: RebalanceStarted) -> None:
        if fact.group_type != CONSUMER:
            bumps.epoch = None  # it was a classic group then
            return
        self.count += 1
        if bumps.epoch is not None and fact.generation_id != bumps.epoch:
            self.fails(f"{fact.group_id} went from epoch {bumps.epoch} to {fact.generation_id + 1} (K1)")
        bumps.epoch = fact.generation_id + 1
        cause, member_id = fact.cause, fact.member_id
        if cause in _BY_A_JOIN and not {member_id, fact.group_id} & self._joined:
            self.fails(f"epoch {bumps.epoch} of {fact.group_id}: {cause}, and {member_id} has not joined")
        if cause is Cause.MEMBER_LEFT and not {member_id, fact.group_id} & self._left:
            self.fails(f"epoch {bumps.epoch} of {fact.group_id}: {member_id} has not left")
        if cause is Cause.TOPICS_CHANGED and not self._has_pattern(fact.group_id):
            bumps.topics_changed += 1
            if bumps.topics_changed > self.world.admin.topic_changes:
                self.fails(f"epoch {bumps.epoch} of {fact.group_id}: no topic has changed since the last one")

    def _has_pattern(self, group_id: str) -> bool:
        habits = [*(one.habits for one in self.world.consumers.values()), *self.world.restarting.values()]
        return any(one.group_id == group_id and one.pattern is not None for one in habits)

    def _expired(self, machine: Machine, fact: MemberExpired) -> None:
        """A member that is heard does not expire. A pause of the broker only makes its sessions longer."""
        heard_ms = self._heard_ms.get(fact.member_id)
        if heard_ms is None or self.world.consumer_group(fact.group_id) is None:
            return
        silent_ms = self.world.schedule.now_ms - heard_ms
        if silent_ms < _shortest_session_ms(machine.world, fact.group_id) * 3 // 4:
            self.fails(f"{fact.member_id} expired {silent_ms} ms after it was heard")

    def _too_late(self, fact: MemberMissedRevocation) -> None:
        """A member has its whole rebalance timeout to give up partitions (K12)."""
        since = self._unrevoked_ms.get(fact.member_id)
        for consumer in self.world.consumers.values():
            if consumer.member.member_id == fact.member_id and since is not None:
                took_ms = self.world.schedule.now_ms - since[1]
                if took_ms < consumer.habits.max_poll_interval_ms * 9 // 10:
                    self.fails(f"{fact.member_id} was removed {took_ms} ms after it was told to give up partitions")


@dataclass(slots=True)
class _Epochs:
    """The members of a group at a time."""

    since_ms: int
    members: Mapping[str, tuple[int, int, Mapping[UUID, Mapping[int, int]], Mapping[UUID, Mapping[int, int]]]] | None
    """Member epoch, previous epoch, assigned, pending revocation. None: it is a classic group, and not judged here."""
    names: Mapping[UUID, str] = field(default_factory=dict)


_REMEMBERED = 200


class EpochsAreChecked(GroupObserver):
    """Heartbeats and commits are granted only in an epoch that the rules allow (K8, K19)."""

    name = "epochs are checked"
    answers = (_HEARTBEAT, _COMMIT)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._history: dict[str, deque[_Epochs]] = {}
        self._looked_ms: dict[str, int] = {}
        self.count = 0

    def _look_at(self, group_id: str) -> None:
        group = self.world.any_group(group_id)
        if isinstance(group, ConsumerGroup):
            members = {
                one.member_id: (one.epoch, one.previous_epoch, one.assigned, one.pending_revocation)
                for one in group.members.values()
            }
            self._note(group_id, _Epochs(self._looked_ms.get(group_id, 0), members, dict(group.image.topic_names)))
        elif group is not None:
            self._note(group_id, _Epochs(self._looked_ms.get(group_id, 0), None))

    def _note(self, group_id: str, epochs: _Epochs) -> None:
        history = self._history.setdefault(group_id, deque(maxlen=_REMEMBERED))
        if not history or history[-1].members != epochs.members:
            history.append(epochs)
        self._looked_ms[group_id] = self.world.schedule.now_ms

    def answered(self, client: Client, asked: Asked, answer: Any) -> None:
        request = asked.request
        if asked.module is consumer_group_heartbeat:
            if not answer.error and request.member_epoch > 0:
                self._must(client, asked, _may_beat, f"a heartbeat in epoch {request.member_epoch}")
            return
        if request.group_id not in self._history:
            return
        if request.generation_id >= 0 and ErrorCode.NONE in answer.errors:
            self.count += 1
            self._must(client, asked, _may_commit, f"a commit in epoch {request.generation_id}")

    def _must(self, client: Client, asked: Asked, allows: Any, what: str) -> None:
        group_id = asked.request.group_id
        self._look_at(group_id)
        for state in reversed(self._history.get(group_id, ())):
            if state.members is None or allows(state.members, state.names, asked.request):
                return
            if state.since_ms < asked.sent_ms:
                break  # what was before it was over when the request was sent
        else:
            return  # it is older than what is remembered
        self.fails(f"{client.name} was granted {what}")


def _may_beat(members: Mapping[str, Any], _names: Mapping[UUID, str], request: Request) -> bool:
    """K8: the epoch of the member; or the one before, and it owns nothing that it is not assigned."""
    found = members.get(request.member_id)
    if found is None:
        return False
    epoch, previous, assigned, _ = found
    if request.member_epoch == epoch:
        return True
    if request.member_epoch != previous or request.topic_partitions is None:
        return False
    return all(at in assigned.get(one.topic_id, {}) for one in request.topic_partitions for at in one.partitions)


def _may_commit(members: Mapping[str, Any], names: Mapping[UUID, str], request: Any) -> bool:
    """K19: the epoch of the member; or an older one, for partitions that it has had since then."""
    found = members.get(request.member_id)
    if found is None or request.generation_id > found[0]:
        return False
    if request.generation_id == found[0]:
        return True
    since = {
        TopicPartition(names.get(topic_id, ""), at): epoch
        for some in found[2:]
        for topic_id, partitions in some.items()
        for at, epoch in partitions.items()
    }
    committed = [TopicPartition(one.topic, one.partition) for one in request.partitions]
    return all(one in since and since[one] <= request.generation_id for one in committed)
