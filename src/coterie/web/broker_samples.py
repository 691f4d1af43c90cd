"""Samples of the groups of a broker in this process: state, members, committed offsets and ends of logs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from coterie.broker.cluster import Cluster
from coterie.broker.io.clock import wall_ms
from coterie.broker.io.server import Server
from coterie.coordinator.classic import Group as ClassicGroup
from coterie.coordinator.consumer import ConsumerGroup
from coterie.diagnosis import GroupSample, PartitionLag
from coterie.errors import MalformedError
from coterie.ledger.ownership import Partition
from coterie.protocol.subscription import read_assignment


class BrokerSampler:
    """Samples a broker whose event loop runs in another thread. The work is done there, between two events."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop

    async def __call__(self) -> Mapping[str, GroupSample]:
        async def sample() -> dict[str, GroupSample]:
            return samples_of(self._server.cluster, wall_ms())

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(sample(), self._loop))


def samples_of(cluster: Cluster, at_ms: int) -> dict[str, GroupSample]:
    """Return all groups of a broker as they are."""
    found = {}
    for node in cluster.nodes.values():
        coordinator = str(node.node_id)
        for shard in node.coordinator.shards.values():
            for group in shard.groups.values():
                number = group.group_epoch if isinstance(group, ConsumerGroup) else group.generation_id
                owners = dict(_owners(cluster, group))
                found[group.group_id] = GroupSample(
                    at_ms,
                    group.state.value,
                    number,
                    tuple(group.members),
                    coordinator,
                    tuple(_partitions(cluster, group, owners)),
                )
    return found


def _owners(cluster: Cluster, group: ClassicGroup | ConsumerGroup) -> Iterator[tuple[Partition, str]]:
    if isinstance(group, ConsumerGroup):
        names = cluster.metadata.topic_names
        for member in group.members.values():
            for topic_id, numbers in member.assigned.items():
                for number in numbers:
                    yield (names.get(topic_id, str(topic_id)), number), member.member_id
        return
    if group.state.value != "Stable":
        return
    for classic in group.members.values():
        try:
            assigned = read_assignment(classic.assignment).partitions if classic.assignment else {}
        except MalformedError:
            continue  # not a consumer
        for topic, owned in assigned.items():
            for number in owned:
                yield (topic, number), classic.member_id


def _partitions(
    cluster: Cluster, group: ClassicGroup | ConsumerGroup, owners: Mapping[Partition, str]
) -> Iterator[PartitionLag]:
    committed = {
        (topic, number): offset.offset for topic, offsets in group.offsets.items() for number, offset in offsets.items()
    }
    for topic, number in sorted(committed.keys() | owners.keys()):
        log = cluster.directory.logs.get((topic, number))
        end = None if log is None else cluster.flusher.high_watermark(log)
        yield PartitionLag(topic, number, committed.get((topic, number)), end, owners.get((topic, number), ""))
