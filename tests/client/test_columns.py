"""Rows of Arrow columns as records: the rules of every producer hold for their batches too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pytest

import coterie
from broker.peer import Peer
from client.cutting_proxy import BrokerBehindProxy
from coterie.client.admin import Admin, NewTopic
from coterie.client.producer.arrow_columns import ColumnProducer
from coterie.errors import CoterieError, ErrorCode, KafkaError

pytestmark = pytest.mark.real_time

QUICK = {"retry.backoff.ms": 1, "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 5, "retry.backoff.max.ms": 5}
ROWS = pa.array([b"%06d" % number for number in range(5_000)])


@pytest.fixture(scope="module")
def broker() -> Iterator[coterie.Broker]:
    with coterie.Broker(settings={"num.partitions": 1}) as running:
        yield running


def producer(broker: coterie.Broker, **settings: object) -> ColumnProducer:
    return ColumnProducer({**QUICK, "bootstrap.servers": broker.bootstrap_servers, **settings})


def values(broker: coterie.Broker, topic: str) -> list[bytes | None]:
    with Peer(broker.bootstrap_servers) as peer:
        return [value for _, value in peer.read_all(topic, 0)]


def test_an_answer_that_is_lost_doubles_nothing() -> None:
    """Idempotence: a finished batch gets its sequence number when it is first sent, and keeps it (KIP-98)."""
    with BrokerBehindProxy(cut_every=2, settings={"num.partitions": 1}) as broker:
        with producer(broker, batch_size=1_000) as ours:
            ours.send_columns("t", ROWS)
            ours.deliver()
        assert broker.cuts > 3
        assert values(broker, "t") == ROWS.to_pylist()


def test_rows_wait_for_room(broker: coterie.Broker) -> None:
    with producer(broker, batch_size=1_000, buffer_memory=4_000) as ours:
        for _ in range(3):
            ours.send_columns("room", ROWS)
        ours.deliver()
        assert ours._sender.accumulator.used == 0
        assert not ours._handed_over
    assert values(broker, "room") == ROWS.to_pylist() * 3


def test_a_batch_larger_than_the_topic_takes_is_split_and_a_row_is_not(broker: coterie.Broker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("small", 1, configs={"max.message.bytes": "2000"})])
    with producer(broker, batch_size=20_000) as ours:
        ours.send_columns("small", ROWS)
        ours.deliver()
        assert values(broker, "small") == ROWS.to_pylist()
        ours.send_columns("small", pa.array([*(b"%d" % number for number in range(900)), b"x" * 3_000]))
        with pytest.raises(KafkaError) as said:
            ours.deliver()
        assert said.value.code is ErrorCode.MESSAGE_TOO_LARGE
        ours.send_columns("small", pa.array(["it goes on"]))
        ours.deliver()
    assert values(broker, "small")[-1] == b"it goes on"


def test_rows_that_compress_well_may_be_more_than_a_request_holds(broker: coterie.Broker) -> None:
    """batch.size is that of the compressed batch, as in Java; so is max.request.size."""
    rows = pa.array([b"z" * 10_000] * 100)
    with producer(broker, batch_size=1_000_000, compression_type="zstd", buffer_memory=1_200_000) as ours:
        for _ in range(20):
            ours.send_columns("dense", rows)
        ours.deliver()
    assert values(broker, "dense") == rows.to_pylist() * 20


def test_leaving_delivers_what_is_left(broker: coterie.Broker) -> None:
    with producer(broker) as ours:
        ours.send_columns("left", ROWS.slice(0, 3))
    assert values(broker, "left") == ROWS.to_pylist()[:3]


def test_a_row_that_no_request_can_hold_is_refused(broker: coterie.Broker) -> None:
    with producer(broker, max_request_size=2_000, batch_size=1_000) as ours:
        ours.send_columns("large", pa.array([b"y" * 2_000]))
        with pytest.raises(KafkaError, match=r"max\.request\.size is 2000"):
            ours.deliver()


def test_what_befell_earlier_rows_is_said_when_more_are_sent() -> None:
    with coterie.Broker(settings={"num.partitions": 1}) as broker:
        ours = producer(broker, batch_size=1_000, delivery_timeout_ms=300, request_timeout_ms=200, linger_ms=0)
        ours.send_columns("t", pa.array([b"known"]))
        ours.deliver()

    def send_on() -> None:
        while True:
            ours.send_columns("t", ROWS)

    with pytest.raises(KafkaError, match=r"delivery\.timeout\.ms=300"):
        send_on()
    is_handed_over = False
    while not is_handed_over:
        with suppress(KafkaError):  # of earlier rows
            ours.send_columns("t", ROWS)
            is_handed_over = True
    with pytest.raises(KafkaError):
        ours.close(0)
    with pytest.raises(CoterieError, match="closed"):
        ours.send_columns("t", ROWS)
