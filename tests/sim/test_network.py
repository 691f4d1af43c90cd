"""The network keeps the order within a connection, whatever else it does."""

from __future__ import annotations

import pytest

from coterie.errors import KafkaError
from coterie.protocol.apis import metadata
from coterie.sim.clients import Client
from coterie.sim.world import World


class Asker(Client):
    """Asks for metadata and notes how each question ended, and when."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "asker", world.admin.clock)
        self.ended: list[tuple[int, int, str]] = []
        self.loop.run(self._make)

    def _make(self) -> None:
        self._cluster = self.cluster()

    async def live(self) -> None:
        """Do nothing: it asks when a test says so."""

    def asks(self, number: int, timeout_ms: int = 30_000) -> None:
        self.start(self._ask(number, timeout_ms))

    async def _ask(self, number: int, timeout_ms: int) -> None:
        how = "answered"
        try:
            await self._cluster.send(-1, metadata, metadata.Request(topics=[]), timeout_ms=timeout_ms)
        except KafkaError as error:
            how = type(error).__name__
        self.ended.append((self.world.schedule.now_ms, number, how))


@pytest.fixture
def asker() -> Asker:
    world = World(3, [], {}, jitter_ms=50)
    world.machine.start()
    return Asker(world)


def passes(world: World, until_ms: int) -> None:
    world.schedule.run(until_ms)


def test_answers_come_in_the_order_of_the_questions(asker: Asker) -> None:
    for number in range(20):
        asker.asks(number)
    passes(asker.world, 1_000)
    assert [(number, how) for _, number, how in asker.ended] == [(number, "answered") for number in range(20)]


def test_what_is_sent_into_a_cut_comes_when_it_is_repaired(asker: Asker) -> None:
    asker.asks(0)
    passes(asker.world, 500)
    asker.world.network.cut("asker")
    asker.asks(1)
    asker.asks(2)
    passes(asker.world, 9_000)
    assert len(asker.ended) == 1
    asker.world.network.repair("asker")
    passes(asker.world, 10_000)
    assert [number for _, number, _ in asker.ended] == [0, 1, 2]


def test_nothing_overtakes_what_is_still_on_its_way_when_a_cut_is_repaired(asker: Asker) -> None:
    """One comes while the link is cut and waits, one is slower than the cut, one is sent when all is well again."""
    asker.asks(0)
    passes(asker.world, 500)
    network = asker.world.network
    network.slow["asker"] = 1_000
    asker.asks(1)
    passes(asker.world, 1_200)
    network.cut("asker")
    asker.asks(2)
    passes(asker.world, 1_700)
    network.slow.clear()
    network.repair("asker")
    asker.asks(3)
    passes(asker.world, 9_000)
    assert [number for _, number, _ in asker.ended] == [0, 1, 2, 3]


def test_a_wire_that_is_half_open_swallows_everything_until_the_client_gives_up(asker: Asker) -> None:
    asker.asks(0)
    passes(asker.world, 500)
    for wire in asker.world.network.wires:
        wire.is_dead = True
    asker.asks(1, timeout_ms=5_000)
    passes(asker.world, 5_600)
    assert asker.ended[-1][1:] == (1, "RequestTimedOutError")
    asker.asks(2)
    passes(asker.world, 7_000)
    assert asker.ended[-1][1:] == (2, "answered")


def test_a_process_that_dies_is_noticed_and_a_host_that_dies_is_not(asker: Asker) -> None:
    machine = asker.world.machine
    asker.asks(0)
    passes(asker.world, 500)
    machine.kill()
    passes(asker.world, 600)
    asker.asks(1)
    passes(asker.world, 700)
    assert asker.ended[-1][1:] == (1, "ConnectionLostError"), "the system answers for a process that is not there"
    machine.start()
    asker.asks(2)
    passes(asker.world, 2_000)
    machine.lose_power()
    asker.asks(3, timeout_ms=20_000)
    passes(asker.world, 15_000)
    assert asker.ended[-1][1:] == (2, "answered"), "nobody is there to say anything"


def test_a_pause_is_over_before_anything_is_noticed(asker: Asker) -> None:
    asker.asks(0)
    asker.pause()
    passes(asker.world, 5_000)
    assert not asker.ended
    asker.resume()
    passes(asker.world, 6_000)
    assert [number for _, number, _ in asker.ended] == [0]
