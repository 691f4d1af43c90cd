"""A transaction that several processes write to: rows are encoded in one place, and sent from another."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import coterie
from client.transacting import seen
from coterie import Admin, NewTopic, Producer
from coterie.client.producer.record_appender import partition_for_key
from coterie.client.producer.transaction_worker import BatchEncoder, TransactionWorker
from coterie.errors import IllegalArgumentError, MalformedError
from coterie.protocol.batch import parse_header
from coterie.protocol.records import BatchRecord, EncodedBatch, build_batch, records
from coterie.settings.producer_settings import ProducerSettings

pytestmark = pytest.mark.real_time

ROWS = pa.array([f"{number:06d}" for number in range(5_000)])


@pytest.fixture(scope="module")
def broker() -> Iterator[coterie.Broker]:
    with coterie.Broker() as running:
        yield running


def settings(broker: coterie.Broker, name: str, **more: object) -> ProducerSettings:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 2)])
    base = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name}
    return ProducerSettings.of_arguments({**base, **more}, {})


def encoded(encoder: BatchEncoder, **columns: pa.Array) -> list[tuple[int, bytearray]]:
    return [*encoder.add(ROWS, 1_700_000_000_000, **columns), *encoder.rest()]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_batches_of_two_encoders_are_sent_by_the_writers_of_their_partitions(
    broker: coterie.Broker, codec: str
) -> None:
    """Each partition has one writer, and each writer its own connection; the driver commits."""
    name = f"shared-{codec}"
    how = settings(broker, name, **{"compression.type": codec})
    batches = encoded(BatchEncoder(how, 2), keys=ROWS) + encoded(BatchEncoder(how, 2, first=1))
    with Producer(how) as driver:
        driver.init_transactions()
        for is_committed in (False, True):
            driver.begin_transaction()
            identity = driver.share_transaction()
            for partition in range(2):
                with TransactionWorker(how, identity) as worker:
                    worker.send_batches(name, [each for each in batches if each[0] == partition])
                    worker.deliver()
            if is_committed:
                driver.commit_transaction()
            else:
                driver.abort_transaction()
    assert sorted(seen(broker.bootstrap_servers, name)) == sorted(ROWS.to_pylist() * 2)


def test_rows_go_where_their_partition_or_their_key_says_and_else_to_one_batch_after_the_other(
    broker: coterie.Broker,
) -> None:
    how = settings(broker, "placed")
    for partition, data in encoded(BatchEncoder(how, 2), keys=ROWS):
        for key, *_ in records(data, parse_header(data)):
            assert key is not None and partition_for_key(key, 2) == partition
    given = pa.array([1] * len(ROWS), pa.int32())
    assert {partition for partition, _ in encoded(BatchEncoder(how, 2), keys=ROWS, partitions=given)} == {1}
    drawn = [partition for partition, _ in encoded(BatchEncoder(how, 2, first=1))]
    assert drawn == [(1 + at) % 2 for at in range(len(drawn))] and len(drawn) > 3
    with pytest.raises(IllegalArgumentError, match="a row is for partition 1, and the topic has 1 partitions"):
        encoded(BatchEncoder(how, 1), partitions=given)


def test_a_batch_is_transactional_from_the_beginning() -> None:
    plain = EncodedBatch(build_batch([BatchRecord(None, b"x", 0)]))
    with pytest.raises(MalformedError, match="transactional or not"):
        plain.finish(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
