"""A stream without a group: its checkpoint is all it knows. Spark's part is played by `standin.py`."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from coterie.errors import CoterieError, KafkaError
from coterie.spark.batch_plan import DataLossError
from coterie.spark.source import GroupLogSource, StreamReader
from spark.standin import Query
from spark.topics import Topic

pytestmark = pytest.mark.real_time


def test_it_goes_on_from_its_checkpoint_and_reads_new_partitions_from_their_beginning(
    topic: Topic, tmp_path: Path
) -> None:
    topic.write(100)
    first = Query(topic, tmp_path)
    first.run()
    first.stop()
    topic.admin.create_partitions({topic.name: 5})
    topic.partitions = 5
    topic.write(50)
    second = Query(topic, tmp_path)
    second.run()
    second.stop()
    assert sorted(second.seen()) == list(range(150))


def test_it_begins_with_what_comes_by_default(topic: Topic, tmp_path: Path) -> None:
    topic.write(100)
    query = Query(topic, tmp_path, startingOffsets="")
    query.run()
    topic.write(20)
    query.run()
    query.stop()
    assert sorted(query.seen()) == list(range(100, 120))


def test_a_time_after_the_last_record_is_an_error_or_the_end(topic: Topic, tmp_path: Path) -> None:
    topic.write(100, timestamp=1_000)
    with pytest.raises(CoterieError, match="no record is as late"):
        Query(topic, tmp_path / "a", startingTimestamp="5000").run()
    how = {"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"}
    query = Query(topic, tmp_path / "b", **how)
    query.run()
    topic.write(4, timestamp=6_000)
    query.run()
    query.stop()
    assert sorted(query.seen()) == list(range(100, 104))


def test_a_batch_has_no_more_than_it_may_and_waits_for_no_less(topic: Topic, tmp_path: Path) -> None:
    topic.write(100)
    limited = Query(topic, tmp_path / "a", maxOffsetsPerTrigger="40")
    limited.trigger()
    assert len(limited.seen()) == 40
    limited.stop()
    patient = Query(topic, tmp_path / "b", minOffsetsPerTrigger="101")
    patient.run()
    assert patient.seen() == []
    topic.write(1)
    patient.run()
    assert len(patient.seen()) == 101
    patient.stop()


def test_a_topic_that_is_deleted_fails_the_query_or_is_dropped(topic: Topic, tmp_path: Path) -> None:
    topic.write(100)
    first = Query(topic, tmp_path)
    first.run()
    topic.admin.delete_topics([topic.name])
    with pytest.raises(DataLossError, match="orders-0 was read up to 25 and is gone"):
        first.trigger()
    first.stop()
    second = Query(topic, tmp_path, failOnDataLoss="false")
    second.run()
    second.stop()
    assert len(second.seen()) == 100


def test_a_topic_made_anew_is_noticed(topic: Topic, tmp_path: Path) -> None:
    topic.write(100)
    first = Query(topic, tmp_path)
    first.run()
    first.stop()
    topic.admin.delete_topics([topic.name])
    again = Topic(topic.address)
    again.write(40)
    with pytest.raises(DataLossError, match="was read up to 25 and now ends at 10"):
        Query(topic, tmp_path).trigger()
    again.close()


def test_a_topic_that_never_was_is_named(topic: Topic, tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match=r'topic "ordres".*does not have it'):
        Query(topic, tmp_path, subscribe="ordres").run()


def test_a_copy_of_another_kind_of_reader_is_of_its_kind(topic: Topic) -> None:
    """The pipeline's reads other columns."""
    options = {"kafka.bootstrap.servers": topic.address, "subscribe": topic.name}
    reader = GroupLogSource(options).streamReader(StructType())
    assert type(pickle.loads(pickle.dumps(reader))) is type(reader) is not StreamReader


def test_a_copy_for_the_tasks_has_no_query(topic: Topic, tmp_path: Path) -> None:
    """Spark pickles a reader of its own for them: joining there would be a ghost in the group."""
    query = Query(topic, tmp_path)
    query.run()
    copied = pickle.loads(pickle.dumps(query.reader))
    assert isinstance(copied, StreamReader)
    assert copied._query is None
    assert copied._options == query.reader._options
    query.stop()
