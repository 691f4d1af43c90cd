"""Faults of the broker: of its disk, its nodes and its coordinators, and a crash. `Faults` makes these and all others.

with broker.faults.stop_node(2):
    consumer.poll(1)
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Never

from coterie.errors import CoterieError
from coterie.testing.faults import Fault
from coterie.testing.request_faults import FILTERS, STATES, ClientCutOff, FaultBuilder, Filter, RequestFault
from coterie.testing.requests import api_named, nearest

if TYPE_CHECKING:
    from coterie.testing.controlled_server import ControlledServer
    from coterie.testing.kafka_broker import KafkaBroker


class _DiskFull(Fault):
    """No file can be written."""

    def __init__(self, broker: KafkaBroker) -> None:
        super().__init__(broker, "the disk is full")
        self.hits: list[str] = []
        """The files that could not be written."""

    @property
    def count(self) -> int:
        return len(self.hits)

    async def _begin_on(self, server: ControlledServer) -> None:
        def refused(path: str) -> None:
            self.hits.append(path)
            server.look_soon()

        self._broker.disk.on_refusal = refused

    async def _end_on(self, server: ControlledServer) -> None:
        self._broker.disk.on_refusal = None
        await server.repair_logs()

    def _why_not(self, _server: ControlledServer) -> str:
        return f"this fault never fired: {self.what}. Nothing was written to the disk while it was in force"


class _SlowDisk(Fault):
    """Each sync takes longer. The thread that waits for the disk waits; nothing else does."""

    def __init__(self, broker: KafkaBroker, seconds: float | None) -> None:
        super().__init__(broker, "the disk hangs" if seconds is None else f"each sync takes {seconds:g} s")
        self.hits: list[str] = []
        """The files whose syncs took longer."""
        self._seconds = seconds
        self._over = threading.Event()

    @property
    def count(self) -> int:
        return len(self.hits)

    async def _begin_on(self, server: ControlledServer) -> None:
        self._over.clear()

        def slow(path: str) -> None:
            self.hits.append(path)
            server.look_soon()
            self._over.wait(self._seconds)

        self._broker.disk.on_sync = slow
        server.controls.disk_is_slow = True

    async def _end_on(self, server: ControlledServer) -> None:
        self._broker.disk.on_sync = None
        server.controls.disk_is_slow = False
        self._over.set()

    def _why_not(self, _server: ControlledServer) -> str:
        how = "" if self._broker.syncs else ". This broker syncs nothing (flush='os')"
        return f"this fault never fired: {self.what}. Nothing was synced while it was in force{how}"


class _Happens(Fault):
    """Something that happens at the beginning, whatever clients do."""

    _has_happened = False

    @property
    def count(self) -> int:
        return int(self._has_happened)


class _StopNode(_Happens):
    def __init__(self, broker: KafkaBroker, node: int) -> None:
        super().__init__(broker, f"node {node} is stopped")
        self._node = node

    async def _begin_on(self, server: ControlledServer) -> None:
        if server.cluster.leadership.up == {self._node}:
            raise CoterieError(f"node {self._node} is the only one that runs: use crash, or KafkaBroker(nodes=3)")
        await server.stop_node(self._node)
        self._has_happened = True

    async def _end_on(self, server: ControlledServer) -> None:
        await server.start_node(self._node)


class _MoveCoordinator(_Happens):
    def __init__(self, broker: KafkaBroker, group: str, node: int) -> None:
        super().__init__(broker, f"node {node} is the coordinator of {group}")
        self._group = group
        self._node = node
        self._was = node

    async def _begin_on(self, server: ControlledServer) -> None:
        self._was = server.coordinator_of(self._group)
        await server.move_coordinator(self._group, self._node)
        self._has_happened = True

    async def _end_on(self, server: ControlledServer) -> None:
        if self._was in server.cluster.leadership.up:
            await server.move_coordinator(self._group, self._was)


class _Crash(_Happens):
    def __init__(self, broker: KafkaBroker, *, lose_unsynced: bool) -> None:
        super().__init__(broker, "the broker has crashed")
        self._lose_unsynced = lose_unsynced

    def _begin(self) -> None:
        self._broker.go_down(lose_unsynced=self._lose_unsynced)
        self._has_happened = True

    def _end(self) -> None:
        self._broker.come_up()


class Faults:
    """The faults of a broker under test, `broker.faults`."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker

    def __repr__(self) -> str:
        return f"<faults of {self._broker!r}>"

    def on(
        self,
        api: str,
        *,
        group: str | None = None,
        member: str | None = None,
        client_id: str | None = None,
        instance: str | None = None,
        generation: int | None = None,
        topic: str | None = None,
        state: str | None = None,
        nth: int | None = None,
        **unknown: Never,
    ) -> FaultBuilder:
        """Choose the requests that a fault is about: those for which all that is given is true.

        Args:
            api: The name of the API, such as `OffsetCommit`.
            group: The id of the group that they name.
            member: The client id, member id or group instance id of the member that they are of.
            client_id: The client id.
            instance: The group instance id.
            generation: The generation, or the member epoch (KIP-848).
            topic: The name of a topic that they name.
            state: The state that the group is in when they arrive, such as `PreparingRebalance`.
            nth: Which of them, from the beginning of the fault on: 1 is the first.
            **unknown: Nothing else.

        Returns:
            What says which fault it is, by its methods.

        Raises:
            CoterieError: There is no such API, state or filter.
        """
        for name in unknown:
            raise CoterieError(f"requests cannot be chosen by {name!r}: {nearest(name, [*FILTERS, 'nth'])}")
        if state is not None and state not in STATES:
            raise CoterieError(f"there is no state {state!r} of a group: {nearest(state, STATES)}")
        chosen = Filter(api_named(api).name, group, member, client_id, instance, generation, topic, state)
        return FaultBuilder(self._broker, chosen, nth)

    def cut_off(self, client_id: str) -> RequestFault:
        """Cut a client off from all nodes: its connections are closed, and none of its requests is answered.

        To its group that is a crash: nothing is heard of the member. `clock.silence` lets its session expire, and so
        does `clock.advance`, since it is not connected. When the fault ends, the client can connect again.

        Args:
            client_id: The client id.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        return ClientCutOff(self._broker, client_id)

    def disk_full(self) -> Fault:
        """Let no file be written. When the fault ends, all partitions can be written again.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        return _DiskFull(self._broker)

    def slow_disk(self, seconds: float | None = None) -> Fault:
        """Let each sync of a file take longer: what waits for it, such as a commit, is answered later.

        While it is in force, `clock.advance` does not wait for the disk.

        Args:
            seconds: How much longer, of real time; without it, until the fault ends.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        return _SlowDisk(self._broker, seconds)

    def stop_node(self, node: int) -> Fault:
        """Stop a node: its partitions and groups go to other nodes, and its connections are closed.

        When the fault ends, the node starts again, and what it led before comes back to it.

        Args:
            node: The number of the node, from 1 on.

        Returns:
            The fault; it begins with its `with` block, or with `begin`, which raises a CoterieError if there is no such
            node, or no other.
        """
        return _StopNode(self._broker, node)

    def move_coordinator(self, group: str, node: int) -> Fault:
        """Make a node the coordinator of a group. When the fault ends, the one before is its coordinator again.

        Args:
            group: The id of the group.
            node: The number of the node, from 1 on.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        return _MoveCoordinator(self._broker, group, node)

    def crash(self, *, lose_unsynced: bool = True) -> Fault:
        """Let the broker crash, as if its machine had lost its power. When the fault ends, it starts again.

        Meanwhile its ports refuse connections, and nothing can be asked of it. What was acknowledged is there
        afterwards if the broker has `flush="sync"`, which is the default; with `flush="os"` it is lost.

        Args:
            lose_unsynced: Whether what was not synced is lost; else it is a crash of the process alone.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        return _Crash(self._broker, lose_unsynced=lose_unsynced)
