"""A client that asked the wrong node for a partition hears in the same answer whom to ask (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from coterie.protocol.api_values import Leader, NodeEndpoint

if TYPE_CHECKING:
    from coterie.broker.node import Node

__all__ = ["endpoints_of", "leader_of"]


def leader_of(node: Node, topic: str, partition: int) -> Leader:
    place = node.cluster.leadership.places[topic, partition]
    return Leader(leader_id=place.leader, leader_epoch=place.epoch)


def endpoints_of(node: Node, leaders: Iterable[Leader | None]) -> list[NodeEndpoint]:
    nodes = node.cluster.nodes
    found = {leader.leader_id: nodes[leader.leader_id] for leader in leaders if leader and leader.leader_id in nodes}
    return [NodeEndpoint(node_id=number, host=one.endpoint[0], port=one.endpoint[1]) for number, one in found.items()]
