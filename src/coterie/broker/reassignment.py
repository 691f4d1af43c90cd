"""The rules of AlterPartitionReassignments and ElectLeaders, without I/O. Codes and texts are those of Kafka 4.3.1.

All nodes share one copy of each log, so nothing is copied: a reassignment is done when it is answered. It gives the
partition another preferred node, which leads it from then on. An election gives a partition back to its preferred node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from coterie.broker.handlers.refusals import Refusal
from coterie.broker.placement import NO_LEADER, Partition, PartitionState, moved_to
from coterie.errors import ErrorCode
from coterie.protocol.apis import alter_partition_reassignments, elect_leaders

States = Mapping[Partition, PartitionState]
Changes = dict[Partition, PartitionState]

LONGEST = 249
"""The longest name of a topic. Of longer ones a message has the beginning, since it is repeated for each partition."""
ONE_COPY = "the nodes of this broker share one copy of each log: give one node, or set coterie.replicas.as.one"


# --- AlterPartitionReassignments --------------------------------------------------------------------------------------


def reassign(
    request: alter_partition_reassignments.Request,
    topics: Collection[str],
    states: States,
    up: Collection[int],
    *,
    replicas_as_one: bool,
) -> tuple[alter_partition_reassignments.Response, Changes]:
    """Return the response, and the new state of each partition that moves.

    With `replicas_as_one` several replicas may be named, of which the first counts.
    """
    changes: Changes = {}
    response = alter_partition_reassignments.Response(
        allow_replication_factor_change=request.allow_replication_factor_change,
        message=None if request.topics else "",  # as in Kafka
        responses=[],
    )
    answered = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            key = topic.name, asked.partition
            refusal = _no_partition(key, topics, states) or _refuse_replicas(
                asked.replicas,
                up,
                may_change=request.allow_replication_factor_change,
                replicas_as_one=replicas_as_one,
            )
            if refusal is None:
                assert asked.replicas, "what is no list of replicas is refused"
                changes.pop(key, None)  # of a partition that is named twice, the last counts
                changes |= moved_to(key, states[key], asked.replicas[0])
            error, message = refusal or (ErrorCode.NONE, None)
            partitions.append(
                alter_partition_reassignments.AlteredPartition(partition=asked.partition, error=error, message=message)
            )
        answered.append(alter_partition_reassignments.AlteredTopic(name=topic.name, partitions=partitions))
    response.responses = answered
    return response, changes


def _no_partition(key: Partition, topics: Collection[str], states: States) -> Refusal | None:
    name, number = key
    if name not in topics:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name[:LONGEST]}.")
    if key not in states:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{number}.")
    return None


def _refuse_replicas(
    replicas: Sequence[int] | None, up: Collection[int], *, may_change: bool, replicas_as_one: bool
) -> tuple[ErrorCode, str | None] | None:
    """Return what is wrong with the replicas that were asked for; None of them cancels, and nothing is under way."""
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    wrong = _wrong_replicas(replicas, up)
    if wrong is not None:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {wrong}"
    if len(replicas) == 1 or replicas_as_one:
        return None
    if not may_change:
        return ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from 1 to {len(replicas)}"
    return ErrorCode.INVALID_REPLICA_ASSIGNMENT, ONE_COPY


def _wrong_replicas(replicas: Sequence[int], up: Collection[int]) -> str | None:
    if not replicas:
        return "an empty replica list."
    previous: int | None = None
    for replica in sorted(replicas):
        if replica not in up:
            return f"broker {replica}, but no such broker is registered."
        if replica == previous:
            return f"the broker {replica} more than once."
        previous = replica
    return None


# --- ElectLeaders -----------------------------------------------------------------------------------------------------


def elect(
    request: elect_leaders.Request, topics: Collection[str], states: States, up: Collection[int]
) -> tuple[elect_leaders.Response, Changes]:
    """Return the response, and the new state of each partition that gets another leader."""
    asked = request.topic_partitions
    if request.election_type not in {elect_leaders.PREFERRED, elect_leaders.UNCLEAN}:
        return _unknown_election(request.election_type, asked), {}
    changes: Changes = {}
    results = []
    for name, numbers in _all_partitions(states) if asked is None else ((one.topic, one.partitions) for one in asked):
        partitions = []
        for number in numbers:
            error, message = _elect_one((name, number), request.election_type, topics, states, up, changes)
            if asked is not None or error != ErrorCode.ELECTION_NOT_NEEDED:
                partitions.append(elect_leaders.ElectedPartition(partition=number, error=error, message=message))
        results.append(elect_leaders.ElectedTopic(topic=name, partitions=partitions))
    return elect_leaders.Response(results=results), changes


def _elect_one(
    key: Partition, election_type: int, topics: Collection[str], states: States, up: Collection[int], changes: Changes
) -> tuple[ErrorCode, str | None]:
    name, number = key
    if name not in topics:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name[:LONGEST]}"
    state = states.get(key)
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}"
    is_led = state.leader != NO_LEADER
    if is_led and (election_type == elect_leaders.UNCLEAN or state.leader == state.preferred_leader):
        return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    if state.preferred_leader not in up:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
    changes |= moved_to(key, state, state.preferred_leader)
    return ErrorCode.NONE, None


def _all_partitions(states: States) -> Iterable[tuple[str, Sequence[int]]]:
    by_topic: dict[str, list[int]] = {}
    for name, number in states:
        by_topic.setdefault(name, []).append(number)
    return by_topic.items()


def _unknown_election(election_type: int, asked: Sequence[elect_leaders.Topic] | None) -> elect_leaders.Response:
    """Refuse all partitions, and the request itself if it has any or asks for all."""
    error, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}"
    results = [
        elect_leaders.ElectedTopic(
            topic=one.topic,
            partitions=[
                elect_leaders.ElectedPartition(partition=number, error=error, message=message)
                for number in one.partitions
            ],
        )
        for one in asked or ()
    ]
    return elect_leaders.Response(error=ErrorCode.NONE if asked == [] else error, results=results)
