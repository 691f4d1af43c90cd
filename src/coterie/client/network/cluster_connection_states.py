"""The state of a client's connections to each node: failures, the back-off after them, nodes that were lost. No I/O.

Times are in seconds, as event loops count them. Random numbers are from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from coterie.client.network.backoff import backoff_ms
from coterie.client.network.metadata import Node
from coterie.settings.client_settings import ClientSettings

_MOST_DOUBLINGS = 16


class _NodeState:
    __slots__ = ("failures", "is_lost", "ready_at")

    def __init__(self) -> None:
        self.failures = 0
        """The consecutive failures to connect."""
        self.ready_at = 0.0
        """No connection is tried before."""
        self.is_lost = False
        """True if a connection was lost, and none was opened since."""


class ClusterConnectionStates:
    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._nodes: dict[int, _NodeState] = {}

    def ready_at(self, node_id: int) -> float:
        """Return the time before which no connection is tried."""
        state = self._nodes.get(node_id)
        return 0.0 if state is None else state.ready_at

    def ready(self, node_id: int, now: float) -> bool:
        """Return whether a connection may be tried now."""
        return self.ready_at(node_id) <= now

    def setup_timeout_ms(self, node_id: int) -> int:
        """Return how long the next connection may take: twice as long after each failure, up to a limit (KIP-601)."""
        settings, state = self._settings, self._nodes.get(node_id)
        doublings = 0 if state is None else min(state.failures, _MOST_DOUBLINGS)
        return min(
            settings.socket_connection_setup_timeout_ms << doublings, settings.socket_connection_setup_timeout_max_ms
        )

    def failed(self, node_id: int, now: float, chance: float) -> int:
        """A connection could not be opened: begin a back-off, and return the number of consecutive failures."""
        settings, state = self._settings, self._state(node_id)
        state.failures += 1
        pause_ms = backoff_ms(state.failures, settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, chance)
        state.ready_at = now + pause_ms / 1000
        return state.failures

    def connected(self, node_id: int) -> int:
        """A connection is open: forget the failures, and return how many there were."""
        state = self._state(node_id)
        failures = state.failures
        state.failures, state.ready_at, state.is_lost = 0, 0.0, False
        return failures

    def disconnected(self, node_id: int) -> bool:
        """An open connection was lost. Return True only for the first of several to the same node."""
        state = self._state(node_id)
        was_lost, state.is_lost = state.is_lost, True
        return not was_lost

    def least_busy(
        self,
        nodes: Iterable[Node],
        in_flight: Callable[[int], int | None],
        now: float,
        chance: Callable[[], float],
    ) -> list[Node]:
        """Return the nodes in the order in which to try them: ready ones first, then connected ones, then by load.

        `in_flight` has how many requests a node has to answer; None: it is not connected. Among equal nodes chance
        decides, with one number for each node.
        """

        def busy(node: Node) -> tuple[bool, bool, int, float]:
            load = in_flight(node.id)
            return not self.ready(node.id, now), load is None, load or 0, chance()

        return sorted(nodes, key=busy)

    def _state(self, node_id: int) -> _NodeState:
        state = self._nodes.get(node_id)
        if state is None:
            state = self._nodes[node_id] = _NodeState()
        return state
