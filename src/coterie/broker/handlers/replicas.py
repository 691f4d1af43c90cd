"""Replicas: there is one of each partition, in the one data directory. Asking for more is refused, or passed over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coterie.broker.handlers.refusals import TopicError
from coterie.errors import ErrorCode

if TYPE_CHECKING:
    from coterie.broker.node import Node

__all__ = ["check_replication_factor", "replica_home"]


def check_replication_factor(node: Node, factor: int) -> None:
    """In Kafka's words where it would refuse as well; it would not if it had as many brokers."""
    if factor in (-1, 1):
        return
    if factor < 1:
        raise TopicError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if node.settings.coterie_replicas_as_one:
        return
    count = len(node.cluster.nodes)
    why = f"only {count} broker(s) are registered."
    if factor <= count:
        why = f"the {count} nodes of this broker share one copy of each log. Give 1, or set coterie.replicas.as.one."
    raise TopicError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
        f"reached because {why}",
    )


def replica_home(node: Node, replicas: Sequence[int]) -> int:
    """The node a partition is asked for on: of one replica, or of several the first, if that is how they are taken."""
    known, up = node.cluster.leadership.nodes, node.cluster.leadership.up
    most = len(known) if node.settings.coterie_replicas_as_one else 1
    if 1 <= len(replicas) <= most and len(set(replicas)) == len(replicas) and up.issuperset(replicas):
        return replicas[0]
    raise TopicError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"replicas {list(replicas)}: a partition has one, on one of the nodes {', '.join(map(str, sorted(up)))}",
    )
