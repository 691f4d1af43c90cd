"""A batch query reads from its starting offsets to its ending offsets. The tests read each task, as Spark does."""

from __future__ import annotations

import logging

import pytest

from coterie.errors import KafkaError
from coterie.spark.options import SourceOptions, Use
from coterie.spark.source import BatchReader
from spark.topics import Topic

pytestmark = pytest.mark.real_time

BEYOND = '{"orders": {"0": 25, "1": -1, "2": 5, "3": 10}}'


def read(topic: Topic, **options: str) -> dict[int, list[int]]:
    """Return the offsets that were read of each partition."""
    given = {"kafka.bootstrap.servers": topic.address, "subscribe": topic.name, "endingOffsets": BEYOND}
    given |= {name.replace("__", "."): text for name, text in options.items()}
    reader = BatchReader(SourceOptions.of(given, Use.BATCH))
    found: dict[int, list[int]] = {}
    for partition in reader.partitions():
        for batch in reader.read(partition):
            found.setdefault(partition.value.partition, []).extend(batch.column("offset").to_pylist())
    return found


def test_endingoffsets_behind_the_log_end_at_the_log_if_loss_is_allowed(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a wait: `kafkaConsumer.pollTimeoutMs` is two minutes."""
    topic.write(40)
    with caplog.at_level(logging.WARNING, "coterie.spark"):
        found = read(topic, failOnDataLoss="false")
    assert {each: len(offsets) for each, offsets in found.items()} == {0: 10, 1: 10, 2: 5, 3: 10}
    assert "orders-0 ends at 10, not at 25" in caplog.text
    assert read(topic, failOnDataLoss="false", startingOffsets='{"orders": {"0": 20, "1": 9, "2": 5, "3": -2}}') == {
        1: [9],
        3: list(range(10)),
    }


def test_endingoffsets_behind_the_log_are_an_error_if_it_is_not(topic: Topic) -> None:
    topic.write(40)
    with pytest.raises(KafkaError, match=r"offsets 10 to 25 were to be read; .* orders-0 has offsets 0 to 10"):
        read(topic, kafkaConsumer__pollTimeoutMs="300", kafka__fetch__max__wait__ms="100")
