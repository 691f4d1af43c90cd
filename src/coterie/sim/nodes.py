"""Stop and start the nodes of a machine's broker, and move groups between them, as `broker/io/server.py` does.

A step that fails is tried again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coterie.broker.broker_effects import MoveGroups, MovePartition, StartNode, StopNode
from coterie.broker.cluster import Cluster
from coterie.errors import CoterieError
from coterie.protocol.transaction_state import TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from coterie.sim.machine import Machine

AGAIN_MS = 1_000
LOOK_MS, LOOKS = 50, 4
"""A node that stops is checked so often for unanswered requests; then its connections are closed."""


class Nodes:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._silent: set[int] = set()
        """The nodes that do not listen."""
        self._stopping: set[int] = set()

    def began(self) -> None:
        """The process has started: all nodes are up."""
        self._silent.clear()
        self._stopping.clear()

    def listens(self, number: int) -> bool:
        return number not in self._silent

    def stop(self, number: int) -> None:
        """Move its partitions to other nodes, answer the requests that wait, and close its connections."""
        machine, cluster = self._machine, self._machine.cluster
        if cluster is None:
            return
        if machine.is_paused:
            machine.misses(self.stop, number)
            return

        def done(error: CoterieError | None) -> None:
            if error is None:
                machine.later(0, self._close, (cluster, number, LOOKS))
            else:
                self._stopping.discard(number)

        self._stopping.add(number)
        machine.run("a change of leaders", partial(cluster.handle, StopNode(number, done)))

    def _close(self, about: tuple[Cluster, int, int]) -> None:
        cluster, number, looks = about
        machine = self._machine
        if cluster is not machine.cluster:
            return
        if machine.is_paused:
            machine.misses(self._close, about)
            return
        self._silent.add(number)
        links = [link for link in machine.links if link.node.node_id == number]
        for link in links:
            link.is_read = False
        if looks and any(link.connection.call is not None for link in links):
            machine.later(LOOK_MS, self._close, (cluster, number, looks - 1))
            return
        for link in links:
            machine.drop(link.connection, f"node {number} stops")
        self._stopping.discard(number)

    def start(self, number: int) -> None:
        """Listen on the same port as before, and move its partitions back to it."""
        machine, cluster = self._machine, self._machine.cluster
        if cluster is None:
            return  # all are up when it begins
        if machine.is_paused:
            machine.misses(self.start, number)
            return
        if number in self._stopping:
            machine.later(AGAIN_MS, self.start, number)
            return
        if number in cluster.leadership.up:
            return

        def done(error: CoterieError | None) -> None:
            if error is not None and number not in cluster.leadership.up:  # else another change has started it
                self._silent.add(number)
                machine.later(AGAIN_MS, self.start, number)

        self._silent.discard(number)
        machine.run("a change of leaders", partial(cluster.handle, StartNode(number, done)))

    def move_coordinator(self, group_id: str, number: int) -> None:
        """Move a group, if that node is up; this is not tried again."""
        machine, cluster = self._machine, self._machine.cluster
        if cluster is not None and not machine.is_paused:
            event = MoveGroups(group_id, number, lambda _error: None)
            machine.run("a change of leaders", partial(cluster.handle, event))

    def move_transactions(self, transactional_id: str, number: int) -> None:
        """Move the coordinator of a transactional id, if that node is up; this is not tried again."""
        machine, cluster = self._machine, self._machine.cluster
        if cluster is not None and not machine.is_paused:
            partition = cluster.nodes[number].transactions.coordinator.partition_of(transactional_id)
            event = MovePartition(TRANSACTION_STATE_TOPIC, partition, number, lambda _error: None)
            machine.run("a change of leaders", partial(cluster.handle, event))
