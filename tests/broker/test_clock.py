"""The broker's own time, and the wall clock's: who waits, who writes, and what happens while nobody could be served."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import pytest

from broker.driver import World
from broker.peer import Peer, Serving
from coterie import Broker
from coterie.broker.io import clock
from coterie.broker.io.clock import AWAY_MS, Clock
from coterie.errors import ErrorCode
from coterie.facts import ClockSet, Fact, GroupCreated
from coterie.protocol.apis import heartbeat, list_offsets
from coterie.protocol.messages import Heartbeat, JoinedGroup

HOUR = 3_600_000
DEADLINE_S = 60
QUICK = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}


class Times:
    def __init__(self) -> None:
        self.monotonic_ms = 5_000
        self.wall_ms = 1_000_000
        self.clock = Clock(lambda: self.monotonic_ms * 1_000_000, lambda: self.wall_ms)

    def passes(self, ms: int) -> None:
        self.monotonic_ms += ms
        self.wall_ms += ms

    def wall(self) -> int:
        return self.clock.wall.at(self.clock.now_ms())


def test_it_begins_with_the_wall_clock_and_counts_by_the_other() -> None:
    times = Times()
    times.passes(700)
    assert times.clock.now_ms() == times.wall() == 1_000_700


@pytest.mark.parametrize("by_ms", [8 * HOUR, -8 * HOUR])
def test_the_wall_clock_is_followed_and_the_own_time_goes_on(by_ms: int) -> None:
    times = Times()
    times.passes(100)
    times.wall_ms += by_ms
    assert times.clock.look() == by_ms
    assert (times.clock.now_ms(), times.wall()) == (1_000_100, 1_000_100 + by_ms)
    assert times.clock.look() == 0


def test_while_nothing_could_be_done_the_own_time_stands_still() -> None:
    """And the wall clock was not set."""
    times = Times()
    times.passes(40_000)
    assert (times.clock.now_ms(), times.wall()) == (1_000_000, 1_040_000)
    times.passes(AWAY_MS)
    assert times.clock.now_ms() == 1_000_000 + AWAY_MS
    assert times.clock.look() == 0


def test_a_machine_that_slept_has_a_wall_clock_that_jumped() -> None:
    """The monotonic clock does not count the sleep."""
    times = Times()
    times.wall_ms += 8 * HOUR
    assert times.clock.look() == 8 * HOUR
    assert times.clock.now_ms() == 1_000_000


def test_what_is_appended_and_told_has_the_wall_clocks_time() -> None:
    world = World(settings={"log.message.timestamp.type": "LogAppendTime"})
    client = world.client()
    client.create("t")
    world.cluster.wall.read(5 * HOUR, world.now_ms)
    assert client.produce("t", b"v").log_append_time_ms == world.now_ms + 5 * HOUR
    client.find_coordinator()
    assert client.commit("g", {("t", 0): 1}) == [ErrorCode.NONE]
    assert [fact.at_ms for fact in world.facts if isinstance(fact, GroupCreated)] == [world.now_ms + 5 * HOUR]


def test_times_that_go_back_are_found_all_the_same() -> None:
    """Also when the log is opened again: its index of times only rises."""
    settings = {"log.message.timestamp.type": "LogAppendTime", "log.roll.ms": HOUR, "log.index.interval.bytes": 0}
    world = World(settings=settings)
    client = world.client()
    client.create("t")
    stamps = []
    for ahead_ms in (0, 5 * HOUR, -5 * HOUR, 0, HOUR):
        world.cluster.wall.read(ahead_ms, world.now_ms)
        stamps += [client.produce("t", b"v" * 50).log_append_time_ms for _ in range(3)]
    assert len(set(stamps)) == 4
    world.stop()
    again = World(world.files, settings).client()
    for target in stamps:
        request = list_offsets.Request(
            topics=[
                list_offsets.Topic(name="t", partitions=[list_offsets.Partition(partition=0, timestamp=target)]),
            ]
        )
        (found,) = again.ask(list_offsets, request).topics[0].partitions
        first = next(offset for offset, stamp in enumerate(stamps) if stamp >= target)
        assert (found.offset, found.timestamp) == (first, stamps[first])


@pytest.mark.parametrize("is_set_right", [True, False])
def test_retention_spares_what_only_looks_old_since_the_clock_was_set(is_set_right: bool) -> None:
    """Kafka deletes it with the next check. Here somebody has an hour to set the clock right."""
    week = 7 * 24 * HOUR
    world = World(settings={"log.message.timestamp.type": "LogAppendTime"})
    client = world.client()
    client.create("t")
    for _ in range(10):
        client.produce("t", b"v" * 100)
    world.cluster.wall.read(2 * week, world.now_ms)
    world.advance(HOUR // 2)
    assert len(client.read_all("t")) == 10
    if is_set_right:
        world.cluster.wall.read(0, world.now_ms)
    world.advance(HOUR)
    assert len(client.read_all("t")) == (10 if is_set_right else 0)


# --- as a process, and in a thread ------------------------------------------------------------------------------------


def wait_for(holds: Callable[[], bool]) -> None:
    for _ in range(DEADLINE_S * 50):
        if holds():
            return
        time.sleep(0.02)
    pytest.fail("it was waited for in vain")


@pytest.mark.real_time
def test_a_broker_follows_a_clock_that_is_set_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    facts: list[Fact] = []
    settings = {**QUICK, "log.message.timestamp.type": "LogAppendTime"}
    with Broker(settings=settings, on_fact=facts.append) as broker, Peer(broker.bootstrap_servers) as peer:
        peer.create("t")
        peer.find_coordinator("g")
        joined = peer.enter("g")
        for offset_ms in (5 * HOUR, -3 * HOUR):
            monkeypatch.setattr(clock, "_OFFSET_MS", clock._OFFSET_MS + offset_ms)
            before_ms = clock.wall_ms()
            wait_for(lambda: abs(peer.produce("t", b"v").log_append_time_ms - clock.wall_ms()) < HOUR)
            assert peer.produce("t", b"v").log_append_time_ms >= before_ms - 1_000
            assert peer.heartbeat("g", joined.member_id, joined.generation_id) is ErrorCode.NONE
    steps = [fact.by_ms for fact in facts if isinstance(fact, ClockSet)]
    assert [round(step / HOUR) for step in steps] == [5, -3]


@pytest.mark.real_time
def test_what_has_arrived_is_looked_at_before_sessions_are_judged() -> None:
    """The loop was busy over the end of a session; the heartbeat was there in time, and nobody had read it."""
    is_busy, is_over = threading.Event(), threading.Event()

    def hear(fact: Fact) -> None:
        if isinstance(fact, GroupCreated) and fact.group_id == "costly":
            is_busy.set()
            is_over.wait(DEADLINE_S)

    settings = {**QUICK, "group.min.session.timeout.ms": 100}
    with (
        Broker(settings=settings, on_fact=hear) as broker,
        Peer(broker.bootstrap_servers) as peer,
        Peer(broker.bootstrap_servers) as other,
    ):
        peer.create("t")
        peer.find_coordinator("g")
        joined = peer.enter("g", session_timeout_ms=400)
        assert peer.heartbeat("g", joined.member_id, joined.generation_id) is ErrorCode.NONE
        other.send_commit("costly", {("t", 0): 1})
        is_busy.wait(DEADLINE_S)
        peer.send(heartbeat, Heartbeat(None, "g", joined.member_id, None, joined.generation_id))
        time.sleep(0.6)
        is_over.set()
        assert peer.answer() is ErrorCode.NONE


@pytest.mark.real_time
def test_nobody_is_expired_for_the_time_that_the_process_was_stopped() -> None:
    """SIGSTOP for longer than a session: who has sent nothing meanwhile has what was left of its session."""
    options = [f"--set={name}={value}" for name, value in {**QUICK, "group.min.session.timeout.ms": 100}.items()]
    with Serving(None, *options) as serving:
        address = serving.ready()
        with Peer(address) as beating, Peer(address) as quiet:
            beating.create("t")
            beating.find_coordinator("a")
            members: list[tuple[Peer, str, JoinedGroup]] = [
                (peer, group, peer.enter(group, session_timeout_ms=4_000))
                for peer, group in ((beating, "a"), (quiet, "b"))
            ]
            for peer, group, joined in members:
                assert peer.heartbeat(group, joined.member_id, joined.generation_id) is ErrorCode.NONE
            serving.signal(signal.SIGSTOP)
            for _ in range(5):
                time.sleep(1)
                beating.send(heartbeat, Heartbeat(None, "a", members[0][2].member_id, None, 1))
            serving.signal(signal.SIGCONT)
            assert quiet.heartbeat("b", members[1][2].member_id, 1) is ErrorCode.NONE
            assert [beating.answer() for _ in range(5)] == [ErrorCode.NONE] * 5
            for peer, group, joined in members:
                assert peer.heartbeat(group, joined.member_id, joined.generation_id) is ErrorCode.NONE
