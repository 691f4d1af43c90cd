"""A change of a consumer group: records that are applied as they are added, and written together (K27)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from coterie.coordinator.classic.effects import Arm, ComputeTarget, Effects, Persist
from coterie.coordinator.consumer.group import (
    Assigned,
    ConsumerGroup,
    ConsumerGroupMember,
    ConsumerGroupWritten,
    Target,
)
from coterie.coordinator.consumer.states import MemberState
from coterie.coordinator.consumer.target_assignment import (
    ASSIGNORS,
    TargetComputation,
    TargetLate,
    build_group_spec,
)
from coterie.coordinator.consumer.topic_image import metadata_hash
from coterie.facts import (
    CONSUMER,
    AssignmentStored,
    Cause,
    Fact,
    GroupEmptied,
    MemberAssigned,
    MemberReplaced,
    RebalanceStarted,
    TargetAssignmentComputed,
)
from coterie.protocol.consumer_group_records import (
    CURRENT,
    EPOCH,
    MEMBER,
    MEMBER_STATES,
    REGEX,
    TARGET,
    TARGET_EPOCH,
    ConsumerGroupEpoch,
    ConsumerGroupRecord,
    CurrentAssignment,
    MemberMetadata,
    ResolvedPattern,
    TargetAssignment,
    TargetEpoch,
    TopicPartitions,
    Value,
)
from coterie.protocol.messages import Record, Token
from coterie.protocol.subscription import Assignment, write_assignment


class ConsumerGroupChange:
    """A change of a consumer group. It cannot fail after its first record: a rule checks the request before."""

    def __init__(self, group: ConsumerGroup, now_ms: int) -> None:
        self.group = group
        self.now_ms = now_ms
        self.records: list[Record] = []
        self.facts: list[Fact] = []
        self.effects: Effects = []  # besides the write

    def _add(self, kind: int, about: str, value: Value | None) -> None:
        record = ConsumerGroupRecord(kind, self.group.group_id, about, value)
        self.records.append(record)
        self.group.apply_record(record)

    # --- records ------------------------------------------------------------------------------------------------------

    def set_member(self, member_id: str, metadata: MemberMetadata) -> None:
        self._add(MEMBER, member_id, metadata)

    def set_current_assignment(
        self,
        member: ConsumerGroupMember,
        epoch: int,
        previous_epoch: int,
        state: MemberState,
        assigned: Assigned,
        pending_revocation: Assigned,
    ) -> None:
        last_written = self.group.last_written
        written = last_written.get(member.member_id) if assigned is member.assigned else None
        if written is None:
            written = by_id(assigned)
        value = CurrentAssignment(epoch, previous_epoch, int(state), written, by_id(pending_revocation))
        self._add(CURRENT, member.member_id, value)
        last_written[member.member_id] = written
        self.facts.append(assigned_fact(self.group, member, self.now_ms))

    def set_target_assignment(self, member_id: str, target: Target) -> None:
        self._add(TARGET, member_id, TargetAssignment(target))

    def set_group_epoch(self, epoch: int) -> None:
        """Write the group epoch, with what the subscribed topics are now (K28)."""
        group = self.group
        self._add(EPOCH, "", ConsumerGroupEpoch(epoch, metadata_hash(group.image, group.subscribed_topics())))
        group.image_version = group.image.version

    def set_assignment_epoch(self, epoch: int, computed_ms: int) -> None:
        self._add(TARGET_EPOCH, "", TargetEpoch(epoch, computed_ms))

    def replace(self, old: ConsumerGroupMember, member_id: str) -> ConsumerGroupMember:
        """Give target and assignment of a static member to the member that replaces it (K14, K25)."""
        group = self.group
        target, state, assigned, pending = (
            group.targets.get(old.member_id),
            old.state,
            old.assigned,
            old.pending_revocation,
        )
        if old.member_id != member_id:
            group.sessions.pop(old.member_id, None)
            assert old.metadata.instance_id is not None
            fact = MemberReplaced(self.now_ms, group.group_id, member_id, old.member_id, old.metadata.instance_id)
            self.facts.append(fact)
        self.remove(old.member_id)
        self.set_member(member_id, old.metadata)
        new = group.members[member_id]
        if target is not None:
            self.set_target_assignment(member_id, target)
        self.set_current_assignment(new, 0, 0, state, assigned, pending)
        return new

    def remove(self, member_id: str) -> None:
        """Write the tombstones of a member."""
        for kind in (CURRENT, TARGET, MEMBER):
            self._add(kind, member_id, None)

    def forget_pattern(self, pattern: str | None) -> None:
        """Write the tombstone of a regular expression if no member subscribes to it any more."""
        if pattern and pattern in self.group.resolved and pattern not in self.group.pattern_members:
            self._add(REGEX, pattern, None)

    def set_resolved_regex(self, pattern: str, topics: Sequence[str], version: int) -> None:
        self._add(REGEX, pattern, ResolvedPattern(topics, version, self.group.wall.at(self.now_ms)))

    # --- epochs -------------------------------------------------------------------------------------------------------

    def bump(self, cause: Cause, member_id: str = "") -> None:
        """Bump the group epoch (K1)."""
        group = self.group
        members = [] if group.is_rebalancing else list(group.members)  # a thousand joins do not name all of them
        self.facts.append(
            RebalanceStarted(self.now_ms, group.group_id, cause, member_id, None, group.group_epoch, members, CONSUMER)
        )
        group.is_rebalancing = True
        self.set_group_epoch(group.group_epoch + 1)
        if not group.members:
            self.facts.append(GroupEmptied(self.now_ms, group.group_id, group.group_epoch))
            group.is_rebalancing = False

    def have_topics_changed(self) -> bool:
        """Compare the subscribed topics with those of the last epoch, if any topic has changed since (K28)."""
        group = self.group
        if group.image_version == group.image.version:
            return False
        return metadata_hash(group.image, group.subscribed_topics()) != group.metadata_hash

    def bump_if_topics_changed(self) -> None:
        if self.have_topics_changed():
            self.bump(Cause.TOPICS_CHANGED)
        self.group.image_version = self.group.image.version

    def compute_target_if_due(self) -> None:
        """Compute the target for the group epoch, but not more often than the interval allows (K2).

        An assignor that has failed is asked again when there is another group epoch.
        """
        group = self.group
        if group.group_epoch <= group.assignment_epoch:
            return
        wall_ms = group.wall.at(self.now_ms)
        if group.computing is not None or group.failed_epoch == group.group_epoch:
            return
        last_ms = max(group.assigned_ms, group.tried_ms)
        if last_ms and 0 <= wall_ms - last_ms < group.assignment_interval_ms:
            return
        asked = build_group_spec(group)
        assign = ASSIGNORS.get(asked.assignor)
        if assign is not None and asked.is_small:
            asked.take(assign(asked.members, asked.topics))
            self.apply_target(asked)
            return
        asked.targets = dict(asked.targets)
        group.computing, group.tried_ms = asked, wall_ms
        late_ms = self.now_ms + group.settings.coterie_assignor_timeout_ms
        late = Arm(group.target_key(), late_ms, TargetLate(group.group_id, asked))
        self.effects += [late, ComputeTarget(asked, group.offsets)]

    def apply_target(self, computed: TargetComputation) -> None:
        """Take a target for the group epoch that it was computed for."""
        group = self.group
        for member_id, target in computed.changed.items():
            if member_id in group.members:
                self._add(TARGET, member_id, target)
        self.set_assignment_epoch(computed.group_epoch, group.wall.at(self.now_ms))
        fact = TargetAssignmentComputed(self.now_ms, group.group_id, group.assignment_epoch, computed.assignor)
        self.facts.append(fact)

    # --- the end ------------------------------------------------------------------------------------------------------

    def write(self, token: Token | None, answer: object, request: object) -> Effects:
        """Return the effects: the write, or the answer alone if no record was added."""
        group = self.group
        if not self.records:
            return self.effects if token is None else [*self.effects, *group.reply(token, answer, request)]
        self.facts += rebalance_ended(group, self.now_ms)
        written = ConsumerGroupWritten(group_id=group.group_id, records=self.records, token=token, facts=self.facts)
        if token is not None:
            written.replies.append((token, answer, request))
        group.unwritten.append(written)
        return [*self.effects, Persist(self.records, written)]


def assigned_fact(group: ConsumerGroup, member: ConsumerGroupMember, now_ms: int) -> MemberAssigned:
    """Return the event that a member has the assignment that it has."""
    state, assigned, pending = member.state, member.assigned, member.pending_revocation
    named = _by_name(group, assigned), _by_name(group, pending)
    return MemberAssigned(now_ms, group.group_id, member.member_id, member.epoch, MEMBER_STATES[state], *named)


def rebalance_ended(group: ConsumerGroup, now_ms: int) -> list[Fact]:
    """Return the fact that a rebalance has ended, if all members have what they shall have; it is emitted once."""
    if not group.is_rebalancing or group.group_epoch != group.assignment_epoch or not group.all_reconciled():
        return []
    group.is_rebalancing = False
    return [AssignmentStored(now_ms, group.group_id, group.assignment_epoch, written_assignments(group))]


def written_assignments(group: ConsumerGroup) -> dict[str, bytes]:
    """Return what each member owns, in the bytes of the classic protocol: these facts have one form for both."""
    return {
        member.member_id: write_assignment(
            Assignment(_by_name(group, united(member.assigned, member.pending_revocation)))
        )
        for member in group.members.values()
    }


def _by_name(group: ConsumerGroup, assigned: Assigned) -> dict[str, list[int]]:
    """Return partitions by the names of their topics; those of a deleted topic are left out."""
    if not assigned:
        return {}
    names = group.image.topic_names
    return {names[topic_id]: sorted(numbers) for topic_id, numbers in assigned.items() if topic_id in names}


def by_id(assigned: Assigned) -> list[TopicPartitions]:
    """Return partitions as a record has them."""
    found = []
    for topic_id, given in sorted(assigned.items()) if len(assigned) > 1 else assigned.items():
        if given:
            partitions = sorted(given)
            found.append(TopicPartitions(topic_id, partitions, [given[partition] for partition in partitions]))
    return found


def partitions_of(assigned: Assigned) -> dict[UUID, list[int]]:
    """Return partitions without their epochs, sorted, for an answer."""
    return {topic_id: sorted(partitions) for topic_id, partitions in sorted(assigned.items()) if partitions}


def has_same_partitions(first: Assigned, second: Assigned) -> bool:
    """Return whether the partitions are the same, without their epochs. No topic has an empty list."""
    if first is second:
        return True
    return first.keys() == second.keys() and all(first[each].keys() == second[each].keys() for each in first)


def united(first: Assigned, second: Assigned) -> Assigned:
    if not second:
        return first
    return {
        topic_id: {**first.get(topic_id, {}), **second.get(topic_id, {})}
        for topic_id in dict.fromkeys((*first, *second))
    }
