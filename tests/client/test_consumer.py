"""The Consumer alone: read, seek, pause, commit, come back; who may call it, and what it says to wrong calls."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251  the one of the user
import runpy
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import coterie
from broker.peer import Peer
from client.consumers import QUICK, Heard, consumer_of, fill, on, read, took_s, until, values
from coterie.assignors import Range
from coterie.client.consumer.async_consumer import AsyncConsumer
from coterie.client.consumer.consumer import Consumer
from coterie.client.consumer.engine import WakeupError
from coterie.client.consumer.fetch_requests import NoOffsetForPartitionError
from coterie.client.consumer.fetcher import NotAssignedError
from coterie.client.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from coterie.errors import ClientClosedError, ConcurrentUseError, CoterieError, RequestTimedOutError
from coterie.protocol.records import Record
from coterie.settings.config_def import SettingsError

pytestmark = pytest.mark.real_time


@pytest.fixture
def topic(broker: coterie.Broker, name: str) -> str:
    """Two partitions with five records each."""
    fill(broker.bootstrap_servers, name, 2, 5)
    return name


@pytest.fixture
def consumer(broker: coterie.Broker, topic: str) -> Iterator[Consumer]:
    with consumer_of(broker.bootstrap_servers, group_id=f"group-of-{topic}") as made:
        yield made


ALL = sorted(f"{number}:{at}" for number in range(2) for at in range(5))


# --- reading ----------------------------------------------------------------------------------------------------------


def test_what_is_read_and_committed_is_not_read_again(broker: coterie.Broker, topic: str) -> None:
    with consumer_of(broker.bootstrap_servers, group_id=topic, enable_auto_commit=False) as first:
        first.subscribe([topic])
        got = read(10, first)
        assert sorted(values(got)) == ALL
        first.commit({(topic, 0): OffsetAndMetadata(3), (topic, 1): OffsetAndMetadata(5, "note")})
    with consumer_of(broker.bootstrap_servers, group_id=topic) as second:
        second.subscribe([topic])
        got = read(2, second)
        assert values(got) == ["0:3", "0:4"]
        assert second.committed() == {
            TopicPartition(topic, 0): OffsetAndMetadata(3),
            TopicPartition(topic, 1): OffsetAndMetadata(5, "note", leader_epoch=-1),
        }


def test_an_iteration_knows_its_position_at_each_record(broker: coterie.Broker, name: str) -> None:
    fill(broker.bootstrap_servers, name, 1, 60)
    where = TopicPartition(name, 0)
    with consumer_of(broker.bootstrap_servers, group_id=name, enable_auto_commit=False) as consumer:
        consumer.subscribe(name)
        records = iter(consumer)
        for at in range(20):
            assert next(records).offset == at
            if at % 5 == 3:
                assert consumer.position(where) == at + 1
            if at == 10:
                consumer.commit()
                found = consumer.committed(where)[where]
                assert found is not None
                assert found.offset == 11
        assert next(records).offset == 20
        consumer.pause(where)
        assert consumer.poll(0) == []
        consumer.resume(where)
        assert [next(records).offset, next(consumer).offset, next(records).offset] == [21, 22, 23]
        assert [one.offset for one in consumer.poll(max_records=2)] == [24, 25]
        assert next(records).offset == 26
        consumer.wakeup()
        with pytest.raises(WakeupError):
            next(records)
        assert [next(records).offset, next(records).offset] == [27, 28]
        consumer.seek(where, 50)
        assert [next(records).offset, next(records).offset] == [50, 51]
        assert consumer.lag() == {where: 8}
        consumer.unsubscribe()
        consumer.assign([where])
        consumer.seek(where, 3)
        assert [next(records).offset, next(records).offset] == [3, 4]
    with pytest.raises(ClientClosedError):
        next(records)


def test_auto_commit_in_an_iteration_leaves_out_the_last_record_after_an_error(
    broker: coterie.Broker, name: str
) -> None:
    fill(broker.bootstrap_servers, name, 1, 30)

    def work() -> None:
        with consumer_of(broker.bootstrap_servers, group_id=name) as consumer:
            consumer.subscribe(name)
            for record in consumer:
                if record.offset == 17:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    with Peer(broker.bootstrap_servers) as peer:
        assert peer.offsets_of(name) == {(name, 0): 17}


def test_an_asynchronous_iteration_knows_its_position(broker: coterie.Broker, name: str) -> None:
    fill(broker.bootstrap_servers, name, 1, 30)

    async def work() -> None:
        where = TopicPartition(name, 0)
        settings = {**QUICK, "bootstrap.servers": broker.bootstrap_servers, "group.id": name}
        async with AsyncConsumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(name)
            at = 0
            async for record in consumer:
                assert record.offset == at
                if at % 4 == 1:
                    assert await consumer.position(where) == at + 1
                if at == 12:
                    await consumer.commit()
                    found = (await consumer.committed(where))[where]
                    assert found is not None
                    assert found.offset == 13
                at += 1
                if at == 30:
                    break

    asyncio.run(work())


def test_close_commits_what_was_polled_if_auto_commit_is_on(broker: coterie.Broker, topic: str) -> None:
    with consumer_of(broker.bootstrap_servers, group_id=topic) as first:
        first.subscribe(topic)
        read(10, first)
    with Peer(broker.bootstrap_servers) as peer:
        assert peer.offsets_of(topic) == {(topic, 0): 5, (topic, 1): 5}


def test_after_an_error_what_the_last_poll_brought_is_not_committed(broker: coterie.Broker, topic: str) -> None:
    def work() -> None:
        with consumer_of(broker.bootstrap_servers, group_id=topic, max_poll_records=2) as consumer:
            consumer.subscribe(topic)
            until(consumer.assignment, consumer)
            consumer.pause(*on(topic, 1))
            consumer.seek_to_beginning()
            read(4, consumer)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    with Peer(broker.bootstrap_servers) as peer:
        assert peer.offsets_of(topic)[topic, 0] == 2


def test_iterating_a_record_is_processed_when_the_next_one_is_asked_for(broker: coterie.Broker, topic: str) -> None:
    """An interrupt in the middle of the third record: two are committed, none is lost."""

    def work() -> None:
        with consumer_of(broker.bootstrap_servers, group_id=topic) as consumer:
            consumer.subscribe(topic)
            for count, record in enumerate(consumer, 1):
                assert record.topic == topic
                if count == 3:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    with Peer(broker.bootstrap_servers) as peer:
        assert sum(peer.offsets_of(topic).values()) == 2


def test_a_poll_groups_its_records_by_partition(consumer: Consumer, topic: str) -> None:
    consumer.assign(on(topic, 1))
    while not (records := consumer.poll(1)):
        pass
    assert values(records) == [f"1:{at}" for at in range(5)]
    assert records.by_partition() == {TopicPartition(topic, 1): list(records)}


def test_a_poll_returns_at_most_what_it_is_asked_for(consumer: Consumer, topic: str) -> None:
    consumer.assign(on(topic, 0))
    while not (records := consumer.poll(1, max_records=2)):
        pass
    assert values(records) == ["0:0", "0:1"]
    assert values(consumer.poll(1)) == ["0:2", "0:3", "0:4"]


def test_a_poll_without_records_waits_as_long_as_it_may(consumer: Consumer, topic: str) -> None:
    """M1."""
    consumer.assign(on(topic, 0))
    consumer.seek(on(topic, 0)[0], 5)
    assert 0.14 <= took_s(lambda: consumer.poll(0.15)) < 25


def test_seeking_pausing_and_where_it_stands(consumer: Consumer, topic: str) -> None:
    zero, one = on(topic, 0, 1)
    consumer.assign([zero, one])
    consumer.pause(zero)
    assert consumer.paused() == [zero]
    assert values(read(5, consumer)) == [f"1:{at}" for at in range(5)]
    assert consumer.position(zero) == 0 and consumer.position(one) == 5
    consumer.resume(zero)
    consumer.seek(zero, 3)
    assert values(read(2, consumer)) == ["0:3", "0:4"]
    assert consumer.lag() == {zero: 0, one: 0}
    consumer.seek_to_beginning(one)
    assert consumer.position(one) == 0
    consumer.seek_to_end()
    assert consumer.position(one) == 5 and consumer.poll(0) == []


def test_offsets_by_place_and_time(consumer: Consumer, topic: str) -> None:
    both = on(topic, 0, 1)
    assert consumer.beginning_offsets(both) == dict.fromkeys(both, 0)
    assert consumer.end_offsets(both) == dict.fromkeys(both, 5)
    assert consumer.offsets_for_times({(topic, 0): 0, (topic, 1): 10**15}) == {
        both[0]: OffsetAndTimestamp(0, 1_000, 0),
        both[1]: None,
    }
    assert consumer.partitions_for(topic) == both and consumer.partitions_for("nowhere") == []
    with pytest.raises(RequestTimedOutError, match=r"not found within 2000 ms: .*nowhere-0.*does not exist"):
        consumer.end_offsets([("nowhere", 0)], timeout=2)


def test_commits_of_all_kinds(consumer: Consumer, topic: str) -> None:
    zero = on(topic, 0)[0]
    consumer.assign([zero])
    assert consumer.committed() == {zero: None}
    read(5, consumer)
    consumer.commit()
    assert consumer.committed(zero) == {zero: OffsetAndMetadata(5, leader_epoch=0)}
    heard: list[tuple[Mapping[TopicPartition, OffsetAndMetadata], Exception | None]] = []
    mine = threading.get_ident()
    where: list[int] = []

    def told(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        heard.append((offsets, error))
        where.append(threading.get_ident())

    consumer.commit_async({zero: 2}, told)
    until(lambda: heard, consumer)
    assert heard == [({zero: OffsetAndMetadata(2)}, None)] and where == [mine]
    assert consumer.committed(zero) == {zero: OffsetAndMetadata(2)}


def test_without_a_group_everything_but_the_group_works(broker: coterie.Broker, topic: str) -> None:
    with Consumer({**QUICK, "bootstrap.servers": broker.bootstrap_servers}) as consumer:
        consumer.assign(on(topic, 0))
        read(5, consumer)
        assert consumer.explain() == f"reads {topic}-0, assigned by hand"
        for refused in (consumer.commit, consumer.committed, consumer.group_metadata, lambda: consumer.subscribe("t")):
            with pytest.raises(CoterieError, match=r"needs a group"):
                refused()


def test_reset_none_is_the_callers_business(broker: coterie.Broker, topic: str) -> None:
    with consumer_of(broker.bootstrap_servers, group_id=topic, auto_offset_reset="none") as consumer:
        consumer.assign(on(topic, 0))
        with pytest.raises(NoOffsetForPartitionError, match="the group has committed no offset"):
            until(lambda: False, consumer)
        with pytest.raises(NoOffsetForPartitionError):
            consumer.position((topic, 0))
        consumer.seek((topic, 0), 4)
        assert values(read(1, consumer)) == ["0:4"]


def test_a_topic_that_comes_later_is_read_then(broker: coterie.Broker) -> None:
    with consumer_of(broker.bootstrap_servers, group_id="early", allow_auto_create_topics=False) as consumer:
        consumer.subscribe("comes-later")
        until(lambda: consumer.group_metadata().generation_id > 0, consumer)
        assert consumer.assignment() == []
        fill(broker.bootstrap_servers, "comes-later", 1, 1)
        assert values(read(1, consumer)) == ["0:0"]


# --- who may call it --------------------------------------------------------------------------------------------------


def test_two_threads_at_once_are_refused_and_told_what_to_do(consumer: Consumer, topic: str) -> None:
    consumer.assign(on(topic, 0))
    consumer.seek((topic, 0), 5)
    other_error: list[BaseException] = []

    def poll() -> None:
        try:
            consumer.poll(20)
        except WakeupError as error:
            other_error.append(error)

    other = threading.Thread(target=poll)
    other.start()
    until(lambda: consumer._alone._owner == other.ident)
    for call in (consumer.poll, consumer.commit, lambda: consumer.seek((topic, 0), 1)):
        with pytest.raises(ConcurrentUseError, match=r"one thread at a time.*wakeup"):
            call()
    consumer.wakeup()
    other.join(60)
    assert not other.is_alive() and len(other_error) == 1
    consumer.seek((topic, 0), 4)
    assert values(read(1, consumer)) == ["0:4"]


def test_close_from_another_thread_ends_the_poll_and_leaves(broker: coterie.Broker, topic: str) -> None:
    consumer = consumer_of(broker.bootstrap_servers, group_id=topic)
    consumer.subscribe(topic)
    read(10, consumer)
    raised: list[BaseException] = []

    def poll() -> None:
        try:
            consumer.poll(20)
        except CoterieError as error:
            raised.append(error)

    other = threading.Thread(target=poll)
    other.start()
    until(lambda: consumer._alone._owner == other.ident)
    consumer.close()
    other.join(60)
    assert [str(error) for error in raised] == ["this client was closed by another thread: make a new one"]
    assert broker.rebalances(topic)[-1].reason == "the consumer is being closed"


def test_a_closed_consumer_says_so(broker: coterie.Broker) -> None:
    consumer = consumer_of(broker.bootstrap_servers)
    consumer.close()
    consumer.close()
    for call in (consumer.poll, consumer.assignment, consumer.commit, lambda: consumer.subscribe("t")):
        with pytest.raises(CoterieError, match="this client is closed: make a new one"):
            call()
    assert consumer.explain() == "closed"


def test_an_interrupt_in_a_poll_that_waits_loses_nothing(consumer: Consumer, topic: str) -> None:
    """As Ctrl-C does it: in the main thread, in the middle of the waiting."""
    import signal

    consumer.subscribe(topic)
    read(10, consumer)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(20)
    finally:
        signal.signal(signal.SIGALRM, previous)
    consumer.seek((topic, 0), 4)
    assert values(read(1, consumer)) == ["0:4"]


class Interrupting:
    """A lock that an interrupt comes to, before it is taken or when it is released."""

    def __init__(self, consumer: Consumer, *, is_early: bool) -> None:
        self.reading = consumer._inner._engine.reading
        self.lock, self.is_early = self.reading.lock, is_early
        self.reading.lock = self  # type: ignore[assignment]

    def __enter__(self) -> None:
        if self.is_early:
            self.end()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()
        if threading.current_thread() is threading.main_thread():
            self.end()

    def end(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self.reading.lock = self.lock
            raise KeyboardInterrupt


@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize("by_polls", [True, False])
def test_an_interrupt_while_records_are_taken_loses_none_and_doubles_none(
    consumer: Consumer, topic: str, *, is_early: bool, by_polls: bool
) -> None:
    """Who asks for the next record is done with the one before, whether or not the next one comes."""
    consumer.assign(on(topic, 1))

    def one() -> list[Record]:
        return list(consumer.poll(20, max_records=1)) if by_polls else [next(consumer)]

    taken = values(one())
    Interrupting(consumer, is_early=is_early)
    with pytest.raises(KeyboardInterrupt):
        one()
    taken += values([next(consumer) for _ in range(4)])
    assert taken == [f"1:{at}" for at in range(5)]


# --- wrong calls ------------------------------------------------------------------------------------------------------


def test_wrong_arguments_are_refused_in_words(consumer: Consumer, topic: str) -> None:
    for call, says in [
        (lambda: consumer.subscribe([]), "needs at least one topic"),
        (lambda: consumer.subscribe([""]), "a topic's name is 1 to 249"),
        (lambda: consumer.assign(["orders"]), "not a partition"),  # type: ignore[list-item]
        (lambda: consumer.assign("orders"), "not a list of partitions"),  # type: ignore[arg-type]
        (lambda: consumer.seek((topic, 0), -1), "an offset is 0 or more"),
        (lambda: consumer.seek((topic, 0), 2**63), r"an offset is 0 or more, below 2\^63"),
        (lambda: consumer.commit({(topic, 0): 2**63}), r"an offset is 0 or more, below 2\^63"),
        (lambda: consumer.commit({(topic, 2**31): 1}), "not a partition"),
        (lambda: consumer.commit([(topic, 0)]), "which offset is for which partition"),  # type: ignore[arg-type]
        (lambda: consumer.commit({(topic, 0): OffsetAndMetadata(1, "x" * 40_000)}), "text of 32767 bytes at most"),
        (lambda: consumer.commit({(topic, 0): OffsetAndMetadata(1, b"x")}), "text of"),  # type: ignore[arg-type]
        (lambda: consumer.poll(max_records=0), "a poll returns 1 record or more"),
        (lambda: consumer.poll(max_records=-1), "a poll returns 1 record or more"),
        (lambda: consumer.subscribe("t", Heard(), on_lost=print), "not both"),
        (lambda: consumer.subscribe("t", object()), "object has none of them"),
        (lambda: consumer.subscribe("t", on_lost=3), "cannot be called"),  # type: ignore[arg-type]
        (lambda: consumer.offsets_for_times({(topic, 0): -1}), "a time is in ms since 1970"),
    ]:
        with pytest.raises(CoterieError, match=says):
            call()  # type: ignore[no-untyped-call]
    with pytest.raises(NotAssignedError, match=f"{topic}-0 is not assigned to this consumer"):
        consumer.seek((topic, 0), 1)

    async def later(_partitions: list[TopicPartition]) -> None:
        pass

    with pytest.raises(CoterieError, match="coroutine function, which a Consumer cannot await"):
        consumer.subscribe("t", on_assigned=later)
    consumer.assign(on(topic, 0))
    with pytest.raises(CoterieError, match="unsubscribe"):
        consumer.subscribe(topic)
    consumer.unsubscribe()
    consumer.subscribe(topic)
    with pytest.raises(CoterieError, match="unsubscribe"):
        consumer.assign(on(topic, 0))
    assert consumer.subscription() == frozenset({topic})


def test_settings_and_assignors_are_taken_in_all_their_forms(broker: coterie.Broker) -> None:
    with pytest.raises(SettingsError, match=r"fetch\.min\.bytes"):
        Consumer(bootstrap_servers="localhost:1", fetch_min_byte=3)  # type: ignore[call-arg]
    with pytest.raises(CoterieError, match="not an assignor"):
        Consumer(bootstrap_servers="localhost:1", partition_assignment_strategy=[3])  # type: ignore[list-item]

    class Mine(Range):
        name = "mine"

    for given in (Mine, Mine(), [Mine, "range"]):
        with consumer_of(broker.bootstrap_servers, partition_assignment_strategy=given) as consumer:
            assert consumer.settings.partition_assignment_strategy[0] == "mine"


def test_an_async_consumer_polls_on_after_a_commit_callback_that_raises_and_a_timeout_that_is_none(
    broker: coterie.Broker, topic: str
) -> None:
    """What a poll raises before it waits must not leave it for ever under way."""

    def raises(*_: object) -> None:
        raise ZeroDivisionError

    async def poll_on(consumer: AsyncConsumer) -> None:
        while True:
            await consumer.poll(0.01)

    async def story() -> list[str]:
        settings = {**QUICK, "bootstrap.servers": broker.bootstrap_servers, "group.id": f"group-of-{topic}"}
        async with AsyncConsumer(settings) as consumer:
            consumer.assign(on(topic, 0))
            consumer.pause((topic, 0))
            consumer.commit_async({(topic, 0): 0}, raises)
            with pytest.raises(ZeroDivisionError):
                await asyncio.wait_for(poll_on(consumer), 60)
            with pytest.raises(TypeError):
                await consumer.poll(None)  # type: ignore[arg-type]
            consumer.resume((topic, 0))
            return values(await consumer.poll(10))

    assert asyncio.run(story()) == [f"0:{at}" for at in range(5)]


def test_to_wake_a_closed_consumer_is_no_mistake(broker: coterie.Broker) -> None:
    """Who wakes it, a signal's handler or another thread, cannot know."""
    consumer = consumer_of(broker.bootstrap_servers)
    consumer.close()
    consumer.wakeup()


def test_an_async_consumer_needs_a_loop() -> None:
    with pytest.raises(CoterieError, match="needs a running event loop; without one, use Consumer"):
        AsyncConsumer(bootstrap_servers="localhost:1").assign([("t", 0)])


def test_the_ten_lines_of_the_documentation_run(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "ten_lines.py"))
    assert capsys.readouterr().out.splitlines() == [
        "mine: orders-0",
        "0 b'table 4' b'coffee'",
        "1 b'table 4' b'tea'",
        "2 b'table 4' b'water'",
    ]


def test_random_numbers_of_the_user_are_left_alone(broker: coterie.Broker, topic: str) -> None:
    """Whoever has seeded the `random` module gets the same numbers with a client in the process."""
    before = random.getstate()
    with (
        consumer_of(broker.bootstrap_servers, group_id=topic) as ours,
        coterie.Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer,
    ):
        ours.subscribe(topic)
        producer.send(topic, "x").result(60)
        until(ours.assignment, ours)
    assert random.getstate() == before
