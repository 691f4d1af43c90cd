"""Three nodes without sockets: who leads what, and how to change it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.driver import Client, World
from coterie.broker.broker_effects import MoveGroups, MovePartition, StartNode, StopNode
from coterie.coordinator.runtime import partition_of
from coterie.protocol.apis import metadata
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.storage import Files

__all__ = ["Three", "elsewhere", "ready"]


class Three(World):
    def __init__(
        self,
        files: Files | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        sync: bool = True,
        nodes: int = 3,
        now_ms: int = 1_000_000,
    ) -> None:
        """`nodes` says how many, if there should be more or fewer for once."""
        super().__init__(files, settings, sync=sync, nodes=nodes, now_ms=now_ms)

    # --- changing -----------------------------------------------------------------------------------------------------

    def stop_node(self, node: int) -> None:
        self.perform(self.cluster.handle(StopNode(node, None), self.now_ms))

    def start_node(self, node: int) -> None:
        self.perform(self.cluster.handle(StartNode(node, None), self.now_ms))

    def move(self, topic: str, partition: int, node: int) -> None:
        self.perform(self.cluster.handle(MovePartition(topic, partition, node, None), self.now_ms))

    def move_coordinator(self, group: str, node: int) -> None:
        self.perform(self.cluster.handle(MoveGroups(group, node, None), self.now_ms))

    def happened(self) -> None:
        """The last change has, and nobody refused."""
        assert self.outcomes.pop() is None

    def flush_all(self) -> None:
        while self.flushes:
            self.flush()

    # --- looking ------------------------------------------------------------------------------------------------------

    def leader(self, topic: str, partition: int = 0) -> int:
        return self.cluster.leadership.leader_of((topic, partition))

    def epoch(self, topic: str, partition: int = 0) -> int:
        return self.cluster.leadership.partition_states[topic, partition].leader_epoch

    def coordinator(self, group: str) -> int:
        topic = self.cluster.directory.topics[OFFSETS_TOPIC]
        return self.leader(OFFSETS_TOPIC, partition_of(group, topic.partitions))

    def other_than(self, *nodes: int) -> int:
        return next(node for node in self.cluster.nodes if node not in nodes)

    def of_leader(self, topic: str, partition: int = 0) -> Client:
        return self.client(self.leader(topic, partition))

    def of_coordinator(self, group: str) -> Client:
        return self.client(self.coordinator(group))

    def described(self, node: int) -> metadata.Response:
        answer: metadata.Response = self.client(node).ask(metadata, metadata.Request(topics=None))
        return answer


def ready(files: Files | None = None, *, sync: bool = True, **settings: Any) -> Three:
    """Topic `t` of six partitions, and groups are served."""
    world = Three(files, settings, sync=sync)
    client = world.client()
    client.find_coordinator()
    client.create("t", 6)
    return world


def elsewhere(world: Three, group: str = "g") -> int:
    return world.other_than(world.coordinator(group))
