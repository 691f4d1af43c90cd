"""A query on Spark's own JVM Kafka source, its matching connector, and our committer: Apache's tool shows its lag.

make spark-committer                 Spark 4.0.0 in an environment of its own
PYTHONPATH=tests python tests/soak/spark_committer.py PYTHON_WITH_PYSPARK_4_0
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from coterie.client.admin.admin import Admin
from coterie.client.admin.admin_types import NewTopic
from coterie.client.producer.producer import Producer
from spark_connector import connector

__all__ = ["application", "main"]

TOPIC, GROUP, RECORDS, LATER = "orders", "lag", 1_000, 234
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def application(address: str, folder: str) -> None:
    """In the other environment."""
    from pyspark.sql import SparkSession

    from coterie.spark import OffsetCommitter

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.jars", connector("4.0.0"))
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    options = {"kafka.bootstrap.servers": address, "subscribe": TOPIC, "startingOffsets": "earliest"}
    spark.streams.addListener(OffsetCommitter(options | {"kafka.consumer.commit.groupid": GROUP}))
    rows = spark.readStream.format("kafka").options(**options).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", folder).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    spark.stop()


def main(python: str) -> None:
    from apache_kafka import ApacheKafka, run_java  # the other environment has no pytest

    with ApacheKafka() as kafka, tempfile.TemporaryDirectory() as folder:
        with Admin(bootstrap_servers=kafka.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, 4, 1)])
        with Producer(bootstrap_servers=kafka.bootstrap) as producer:
            for number in range(RECORDS):
                producer.send(TOPIC, b"%d" % number, partition=number % 4)
        command = [python, str(Path(__file__)), "application", kafka.bootstrap, folder]
        subprocess.run(command, check=True, timeout=300)
        with Producer(bootstrap_servers=kafka.bootstrap) as producer:
            for _ in range(LATER):
                producer.send(TOPIC, b"later", partition=2)
        shown = run_java(TOOL, "--bootstrap-server", kafka.bootstrap, "--describe", "--group", GROUP)
    print(shown)
    rows = [line.split() for line in shown.splitlines() if line.startswith(GROUP)]
    found = {int(row[2]): (int(row[3]), int(row[5])) for row in rows}
    assert found == {0: (250, 0), 1: (250, 0), 2: (250, LATER), 3: (250, 0)}, found


if __name__ == "__main__":
    if sys.argv[1] == "application":
        application(sys.argv[2], sys.argv[3])
    else:
        main(sys.argv[1])
