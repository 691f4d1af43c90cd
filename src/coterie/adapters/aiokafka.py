"""Use any eager Coterie assignor as `partition_assignment_strategy` of aiokafka (0.12 and later).

from coterie.adapters.aiokafka import adapt

AIOKafkaConsumer("orders", group_id="g", partition_assignment_strategy=[adapt("sticky")])

aiokafka gives an assignor only the topics and user data of the other members, and no generation. So owned
partitions have no generation (one that two members say they own counts as unassigned, which is safe), and there are
no racks. Its consumers give up everything before they join, so a cooperative assignor cannot work and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor

from coterie.adapters.member_slot import MemberSlot, assign, resolve
from coterie.assignors import Assignor, Member, Topic
from coterie.errors import CoterieError
from coterie.protocol.messages import NO_GENERATION
from coterie.protocol.subscription import Assignment, write_assignment, write_subscription


class CooperativeNotSupportedError(CoterieError, TypeError):
    """aiokafka has no cooperative rebalancing."""


def adapt(assignor: Assignor | str) -> AbstractPartitionAssignor:
    """Return an assignor for one consumer; each consumer needs its own."""
    chosen = resolve(assignor)
    if chosen.cooperative:
        raise CooperativeNotSupportedError(
            f'"{chosen.name}" is cooperative, and aiokafka knows only eager rebalancing: as its leader would not see '
            'what others own, two members would read the same partition. Use "sticky".'
        )
    return _AiokafkaAssignor(chosen)


class _AiokafkaAssignor(AbstractPartitionAssignor):  # type: ignore[misc]  # the library's methods are class methods
    name = ""

    def __init__(self, assignor: Assignor) -> None:
        self.name = assignor.name
        self._slot = MemberSlot(assignor)

    def metadata(self, topics: Iterable[str]) -> bytes:
        return write_subscription(self._slot.subscription(frozenset(topics)))

    def assign(self, cluster: Any, members: Mapping[str, Any]) -> dict[str, bytes]:
        joined = [
            Member(member_id, list(metadata.subscription), user_data=metadata.user_data or None)
            for member_id, metadata in members.items()
        ]
        answer = assign(self._slot.assignor, joined, lambda name: _topic(cluster, name))
        return {member: write_assignment(Assignment(shares, b"")) for member, shares in answer.items()}

    def on_assignment(self, assignment: Any) -> None:
        self._slot.assigned(assignment.partitions(), NO_GENERATION)


def _topic(cluster: Any, name: str) -> Topic | None:
    partitions = cluster.partitions_for_topic(name)
    return Topic(len(partitions)) if partitions else None
