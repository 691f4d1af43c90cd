"""Transactional producers and read_committed consumers, on Coterie's broker and on Apache Kafka 4.3.1 itself.

Each test runs on both ways of the producer: the one of transaction.version 2, and the older one, which a broker serves
at any level (V2). Readers read up to a plain record that is written last, so that nothing is waited for in vain.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import coterie
from apache_kafka import ApacheKafka, needs_apache_kafka
from broker.peer import Peer
from broker.speaker import produce_request
from client.consumers import QUICK, until
from client.transacting import (
    DYING,
    WAIT_S,
    committed,
    fail,
    interleaved,
    java_reads,
    librdkafka_reads,
    producer,
    run,
    seen,
    stable_end,
)
from coterie import (
    Admin,
    AlterConfigOp,
    AsyncProducer,
    ConfigChange,
    ConfigResource,
    Consumer,
    GroupMetadata,
    NewTopic,
    Producer,
    ResourceType,
    TopicPartition,
)
from coterie.client.network.connection import BrokerConnection
from coterie.errors import (
    ErrorCode,
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
    ProducerFencedError,
    RequestTimedOutError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionFatalError,
)
from coterie.protocol.apis import produce
from coterie.protocol.records import BatchRecord, build_batch

pytestmark = pytest.mark.real_time

SHORT_TIMEOUT_MS = 1_000
ROOT = Path(__file__).parents[2]
_SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}

BROKERS = (
    "coterie",
    pytest.param("apache kafka", marks=needs_apache_kafka),
)


@pytest.fixture(scope="module", params=BROKERS)
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "coterie":
        with coterie.Broker(settings={**_SETTINGS, "group.initial.rebalance.delay.ms": 0}) as broker:
            yield broker.bootstrap_servers
    else:
        with ApacheKafka(_SETTINGS) as kafka:
            yield kafka.bootstrap


@pytest.fixture(params=["implicit", "explicit"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which way the producer goes: what it hears of the feature decides."""
    if request.param == "explicit":
        monkeypatch.setattr(BrokerConnection, "feature", lambda _self, _name: 0)
    return str(request.param)


@pytest.fixture
def topic(bootstrap: str, name: str) -> str:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2, 1)])
    return name


# --- commit and abort -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("way")
def test_a_transaction_is_seen_as_a_whole_or_not_at_all(bootstrap: str, topic: str) -> None:
    with producer(bootstrap, topic) as ours:
        with ours.transaction():
            for number in range(6):
                ours.send(topic, f"a{number}", partition=number % 2)
            ours.flush()
            assert stable_end(bootstrap, topic) == 0
        with pytest.raises(LookupError), ours.transaction():  # noqa: PT012  the block is what is tested
            ours.send(topic, "never", partition=0).result(WAIT_S)
            fail()
        with ours.transaction():
            pass
        for number in range(3):
            with ours.transaction():
                ours.send(topic, f"b{number}", partition=0)
    assert seen(bootstrap, topic) == ["a0", "a2", "a4", "b0", "b1", "b2", "a1", "a3", "a5"]
    assert "never" in seen(bootstrap, topic, "read_uncommitted")


@pytest.mark.usefixtures("way")
def test_an_abort_drops_what_was_not_sent(bootstrap: str, topic: str) -> None:
    with producer(bootstrap, topic, **{"linger.ms": 60_000, "delivery.timeout.ms": 120_000}) as ours:
        ours.init_transactions()
        ours.begin_transaction()
        delivery = ours.send(topic, "never", partition=0)
        ours.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            delivery.result(WAIT_S)
        ours.begin_transaction()
        ours.send(topic, "one", partition=0)
        ours.commit_transaction()
    assert seen(bootstrap, topic, "read_uncommitted") == ["one"]


@pytest.mark.usefixtures("way")
def test_a_record_that_fails_makes_the_transaction_fail_and_not_the_next(bootstrap: str, topic: str) -> None:
    """§16: the broker refuses one record for its size, so that the commit is refused without a request (C4)."""
    with producer(bootstrap, topic, **{"max.request.size": 3_000_000}) as ours:
        ours.init_transactions()
        ours.begin_transaction()
        ours.send(topic, "never", partition=0).result(WAIT_S)
        with pytest.raises(TransactionAbortableError, match="Abort the transaction"):
            ours.send(topic, "x" * 2_000_000, partition=0).result(WAIT_S)
        with pytest.raises(TransactionAbortableError):
            ours.send(topic, "never", partition=0)
        with pytest.raises(TransactionAbortableError) as caught:
            ours.commit_transaction()
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        ours.abort_transaction()
        with ours.transaction():
            ours.send(topic, "one", partition=0)
            ours.send(topic, "two", partition=0)
    assert seen(bootstrap, topic) == ["one", "two"]


def test_a_record_that_cannot_be_taken_makes_the_transaction_fail(bootstrap: str, topic: str) -> None:
    with producer(bootstrap, topic) as ours:
        with pytest.raises(KafkaError, match=r"max\.request\.size"), ours.transaction():  # noqa: PT012  the same
            ours.send(topic, "never", partition=0)
            ours.send(topic, "x" * 2_000_000)
        ours.begin_transaction()
        ours.send(topic, "never", partition=0)
        with pytest.raises(KafkaError, match="it has 2 partitions"):
            ours.send(topic, "never", partition=2)
        with pytest.raises(TransactionAbortableError, match="it has 2 partitions"):
            ours.commit_transaction()
        ours.abort_transaction()
    assert seen(bootstrap, topic) == []


def test_calls_in_the_wrong_order_say_what_to_do(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as plain, pytest.raises(IllegalStateError, match=r"a transactional\.id"):
        plain.begin_transaction()
    ours = producer(bootstrap, topic)
    with pytest.raises(IllegalStateError, match=r"begin_transaction\(\).*call init_transactions\(\) first"):
        ours.begin_transaction()
    ours.init_transactions()
    with pytest.raises(IllegalStateError, match=r"send\(\) is not possible.*call begin_transaction\(\) first"):
        ours.send(topic, "never")
    with pytest.raises(IllegalArgumentError, match=r"give consumer\.group_metadata\(\)"):
        ours.send_offsets({}, "group")  # type: ignore[arg-type]
    ours.begin_transaction()
    with pytest.raises(IllegalStateError, match="commit or abort it first"), ours.transaction():
        pass
    ours.send(topic, "never", partition=0).result(WAIT_S)
    ours.close()  # which aborts
    with pytest.raises(IllegalStateError, match="closed"):
        ours.commit_transaction()
    assert seen(bootstrap, topic) == []


# --- the end of a producer --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("way")
def test_a_second_producer_fences_the_first(bootstrap: str, topic: str) -> None:
    with producer(bootstrap, topic) as first, producer(bootstrap, topic) as second:
        first.init_transactions()
        first.begin_transaction()
        first.send(topic, "never", partition=0).result(WAIT_S)
        second.init_transactions()

        def go_on() -> None:
            try:
                first.send(topic, "never", partition=0)
                first.commit_transaction()
            except TransactionAbortableError:  # it may have timed out: the abort tells (C4)
                first.abort_transaction()

        with pytest.raises(ProducerFencedError, match="Close this producer"):
            go_on()
        with pytest.raises(ProducerFencedError):
            first.begin_transaction()
        with second.transaction():
            second.send(topic, "one", partition=0)
    assert seen(bootstrap, topic) == ["one"]


def test_the_block_of_a_fenced_producer_raises_that_it_is_fenced(bootstrap: str, topic: str) -> None:
    with producer(bootstrap, topic) as first, producer(bootstrap, topic) as second:
        with pytest.raises(ProducerFencedError), first.transaction():  # noqa: PT012  the block is what is tested
            first.send(topic, "never", partition=0).result(WAIT_S)
            second.init_transactions()
            first.send(topic, "never", partition=0)
        assert seen(bootstrap, topic) == []


def test_a_transaction_that_timed_out_is_aborted_and_the_producer_goes_on(bootstrap: str, topic: str) -> None:
    """T2, C4."""
    with producer(bootstrap, topic, **{"transaction.timeout.ms": SHORT_TIMEOUT_MS}) as ours:
        ours.init_transactions()
        ours.begin_transaction()
        ours.send(topic, "never", partition=0).result(WAIT_S)
        until(lambda: stable_end(bootstrap, topic) == 2)
        with pytest.raises(TransactionAbortableError) as caught:
            ours.send(topic, "never", partition=0).result(WAIT_S)
        assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        ours.abort_transaction()
        with ours.transaction():
            ours.send(topic, "one", partition=0)
    with producer(bootstrap, topic, **{"transaction.timeout.ms": SHORT_TIMEOUT_MS}) as ours:
        ours.init_transactions()
        ours.begin_transaction()
        ours.send(topic, "never", partition=1).result(WAIT_S)
        until(lambda: stable_end(bootstrap, topic, 1) == 2)
        with pytest.raises(TransactionFatalError, match=r"transaction\.timeout\.ms may have passed"):
            ours.commit_transaction()
    assert seen(bootstrap, topic) == ["one"]


def test_a_killed_producer_leaves_nothing_half_done(bootstrap: str, topic: str, tmp_path: Path) -> None:
    """Kill -9 in the middle: the next producer of that name aborts what was open (I5)."""
    script = tmp_path / "dying.py"
    script.write_text(DYING)
    with subprocess.Popen([sys.executable, script, bootstrap, topic], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        process.kill()
    assert stable_end(bootstrap, topic) == 2  # the record, and the marker
    with producer(bootstrap, topic) as ours, ours.transaction():
        ours.send(topic, "after", partition=0)
    assert seen(bootstrap, topic) == ["before", "after"]


# --- offsets ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_are_committed_with_the_transaction_and_fenced_by_the_generation(
    bootstrap: str, topic: str, protocol: str
) -> None:
    """O2, O3: the metadata of a generation that is over is refused, and the transaction can only be aborted."""
    where = TopicPartition(topic, 0)
    with (
        Consumer(bootstrap_servers=bootstrap, group_id=topic, group_protocol=protocol) as consumer,
        producer(bootstrap, topic) as ours,
    ):
        consumer.subscribe([topic])
        until(consumer.assignment, consumer)
        now = consumer.group_metadata()
        assert now.generation_id >= 1 and now.member_id
        with ours.transaction():
            ours.send(topic, "one", partition=0)
            ours.send_offsets({where: 5}, now)
        until(lambda: committed(consumer, where) == 5)
        ours.begin_transaction()
        ours.send(topic, "never", partition=0)
        with pytest.raises(TransactionAbortableError) as caught:
            ours.send_offsets({where: 6}, now._replace(generation_id=now.generation_id + 1))
        assert caught.value.code is ErrorCode.ILLEGAL_GENERATION
        with pytest.raises(TransactionAbortableError):
            ours.commit_transaction()
        ours.abort_transaction()
        with pytest.raises(TransactionAbortableError) as caught, ours.transaction():
            ours.send_offsets({where: 7}, now._replace(member_id="another"))
        assert caught.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        with pytest.raises(ZeroDivisionError), ours.transaction():
            ours.send_offsets({where: 1 // 0}, now)
        with ours.transaction():
            ours.send_offsets({where: 8}, GroupMetadata(f"{topic}-simple", -1, "", None))
        assert committed(consumer, where) == 5
    assert seen(bootstrap, topic) == ["one"]


def test_records_are_processed_once_although_transactions_are_aborted(bootstrap: str, name: str) -> None:
    """Read, process, write: every third transaction fails, and is read again from the committed offsets."""
    source, target = f"{name}-in", f"{name}-out"
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(source, 2, 1), NewTopic(target, 2, 1)])
    with Producer(bootstrap_servers=bootstrap) as plain:
        for number in range(60):
            plain.send(source, str(number), partition=number % 2)
    attempts = done = 0

    def process_some() -> bool:
        nonlocal attempts, done
        records = consumer.poll(1)
        attempts += bool(records)
        try:
            with ours.transaction():
                for record in records:
                    ours.send(target, record.value, partition=record.partition)
                ours.send_offsets(records.next_offsets(), consumer.group_metadata())
                if attempts % 3 == 0:
                    fail()
        except LookupError:
            consumer.seek_to_committed()
        else:
            done += len(records)
        return done >= 60

    with (
        Consumer({**QUICK, "bootstrap.servers": bootstrap, "group.id": name, "max.poll.records": 7}) as consumer,
        producer(bootstrap, name) as ours,
    ):
        consumer.subscribe([source])
        until(process_some)
    assert attempts > 8
    expected = [str(number) for number in (*range(0, 60, 2), *range(1, 60, 2))]
    assert seen(bootstrap, target) == expected
    assert len(seen(bootstrap, target, "read_uncommitted")) > 60


def test_the_example_bills_each_order_once_although_it_is_interrupted(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("orders", 2, 1), NewTopic("bills", 2, 1)])
    command = [sys.executable, "examples/read_process_write.py", bootstrap, "billing-1"]
    for part in range(2):
        before = [stable_end(bootstrap, "bills", number) for number in range(2)]
        with Producer(bootstrap_servers=bootstrap) as plain:
            for number in range(20):
                plain.send("orders", f"{part}.{number}", partition=number % 2)
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as example:
            try:
                until(lambda: [stable_end(bootstrap, "bills", number) for number in range(2)] != before)  # noqa: B023
                if part:
                    until(lambda: len(seen(bootstrap, "bills")) >= 40)
                example.send_signal(signal.SIGINT)
                example.wait(WAIT_S)
            finally:
                example.kill()
    assert sorted(seen(bootstrap, "bills")) == sorted(f"bill for {part}.{n}" for part in range(2) for n in range(20))


# --- asyncio ----------------------------------------------------------------------------------------------------------


def test_an_asynchronous_producer_has_the_same(bootstrap: str, topic: str) -> None:
    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=bootstrap, transactional_id=topic) as ours:
            async with ours.transaction():
                await ours.send(topic, "one", partition=0)
                await ours.send_offsets({(topic, 0): 1}, GroupMetadata(topic, -1, "", None))
            with pytest.raises(ZeroDivisionError):
                async with ours.transaction():
                    await ours.send_and_wait(topic, f"{1 // 0}")
            await ours.begin_transaction()
            await ours.send_and_wait(topic, "never", partition=0)
            await ours.abort_transaction()
            with pytest.raises(KafkaError, match="it has 2 partitions"):
                async with ours.transaction():
                    await ours.send(topic, "never", partition=2)
            await ours.begin_transaction()
            await ours.send(topic, "two", partition=0)
            with pytest.raises(RequestTimedOutError, match="call it again to wait for its end"):
                await ours.commit_transaction(timeout=0)
            with pytest.raises(IllegalStateError, match=r"commit_transaction\(\) has not ended"):
                await ours.abort_transaction()
            await ours.commit_transaction()

    asyncio.run(work())
    assert seen(bootstrap, topic) == ["one", "two"]


# --- read_committed ---------------------------------------------------------------------------------------------------


def test_two_transactions_on_one_partition_at_a_time(bootstrap: str, topic: str) -> None:
    """A reader sees the records of each in the order of the log, when the earlier one has ended too (L3)."""
    with producer(bootstrap, f"{topic}-1") as first, producer(bootstrap, f"{topic}-2") as second:
        for ours in (first, second):
            ours.init_transactions()
            ours.begin_transaction()
        for number in range(4):
            first.send(topic, f"a{number}", partition=0).result(WAIT_S)
            second.send(topic, f"b{number}", partition=0).result(WAIT_S)
        second.commit_transaction()
        assert stable_end(bootstrap, topic) == 0
        first.commit_transaction()
    assert seen(bootstrap, topic) == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"]


def test_a_reader_sees_what_other_readers_see(bootstrap: str, topic: str) -> None:
    """C5, L4, L5: interleaved transactions, many of them aborted; Java and librdkafka are the judges."""
    log = interleaved(bootstrap, topic)
    expected = [(offset, value) for offset, value in sorted(log.items()) if value is not None]
    assert len(expected) > 20 and len(log) - len(expected) > 20
    assert java_reads(bootstrap, topic, len(expected)) == [value for _, value in expected]
    assert librdkafka_reads(bootstrap, topic, expected[-1][0]) == expected
    end = expected[-1][0] + 1
    for small in ({}, {"max.partition.fetch.bytes": 1}):
        with Consumer({**QUICK, "bootstrap.servers": bootstrap, "isolation.level": "read_committed", **small}) as ours:
            ours.assign([(topic, 0)])
            for start in (0, *range(1, end, 7)):  # in the middle of transactions, aborted ones too
                ours.seek((topic, 0), start)
                found: list[tuple[int, str]] = []

                def has_all() -> bool:
                    found.extend((one.offset, (one.value or b"").decode()) for one in ours.poll(1))  # noqa: B023
                    return bool(found) and found[-1][0] == end - 1  # noqa: B023

                until(has_all)
                assert found == [one for one in expected if one[0] >= start]


# --- other producers' transactions ------------------------------------------------------------------------------------


def test_an_open_transaction_is_listed_described_and_aborted(bootstrap: str, topic: str) -> None:
    with producer(bootstrap, topic) as ours:
        ours.init_transactions()
        ours.begin_transaction()
        ours.send(topic, "never", partition=1).result(WAIT_S)
        code, rows, _ = run(bootstrap, "list", "--state", "Ongoing", "--transactional-id-pattern", f"{topic}.*")
        assert code == 0 and [row["transactional_id"] for row in rows] == [topic]
        producer_id = rows[0]["producer_id"]
        code, rows, _ = run(bootstrap, "describe", topic)
        assert code == 0 and len(rows) == 1
        assert (rows[0]["state"], rows[0]["partitions"], rows[0]["timeout_ms"]) == ("Ongoing", f"{topic}-1", 60_000)
        assert (rows[0]["producer_id"], rows[0]["producer_epoch"]) == (producer_id, 0)
        assert rows[0]["duration_ms"] is not None
        with Admin(bootstrap_servers=bootstrap) as admin:
            (found,) = coterie.checked(admin.describe_producers([(topic, 1)]))[TopicPartition(topic, 1)]
            assert (found.producer_id, found.last_sequence, found.transaction_start_offset) == (producer_id, 0, 0)
        code, rows, said = run(bootstrap, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
        assert (code, rows) == (0, []) and "no transaction hangs" in said, "its coordinator has it"
        code, rows, said = run(bootstrap, "abort", topic, "no-such-id")
        assert code == 1 and 'transactional id "no-such-id": there is no such transactional id' in said
        assert [row["result"] for row in rows] == ["aborted"]
        code, rows, _ = run(bootstrap, "list", "--transactional-id-pattern", "no-such-id")
        assert (code, rows) == (0, []), "it was not created"
        with pytest.raises(KafkaError):
            ours.commit_transaction()
    code, rows, said = run(bootstrap, "list", "--state", "Sleeping")
    assert code == 1 and "knows no such state: Sleeping" in said
    assert seen(bootstrap, topic) == []


def test_a_hanging_transaction_is_found_and_aborted(bootstrap: str, topic: str) -> None:
    """Records of a transaction that no coordinator knows: a broker takes them only if it does not verify them (P10)."""
    everywhere = ConfigResource(ResourceType.BROKER, "")
    verifies = "transaction.partition.verification.enable"
    record = BatchRecord(None, b"never", 0)
    batch = build_batch([record], producer_id=5_000, producer_epoch=3, base_sequence=0, is_transactional=True)
    request = produce_request(topic, records=batch, transactional_id=topic)
    with Admin(bootstrap_servers=bootstrap) as admin, Peer(bootstrap) as peer:
        changed = admin.alter_configs({everywhere: [ConfigChange(verifies, "false")]})
        if changed[everywhere] is not None:
            pytest.skip(f"this broker always verifies: {changed[everywhere]}")
        until(lambda: not peer.ask(produce, request, 11).responses[0].partitions[0].error)
        admin.alter_configs({everywhere: [ConfigChange(verifies, None, AlterConfigOp.DELETE)]})
    code, rows, _ = run(bootstrap, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
    assert code == 0 and len(rows) == 1
    assert [rows[0][name] for name in ("topic", "partition", "producer_id", "producer_epoch", "start_offset")] == [
        *(topic, 0, 5_000, 3, 0)
    ]
    code, _, said = run(bootstrap, "abort", "--topic", f"{topic}:0", "--start-offset", "7")
    assert code == 1 and "begins at offset 7: open ones begin at 0" in said
    code, rows, said = run(bootstrap, "abort", "--topic", f"{topic}:0", "--start-offset", "0")
    assert code == 0 and len(rows) == 1, said
    assert seen(bootstrap, topic) == []
