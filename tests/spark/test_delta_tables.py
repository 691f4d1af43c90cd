"""Tables of Delta Lake, if Spark has its package. `make pipeline-delta` runs it with a Spark that does."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from coterie.client.producer.producer import Producer
from coterie.errors import CoterieError
from coterie.spark.pipeline.delta_tables import SETTINGS, DeltaTables
from coterie.spark.pipeline.hadoop_files import HadoopFiles
from coterie.spark.pipeline.parquet_tables import Entry
from coterie.spark.pipeline.topics_pipeline import TopicsOptions, TopicsPipeline
from coterie.spark.pipeline.value_formats import ValueFormat, has_class
from spark.topics import Topic

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(400)]


@pytest.fixture
def delta(spark: SparkSession) -> SparkSession:
    if not has_class(spark, SETTINGS["spark.sql.extensions"]):
        pytest.skip("this Spark has no Delta Lake: make pipeline-delta runs it")
    return spark


def test_without_its_package_it_is_said_which_one_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    if has_class(spark, SETTINGS["spark.sql.extensions"]):
        pytest.skip("this Spark has the package")
    with pytest.raises(CoterieError, match=r"needs the package delta-spark.*io\.delta:delta-spark_4\.\d+_2\.13"):
        DeltaTables(spark, HadoopFiles(spark, str(tmp_path)))


def test_an_entry_that_is_put_again_is_there_once(delta: SparkSession, tmp_path: Path) -> None:
    tables, days = DeltaTables(delta, HadoopFiles(delta, str(tmp_path))), [date(2026, 11, day) for day in (16, 17, 18)]
    rows = delta.createDataFrame([(1,)], "id int")
    for number, day in enumerate([*days[:2], days[1]]):
        tables.put("t", Entry("batch", number, day), rows)
    tables.put("t", Entry("batch", 2, days[2]), rows)  # again, on the next day
    tables.put("t", Entry("at", 2, days[2]), rows)

    def count() -> int:
        return delta.read.format("delta").load(str(tmp_path / "t")).count()

    assert count() == 4
    assert tables.compact("t", days[2], ["id"], last_done=5) == 1 and count() == 4
    assert tables.expire("t", days[1]) == 1 and count() == 3
    tables.replace("t", Entry("batch", 9, days[2]), rows)
    assert count() == 1
    assert (tables.compact("none", days[2], ["id"], last_done=5), tables.expire("none", days[1])) == (0, 0)


def test_records_of_a_topic_are_in_the_table_once(delta: SparkSession, tmp_path: Path) -> None:
    with Topic.on_a_broker(partitions=2) as topic, Producer(bootstrap_servers=topic.address) as producer:
        kafka = {"kafka.bootstrap.servers": topic.address}
        options = TopicsOptions(str(tmp_path), kafka, ("orders",), "lake", ValueFormat("id INT"), tables="delta")
        for start in (0, 20):
            for number in range(start, start + 20):
                producer.send("orders", json.dumps({"id": number}))
            producer.flush()
            TopicsPipeline(delta, options, print).once()
        found = delta.read.format("delta").load(str(tmp_path / "records"))
        assert sorted(row["id"] for row in found.collect()) == [*range(40)]
        assert topic.committed("lake") == 40
