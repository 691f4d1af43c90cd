"""A change of a consumer group: records that are applied as they are added, and written together (K27)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from coterie.coordinator.classic.effects import Effects, Persist
from coterie.coordinator.consumer.group import (
    Assigned,
    ConsumerGroup,
    ConsumerGroupMember,
    ConsumerGroupWritten,
    Target,
)
from coterie.coordinator.consumer.states import MemberState
from coterie.coordinator.consumer.target import compute_target, vote
from coterie.coordinator.consumer.topic_image import metadata_hash
from coterie.facts import (
    AssignmentStored,
    Cause,
    Fact,
    GroupEmptied,
    JoinPhaseCompleted,
    MemberReplaced,
    RebalanceStarted,
)
from coterie.protocol.consumer_group_records import (
    CURRENT,
    EPOCH,
    MEMBER,
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


class Change:
    """Nothing of a change may fail after its first record: a rule checks a request before it makes one."""

    def __init__(self, group: ConsumerGroup, now_ms: int) -> None:
        self.group = group
        self.now_ms = now_ms
        self.records: list[Record] = []
        self.facts: list[Fact] = []

    def _add(self, kind: int, about: str, value: Value | None) -> None:
        record = ConsumerGroupRecord(kind, self.group.group_id, about, value)
        self.records.append(record)
        self.group.apply_record(record)

    # --- records ------------------------------------------------------------------------------------------------------

    def member(self, member_id: str, metadata: MemberMetadata) -> None:
        self._add(MEMBER, member_id, metadata)

    def current(
        self,
        member: ConsumerGroupMember,
        epoch: int,
        previous_epoch: int,
        state: MemberState,
        assigned: Assigned,
        pending_revocation: Assigned,
    ) -> None:
        value = CurrentAssignment(epoch, previous_epoch, int(state), _by_id(assigned), _by_id(pending_revocation))
        self._add(CURRENT, member.member_id, value)

    def target(self, member_id: str, target: Target) -> None:
        partitions = [TopicPartitions(topic_id, list(numbers)) for topic_id, numbers in target.items()]
        self._add(TARGET, member_id, TargetAssignment(partitions))

    def epoch(self, epoch: int) -> None:
        """Write the group epoch, with what the subscribed topics are now (K28)."""
        group = self.group
        self._add(EPOCH, "", ConsumerGroupEpoch(epoch, metadata_hash(group.image, group.subscribed_topics())))
        group.image_version = group.image.version

    def assignment_epoch(self, epoch: int, computed_ms: int) -> None:
        self._add(TARGET_EPOCH, "", TargetEpoch(epoch, computed_ms))

    def replace(self, old: ConsumerGroupMember, member_id: str) -> ConsumerGroupMember:
        """Give the place of a static member to the one that returns: target and assignment (K14, K25)."""
        group = self.group
        target, state, assigned, pending = (
            group.targets.get(old.member_id),
            old.state,
            old.assigned,
            old.pending_revocation,
        )
        self.remove(old.member_id)
        self.member(member_id, old.metadata)
        new = group.members[member_id]
        if target is not None:
            self.target(member_id, target)
        self.current(new, 0, 0, state, assigned, pending)
        if old.member_id != member_id:
            group.sessions.pop(old.member_id, None)
            assert old.metadata.instance_id is not None
            fact = MemberReplaced(self.now_ms, group.group_id, member_id, old.member_id, old.metadata.instance_id)
            self.facts.append(fact)
        return new

    def remove(self, member_id: str) -> None:
        """Write the tombstones of a member."""
        for kind in (CURRENT, TARGET, MEMBER):
            self._add(kind, member_id, None)

    def forget_pattern(self, pattern: str | None) -> None:
        """Write the tombstone of a regular expression if nobody subscribes to it any more."""
        if pattern and pattern in self.group.resolved and pattern not in self.group.pattern_members:
            self._add(REGEX, pattern, None)

    def resolved(self, pattern: str, topics: Sequence[str], version: int) -> None:
        self._add(REGEX, pattern, ResolvedPattern(topics, version, self.group.wall.at(self.now_ms)))

    # --- epochs -------------------------------------------------------------------------------------------------------

    def bump(self, cause: Cause, member_id: str = "") -> None:
        """Begin the next group epoch (K1)."""
        group = self.group
        self.facts.append(
            RebalanceStarted(
                self.now_ms, group.group_id, cause, member_id, None, group.group_epoch, list(group.members)
            )
        )
        group.is_rebalancing = True
        self.epoch(group.group_epoch + 1)
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
        """Compute the target for the group epoch, but not more often than the interval allows (K2)."""
        group = self.group
        if group.group_epoch <= group.assignment_epoch:
            return
        wall_ms = group.wall.at(self.now_ms)
        if group.assigned_ms and 0 <= wall_ms - group.assigned_ms < group.assignment_interval_ms:
            return
        for member_id, target in compute_target(group).items():
            if target != group.targets.get(member_id, {}):
                self.target(member_id, target)
        self.assignment_epoch(group.group_epoch, wall_ms)
        self.facts.append(JoinPhaseCompleted(self.now_ms, group.group_id, group.assignment_epoch, vote(group), "", {}))

    # --- the end ------------------------------------------------------------------------------------------------------

    def write(self, token: Token | None, answer: object, request: object) -> Effects:
        """Return the effects: the write, or the answer alone if no record was added."""
        group = self.group
        if not self.records:
            return [] if token is None else group.reply(token, answer, request)
        if group.is_rebalancing and group.group_epoch == group.assignment_epoch and group.all_reconciled():
            group.is_rebalancing = False
            assignments = written_assignments(group)
            self.facts.append(AssignmentStored(self.now_ms, group.group_id, group.assignment_epoch, assignments))
        written = ConsumerGroupWritten(group_id=group.group_id, records=self.records, token=token, facts=self.facts)
        if token is not None:
            written.replies.append((token, answer, request))
        group.unwritten.append(written)
        return [Persist(self.records, written)]


def written_assignments(group: ConsumerGroup) -> dict[str, bytes]:
    """Return what each member is assigned, in the bytes of the classic protocol: facts have one form for both."""
    names = group.image.topic_names
    return {
        member.member_id: write_assignment(
            Assignment(
                {names[topic_id]: sorted(parts) for topic_id, parts in member.assigned.items() if topic_id in names}
            )
        )
        for member in group.members.values()
    }


def _by_id(assigned: Assigned) -> list[TopicPartitions]:
    found = []
    for topic_id in sorted(assigned):
        partitions = sorted(assigned[topic_id])
        if partitions:
            epochs = [assigned[topic_id][partition] for partition in partitions]
            found.append(TopicPartitions(topic_id, partitions, epochs))
    return found


def partitions_of(assigned: Assigned) -> dict[UUID, list[int]]:
    """Return partitions without their epochs, sorted, for an answer."""
    return {topic_id: sorted(partitions) for topic_id, partitions in sorted(assigned.items()) if partitions}


def united(first: Assigned, second: Assigned) -> dict[UUID, Mapping[int, int]]:
    return {
        topic_id: {**first.get(topic_id, {}), **second.get(topic_id, {})}
        for topic_id in dict.fromkeys((*first, *second))
    }
