"""Producer and AsyncProducer on real sockets, against a broker of ours."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ALL_COMPLETED, wait
from pathlib import Path
from typing import Any

import pytest

import coterie
from broker.peer import Peer
from client.cutting_proxy import BrokerBehindProxy
from client.peers import Run
from coterie.client.admin import NewTopic
from coterie.client.producer.delivery import RecordMetadata
from coterie.client.producer.producer import AsyncProducer, Producer
from coterie.client.producer.record_appender import RECORD_OVERHEAD, partition_for_key
from coterie.errors import CoterieError, ErrorCode, IllegalArgumentError, KafkaError
from coterie.protocol.batch import Compression, batches
from coterie.protocol.records import BatchRecord, records

pytestmark = pytest.mark.real_time

QUICK = {"retry.backoff.ms": 1, "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 5, "retry.backoff.max.ms": 5}


@pytest.fixture(scope="module")
def broker() -> Iterator[coterie.Broker]:
    with coterie.Broker(settings={"num.partitions": 4}) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    wanted = request.node.name.removeprefix("test_")
    return "".join(letter if letter.isalnum() else "-" for letter in wanted).strip("-")[:80]


def producer(broker: coterie.Broker, **settings: object) -> Producer:
    return Producer({**QUICK, "bootstrap.servers": broker.bootstrap_servers, **settings})


def values(broker: coterie.Broker, topic: str, partition: int = 0) -> list[bytes | None]:
    with Peer(broker.bootstrap_servers) as peer:
        return [value for _, value in peer.read_all(topic, partition)]


def first_record(broker: coterie.Broker, topic: str, partition: int = 0) -> BatchRecord:
    with Peer(broker.bootstrap_servers) as peer:
        data = peer.fetch(topic, 0, partition=partition).records or b""
    at, header = next(iter(batches(data)))
    return next(iter(records(data, header, at)))


# --- one record -------------------------------------------------------------------------------------------------------


def test_a_record_arrives_with_all_it_has(broker: coterie.Broker, topic: str) -> None:
    with producer(broker) as ours:
        delivery = ours.send(
            topic, "ein Kaffee ☕", key="Tisch 7", headers={"from": "bar", "empty": None}, timestamp=1_700_000_000_123
        )
        where = delivery.result(60)
    partition = partition_for_key(b"Tisch 7", 4)
    assert where == RecordMetadata(topic, partition, 0, 1_700_000_000_123)
    key, value, timestamp, headers, _ = first_record(broker, topic, partition)
    assert (key, value) == (b"Tisch 7", "ein Kaffee ☕".encode())
    assert timestamp == 1_700_000_000_123
    assert list(headers) == [("from", b"bar"), ("empty", None)]


def test_a_tombstone_and_an_explicit_partition(broker: coterie.Broker, topic: str) -> None:
    with producer(broker) as ours:
        assert ours.send(topic, None, key=b"k", partition=3).result(60).partition == 3
    assert values(broker, topic, 3) == [None]


@pytest.mark.parametrize(
    ("send", "problem"),
    [
        ({"value": 5}, "the value of a record is text, bytes or None, not int: encode it first"),
        ({"value": {"a": 1}}, "not dict: encode it first, for example with json.dumps"),
        ({"value": "v", "key": 7}, "the key of a record is text, bytes or None, not int"),
        ({"value": "v", "headers": {"h": 1}}, "the header 'h' of a record is text, bytes or None, not int"),
        ({"value": "v", "headers": [(b"h", b"1")]}, "the name of a header is text, not bytes"),
        ({"value": "v", "headers": "ab"}, "headers are a mapping or pairs"),
        ({"value": "v", "headers": [("h",)]}, "('h',) is not a pair"),
        ({"value": "v", "timestamp": 1.5}, "has the time 1.5; a time is in ms since 1970"),
        ({"value": "v", "partition": "1"}, "('refused', '1') is not a partition"),
        ({"value": "v", "on_delivery": 5}, "on_delivery is called with (metadata, error), and 5 cannot be called"),
        ({"topic": None}, "None is not the name of a topic"),
        ({"topic": b"t"}, "b't' is not the name of a topic"),
    ],
)
def test_other_types_are_refused_with_a_clear_word(broker: coterie.Broker, send: dict[str, Any], problem: str) -> None:
    with producer(broker) as ours, pytest.raises(TypeError) as caught:
        ours.send(**{"topic": "refused", **send})
    assert problem in str(caught.value)


def test_half_a_character_is_refused_wherever_its_record_would_go(broker: coterie.Broker, topic: str) -> None:
    """Also behind a record without a key, where values are appended quickly."""
    with producer(broker, linger_ms=50) as ours:
        for value in ("first", "second"):
            ours.send(topic, value)
            with pytest.raises(IllegalArgumentError, match=r"the value of a record is .* half of a character"):
                ours.send(topic, "\ud800")


def test_a_topic_with_too_long_a_name_is_refused_at_once(broker: coterie.Broker) -> None:
    with producer(broker) as ours, pytest.raises(KafkaError, match=r"of 40000 characters: a topic's name is 1 to 249"):
        ours.send("t" * 40_000, "v")


def test_a_partition_that_is_not_there_is_refused_at_once(broker: coterie.Broker, topic: str) -> None:
    with producer(broker) as ours, pytest.raises(KafkaError, match="it has 4 partitions, numbered from 0") as caught:
        ours.send(topic, "v", partition=4)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_is_not_there_is_an_error_after_max_block_ms() -> None:
    with (
        coterie.Broker(settings={"auto.create.topics.enable": False}) as broker,
        producer(broker, max_block_ms=50) as ours,
        pytest.raises(KafkaError, match=r"sending to topic 'nowhere'.*gave up after 0.05 s"),
    ):
        ours.send("nowhere", "v")


# --- the promise ------------------------------------------------------------------------------------------------------


def test_a_delivery_is_a_future_in_every_respect(broker: coterie.Broker, topic: str) -> None:
    seen: list[int] = []
    with producer(broker) as ours:
        deliveries = [ours.send(topic, str(number), partition=0) for number in range(100)]
        assert not deliveries[0].cancel(), "what was handed over cannot be taken back"
        deliveries[7].add_done_callback(lambda done: seen.append(done.result().offset))
        done, not_done = wait(deliveries, timeout=60, return_when=ALL_COMPLETED)
        assert len(done) == 100 and not not_done
        assert deliveries[7].exception() is None
        assert all(each.done() for each in deliveries)
    assert [each.result().offset for each in deliveries] == list(range(100))
    assert seen == [7]


def test_on_delivery_is_told_of_each_record_and_a_broken_one_harms_nobody(broker: coterie.Broker, topic: str) -> None:
    told: list[tuple[object, object]] = []
    trouble: list[str] = []

    def broken(_metadata: object, _error: object) -> None:
        raise ZeroDivisionError("ours")

    with producer(broker) as ours:
        ours._loop.call_soon_threadsafe(
            ours._loop.set_exception_handler, lambda _loop, context: trouble.append(str(context["exception"]))
        )
        ours.send(topic, "1", partition=0, on_delivery=broken)
        ours.send(topic, "2", partition=0, on_delivery=lambda *said: told.append(said))
        ours.flush(10)
        ours._loop.call_soon_threadsafe(ours._loop.set_exception_handler, None)
    assert [(said[0].offset, said[1]) for said in told if isinstance(said[0], RecordMetadata)] == [(1, None)]
    assert trouble == ["ours"]


def test_waiting_in_on_delivery_for_another_record_is_refused_in_words(broker: coterie.Broker, topic: str) -> None:
    """It is the thread that would deliver it, and it serves every client of the process."""
    told: list[str] = []
    with producer(broker, linger_ms=60_000) as ours:

        def waits(_metadata: object, _error: object) -> None:
            try:
                ours.send(topic, "2", partition=0).result(60)
            except CoterieError as error:
                told.append(str(error))

        ours.send(topic, "1", partition=0, on_delivery=waits)
        ours.flush(10)
    assert len(told) == 1 and "it would wait for itself" in told[0]


def test_one_bad_record_of_a_batch_is_named(broker: coterie.Broker, topic: str) -> None:
    """A compacted topic wants keys; our broker blames the batch, Kafka the record (KIP-467)."""
    with coterie.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 1, configs={"cleanup.policy": "compact"})])
    with producer(broker) as ours:
        bad = ours.send(topic, "no key", partition=0)
        with pytest.raises(KafkaError, match="a compacted topic needs one in each"):
            bad.result(60)
        assert ours.send(topic, "v", key="k", partition=0).result(60).offset == 0


# --- many -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", list(Compression), ids=lambda compression: compression.name)
def test_batches_are_compressed(broker: coterie.Broker, topic: str, compression: Compression) -> None:
    with producer(broker, compression_type=compression.name.lower(), linger_ms=10_000) as ours:
        for number in range(100):
            ours.send(topic, f"{number:03}" + "a" * 97, partition=0)
        ours.flush(10)
    with Peer(broker.bootstrap_servers) as peer:
        data = peer.fetch(topic, 0).records or b""
    found = [header for _, header in batches(data)]
    assert {header.compression for header in found} == {compression}
    assert (len(data) < 5_000) == (compression is not Compression.NONE)
    assert values(broker, topic) == [f"{n:03}".encode() + b"a" * 97 for n in range(100)]


def test_several_threads_send_at_once_and_each_keeps_its_order(broker: coterie.Broker, topic: str) -> None:
    def send(ours: Producer, name: str) -> None:
        for number in range(2_000):
            ours.send(topic, f"{name} {number}", partition=0)

    with producer(broker, batch_size=2_000, buffer_memory=60_000) as ours:
        threads = [threading.Thread(target=send, args=(ours, name)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = [(value or b"").decode().split() for value in values(broker, topic)]
    for name in "abc":
        assert [int(number) for who, number in found if who == name] == list(range(2_000))


def test_records_without_a_key_are_spread_over_the_partitions(broker: coterie.Broker, topic: str) -> None:
    """KIP-794: every partition gets about as many bytes as any other."""
    with producer(broker, batch_size=500) as ours:
        deliveries = [ours.send(topic, "x" * 100) for _ in range(4_000)]
    spread = Counter(each.result().partition for each in deliveries)
    assert len(spread) == 4 and min(spread.values()) > 400


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_each_kind_of_acks(broker: coterie.Broker, topic: str, acks: str) -> None:
    with producer(broker, acks=acks) as ours:
        delivery = ours.send(topic, "v", partition=0)
        assert delivery.result(60).offset == (-1 if acks == "0" else 0)
    with producer(broker) as ours:
        ours.send(topic, "later", partition=0)  # our own connection: what went before on the other may come after it
    assert sorted(value or b"" for value in values(broker, topic)) == [b"later", b"v"]


# --- trouble ----------------------------------------------------------------------------------------------------------


def test_an_answer_that_is_lost_doubles_nothing() -> None:
    """KIP-98: every third answer to a Produce is lost after the broker has written; each record is there once."""
    with BrokerBehindProxy(cut_every=3) as broker:
        with producer(broker, batch_size=300, linger_ms=1) as ours:
            deliveries = [ours.send("t", str(number), partition=0) for number in range(300)]
        assert [each.result().offset for each in deliveries] == list(range(300))
        assert broker.cuts > 1
        broker.cut_every = 0
        assert values(broker, "t") == [str(number).encode() for number in range(300)]


def test_a_broker_that_is_restarted_interrupts_nothing(tmp_path: Path) -> None:
    broker = coterie.Broker(tmp_path).start()
    with producer(broker, batch_size=300) as ours:
        deliveries = [ours.send("t", str(number), partition=0) for number in range(200)]
        deliveries[0].result(60)
        broker.stop()
        deliveries += [ours.send("t", str(number), partition=0) for number in range(200, 400)]
        broker.start()
        deliveries += [ours.send("t", str(number), partition=0) for number in range(400, 600)]
        assert [each.result(60).offset for each in deliveries] == list(range(600))
    assert values(broker, "t") == [str(number).encode() for number in range(600)]
    broker.stop()


def test_a_topic_that_is_deleted_and_made_again_is_found_again(broker: coterie.Broker, topic: str) -> None:
    """Produce names topics by their id (KIP-516); the new one has another."""
    with producer(broker) as ours, Peer(broker.bootstrap_servers) as peer:
        peer.create(topic)
        assert ours.send(topic, "old", partition=0).result(60).offset == 0
        peer.delete(topic)
        peer.create(topic)
        assert ours.send(topic, "new", partition=0).result(60).offset == 0
    assert values(broker, topic) == [b"new"]


def test_without_room_send_waits_and_then_says_what_is_full() -> None:
    broker = coterie.Broker().start()
    with producer(
        broker, buffer_memory=10_000, max_block_ms=1_000, delivery_timeout_ms=3_000, request_timeout_ms=500
    ) as ours:
        ours.send("t", "first", partition=0).result(60)
        broker.stop()
        for _ in range(10_000 // (100 + RECORD_OVERHEAD)):
            ours.send("t", "x" * 100, partition=0)
        with pytest.raises(KafkaError, match=r"no room for the record within max\.block\.ms=1000.*memory is 10000"):
            ours.send("t", "x" * 100, partition=0)


def test_a_callback_that_sends_does_not_wait_for_room_in_the_thread_that_makes_it() -> None:
    """It would stop every client of the process, heartbeats too, until max.block.ms is over."""
    broker = coterie.Broker().start()
    with producer(broker, buffer_memory=10_000, delivery_timeout_ms=5_000, request_timeout_ms=500) as ours:
        ours.send("t", "first", partition=0).result(60)
        broker.stop()
        filling = ours.send("t", "x" * 9_900, partition=0)

        async def callback() -> None:
            ours.send("t", "x" * 100, partition=0)

        with pytest.raises(KafkaError, match="no room for the record"):
            ours._background.run(callback())
        assert not filling.done()


def test_close_gives_up_when_its_time_is_over_and_says_so() -> None:
    broker = coterie.Broker().start()
    ours = producer(broker)
    ours.send("t", "first", partition=0).result(60)
    broker.stop()
    lost = [ours.send("t", "x", partition=0) for _ in range(3)]
    with pytest.raises(KafkaError, match=r"3 records were not delivered within the 0\.1 s"):
        ours.close(0.1)
    for each in lost:
        with pytest.raises(KafkaError, match="closed before the record could be delivered"):
            each.result(0)
    ours.close()
    with pytest.raises(CoterieError, match="this client is closed"):
        ours.send("t", "x")


def test_what_is_not_delivered_in_time_fails_with_the_reason() -> None:
    broker = coterie.Broker().start()
    with producer(broker, delivery_timeout_ms=300, request_timeout_ms=200, linger_ms=1) as ours:
        ours.send("t", "first", partition=0).result(60)
        broker.stop()
        with pytest.raises(KafkaError, match=r"not delivered within delivery\.timeout\.ms=300.*connection refused"):
            ours.send("t", "x", partition=0).result(60)


def in_a_process(source: str, broker: coterie.Broker) -> subprocess.CompletedProcess[str]:
    code = textwrap.dedent(source).replace("BOOTSTRAP", repr(broker.bootstrap_servers))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_an_exit_without_close_warns(broker: coterie.Broker, topic: str) -> None:
    done = in_a_process(
        """
        import coterie
        producer = coterie.Producer(bootstrap_servers=BOOTSTRAP, linger_ms=60_000)
        for _ in range(5):
            producer.send("exits", "x")
        """,
        broker,
    )
    assert "a producer was never closed, and 5 records may not have been delivered" in done.stderr


def test_an_interrupt_delivers_what_is_left(broker: coterie.Broker, topic: str) -> None:
    """Ctrl-C leaves the `with`, and leaving it delivers."""
    done = in_a_process(
        f"""
        import coterie, os, signal
        with coterie.Producer(bootstrap_servers=BOOTSTRAP, linger_ms=60_000) as producer:
            for number in range(1_000):
                producer.send({topic!r}, str(number), partition=0)
            os.kill(os.getpid(), signal.SIGINT)
        """,
        broker,
    )
    assert "KeyboardInterrupt" in done.stderr
    assert values(broker, topic) == [str(number).encode() for number in range(1_000)]


def test_after_a_fork_the_child_is_told_to_make_its_own(broker: coterie.Broker) -> None:
    done = in_a_process(
        """
        import coterie, os, sys, warnings
        warnings.simplefilter("ignore")
        with coterie.Producer(bootstrap_servers=BOOTSTRAP) as producer:
            producer.send("forks", "x").result(60)
            child = os.fork()
            if child == 0:
                try:
                    producer.send("forks", "y")
                except coterie.errors.CoterieError as error:
                    print(error, flush=True)
                os._exit(0)
            os.waitpid(child, 0)
        """,
        broker,
    )
    assert "made before the process forked" in done.stdout, done.stderr


# --- asyncio ----------------------------------------------------------------------------------------------------------


def test_the_asynchronous_one_delivers(run: Run, broker: coterie.Broker, topic: str) -> None:
    name = f"{topic}-{id(run)}"

    async def story() -> None:
        async with AsyncProducer(
            {**QUICK, "bootstrap.servers": broker.bootstrap_servers}, buffer_memory=60_000
        ) as ours:
            first = await ours.send_and_wait(name, "0", partition=0)
            assert first.offset == 0
            deliveries = [await ours.send(name, str(number), partition=0) for number in range(1, 3_000)]
            assert (await deliveries[-1]).offset == 2_999
            assert deliveries[-1].done() and deliveries[0].result().offset == 1
            assert [each.offset for each in await asyncio.gather(*deliveries[:5])] == [1, 2, 3, 4, 5]
            late = await ours.send(name, "late", partition=0)
            with pytest.raises(asyncio.InvalidStateError):
                late.result()
            await ours.flush()
            assert late.result().offset == 3_000

    run(story())
    assert values(broker, name) == [*(str(number).encode() for number in range(3_000)), b"late"]


def test_producers_that_were_never_used_are_closed(run: Run, broker: coterie.Broker) -> None:
    async def story() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as ours:
            await ours.flush()
        with pytest.raises(CoterieError, match="this client is closed"):
            await ours.send("t", "x")

    run(story())
    with producer(broker):
        pass


def test_the_asynchronous_one_waits_for_room_and_then_says_what_is_full(run: Run) -> None:
    async def story() -> None:
        broker = await asyncio.to_thread(coterie.Broker().start)
        ours = AsyncProducer(
            {**QUICK, "bootstrap.servers": broker.bootstrap_servers}, buffer_memory=10_000, max_block_ms=1_000
        )
        await ours.send_and_wait("t", "first", partition=0)
        await asyncio.to_thread(broker.stop)
        for _ in range(10_000 // (100 + RECORD_OVERHEAD)):
            await ours.send("t", "x" * 100, partition=0)
        with pytest.raises(KafkaError, match=r"no room for the record within max\.block\.ms=1000"):
            await ours.send("t", "x" * 100, partition=0)
        with pytest.raises(KafkaError, match="records were not delivered"):
            await ours.close(0.05)

    run(story())
