"""A task reads its range of offsets, to the record; what is not there is said, or passed over."""

from __future__ import annotations

import pytest

from coterie import Broker
from coterie.client.types import TopicPartition
from coterie.errors import KafkaError
from coterie.spark.batch_plan import DataLossError, OffsetRange
from coterie.spark.options import SourceOptions, Use
from coterie.spark.partition_reader import read_range
from spark.topics import QUICK, Topic

pytestmark = pytest.mark.real_time


def read(topic: Topic, partition: int, begin: int, end: int, **options: str) -> list[int]:
    given = {"kafka.bootstrap.servers": topic.address, "subscribe": topic.name}
    given |= {name.replace("__", "."): text for name, text in options.items()}
    batches = read_range(SourceOptions.of(given, Use.BATCH), OffsetRange(topic.name, partition, begin, end))
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_a_slice_begins_and_ends_within_batches(topic: Topic) -> None:
    topic.write(400)
    assert read(topic, 1, 17, 63) == list(range(17, 63))
    assert read(topic, 1, 5, 5) == []


def test_many_small_fetches_are_one_slice(topic: Topic) -> None:
    for _ in range(20):
        topic.write(80)
    assert read(topic, 3, 0, 400, kafka__max__partition__fetch__bytes="200") == list(range(400))


def test_records_that_were_deleted_before_they_were_read(topic: Topic) -> None:
    topic.write(400)
    topic.admin.delete_records({TopicPartition(topic.name, 0): 50})
    with pytest.raises(DataLossError, match="offsets 20 to 60 of orders-0 were to be read, and it has 50 to 100"):
        read(topic, 0, 20, 60)
    assert read(topic, 0, 20, 60, failOnDataLoss="false") == list(range(50, 60))
    assert read(topic, 0, 20, 40, failOnDataLoss="false") == []


def test_a_log_that_ends_before_the_slice_does(topic: Topic) -> None:
    """As after a topic was created again."""
    topic.write(40)
    with pytest.raises(DataLossError, match="offsets 90 to 95 of orders-0 were to be read, and it has 0 to 10"):
        read(topic, 0, 90, 95)
    assert read(topic, 0, 90, 95, failOnDataLoss="false") == []


def test_a_topic_that_is_gone(topic: Topic) -> None:
    topic.write(40)
    topic.admin.delete_topics([topic.name])
    quick = {"kafka__retry__backoff__ms": "10"}
    with pytest.raises(DataLossError, match="orders-0 is gone"):
        read(topic, 0, 0, 10, **quick)
    assert read(topic, 0, 0, 10, failOnDataLoss="false", **quick) == []


def test_a_slice_that_nobody_has_written_yet_is_not_waited_for_for_ever(topic: Topic) -> None:
    topic.write(40)
    with pytest.raises(KafkaError, match=r"no records within 300 ms \(kafkaConsumer.pollTimeoutMs\)"):
        read(topic, 0, 0, 11, kafkaConsumer__pollTimeoutMs="300", kafka__fetch__max__wait__ms="100")


def test_a_log_that_ends_within_the_slice_is_read_to_its_end_or_named(topic: Topic) -> None:
    topic.write(40)
    quick = {"kafkaConsumer__pollTimeoutMs": "300", "kafka__fetch__max__wait__ms": "100"}
    assert read(topic, 0, 4, 20, failOnDataLoss="false", **quick) == list(range(4, 10))
    with pytest.raises(KafkaError, match=r"offsets 10 to 20 were to be read; .* orders-0 has offsets 0 to 10"):
        read(topic, 0, 4, 20, **quick)


def test_a_broker_that_is_away_is_waited_for_and_then_named() -> None:
    with Topic.on_a_broker() as topic:
        topic.write(40)
        port = int(topic.address.rpartition(":")[2])
    with pytest.raises(KafkaError, match=r"no records within 500 ms .*cannot connect to"):
        read(topic, 0, 0, 10, kafkaConsumer__pollTimeoutMs="500")
    with Broker(settings=QUICK, port=port):
        again = Topic(topic.address)
        again.write(40)
        assert read(again, 0, 0, 10) == list(range(10))
        again.close()
