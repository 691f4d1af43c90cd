"""The state of the connections to each node by itself: back-off, the time to connect, the log, the order of nodes."""

from __future__ import annotations

import pytest

from coterie.client.network.cluster_connection_states import ClusterConnectionStates
from coterie.client.network.metadata import Node
from coterie.settings.client_settings import ClientSettings

NODES = [Node(number, "h", 9092 + number) for number in (1, 2, 3)]


@pytest.fixture
def states() -> ClusterConnectionStates:
    return ClusterConnectionStates(
        ClientSettings.of(
            {
                "reconnect.backoff.ms": 100,
                "reconnect.backoff.max.ms": 1_000,
                "socket.connection.setup.timeout.ms": 10_000,
                "socket.connection.setup.timeout.max.ms": 30_000,
            }
        )
    )


def test_a_node_that_never_failed_is_ready(states: ClusterConnectionStates) -> None:
    assert states.ready(1, 0.0) and states.ready_at(1) == 0.0
    assert states.setup_timeout_ms(1) == 10_000 and states.connected(1) == 0


def test_the_back_off_doubles_up_to_its_limit_and_belongs_to_one_node(states: ClusterConnectionStates) -> None:
    failures = []
    for pause_s in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        failures.append(states.failed(1, 5.0, 0.5))
        assert states.ready_at(1) == pytest.approx(5.0 + pause_s)
    assert failures == [1, 2, 3, 4, 5, 6]
    assert not states.ready(1, 5.99) and states.ready(1, 6.0) and states.ready(2, 5.0)


@pytest.mark.parametrize(("chance", "pause_s"), [(0.0, 0.08), (1.0, 0.12)])
def test_the_back_off_has_jitter(states: ClusterConnectionStates, chance: float, pause_s: float) -> None:
    states.failed(1, 0.0, chance)
    assert states.ready_at(1) == pytest.approx(pause_s)


def test_each_failure_doubles_the_time_to_connect_until_a_connection_is_open(states: ClusterConnectionStates) -> None:
    """KIP-601."""
    times = []
    for _ in range(40):
        states.failed(1, 0.0, 0.5)
        times.append(states.setup_timeout_ms(1))
    assert times[:2] == [20_000, 30_000] and times[-1] == 30_000
    assert states.connected(1) == 40
    assert states.setup_timeout_ms(1) == 10_000 and states.ready(1, 0.0) and states.connected(1) == 0


def test_a_lost_node_is_said_once_until_there_is_a_connection_again(states: ClusterConnectionStates) -> None:
    assert [states.disconnected(1), states.disconnected(1), states.disconnected(2)] == [True, False, True]
    states.failed(1, 0.0, 0.5)
    assert not states.disconnected(1)
    states.connected(1)
    assert states.disconnected(1)


def test_ready_nodes_come_first_then_connected_ones_then_the_least_busy(states: ClusterConnectionStates) -> None:
    states.failed(1, 0.0, 0.5)
    in_flight = {1: 0, 2: None, 3: 7}
    assert [node.id for node in states.least_busy(NODES, in_flight.get, 0.05, lambda: 0.5)] == [3, 2, 1]
    assert [node.id for node in states.least_busy(NODES, in_flight.get, 0.1, lambda: 0.5)] == [1, 3, 2]


def test_chance_decides_among_equal_nodes_with_one_number_each(states: ClusterConnectionStates) -> None:
    chances = iter([0.9, 0.1, 0.5])
    assert [node.id for node in states.least_busy(NODES, lambda _: None, 0.0, lambda: next(chances))] == [2, 3, 1]
    assert not list(chances)
