"""One Spark session for all: to start one takes ten seconds and more."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from coterie.java import why_no_java
from coterie.spark.pipeline.topics_pipeline import session_settings
from spark.topics import Topic
from spark_connector import jars

NO_JAVA = why_no_java("Spark", 17)
needs_java = pytest.mark.skipif(NO_JAVA is not None, reason=str(NO_JAVA))
in_the_soak = pytest.mark.skipif("COTERIE_SPARK_SOAK" not in os.environ, reason="make spark-soak runs it")

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # nothing here runs long enough for more
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",  # of whoever starts it
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if NO_JAVA is not None:
        pytest.skip(NO_JAVA)
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else workers run whatever python3 is on the PATH
    folder = tmp_path_factory.mktemp("spark")
    settings: dict[str, Any] = QUIET | {"spark.sql.warehouse.dir": str(folder)}
    if "COTERIE_SPARK_JARS" in os.environ:
        names = os.environ["COTERIE_SPARK_JARS"]
        settings["spark.jars"] = jars(names)
        settings |= session_settings(names.partition("-")[0], None)
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def topic() -> Iterator[Topic]:
    with Topic.on_a_broker() as topic:
        yield topic


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
