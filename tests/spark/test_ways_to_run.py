"""However Spark is run: through Connect, by spark-submit, from a notebook's loop, with executors of their own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from types import MappingProxyType

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

import coterie
from coterie.spark import OffsetCommitter
from spark.conftest import QUIET, in_the_soak, needs_java
from spark.topics import Topic, until

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
WITHIN_S = 280


def spark_submit(
    script: Path,
    *args: str,
    conf: dict[str, str],
    environment: Mapping[str, str] = MappingProxyType({}),
    cwd: Path | None = None,
) -> str:
    """Spark's own launcher; what the job printed."""
    return submitted(script, *args, conf=conf, environment=environment, cwd=cwd).stdout


def submitted(
    script: Path,
    *args: str,
    conf: dict[str, str],
    environment: Mapping[str, str] = MappingProxyType({}),
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("spark-submit"))]
    for name, text in (QUIET | conf).items():
        command += ["--conf", f"{name}={text}"]
    whole = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"} | dict(environment)
    done = subprocess.run(
        [*command, str(script), *args],
        env=whole,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return done


def numbers(folder: Path) -> list[int]:
    found: list[int] = parquet.read_table(folder / "out").column("number").to_pylist()
    return sorted(found)


@needs_java
@pytest.mark.parametrize(
    ("master", "executors"), [("local[2]", 1), pytest.param("local-cluster[2,1,1024]", 3, marks=in_the_soak)]
)
def test_a_job_of_spark_submit_is_a_member(topic: Topic, tmp_path: Path, master: str, executors: int) -> None:
    """Also where executors are processes of their own, with a master and workers: Spark's standalone cluster."""
    topic.write(200)
    conf = {"spark.master": master, "spark.executor.memory": "512m"}
    said = spark_submit(HERE / "submitted_job.py", topic.address, topic.name, str(tmp_path), conf=conf)
    assert said.split() == [master, str(executors)]
    assert numbers(tmp_path) == list(range(200))
    assert topic.committed("g") == 200
    until(lambda: topic.members("g") == 0, 60)  # it leaves as its process ends; its session would go on


WITH_A_BAR = """
import sys, time
from pyspark.sql import SparkSession

def slowly(batches):
    for one in batches:
        time.sleep(0.5)
        yield one

spark = SparkSession.builder.getOrCreate()
where = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2], "maxRecordsPerPartition": "25"}
rows = spark.read.format("coterie").options(**where).load()
rows.mapInArrow(slowly, rows.schema).write.format("noop").mode("overwrite").save()
spark.stop()
"""


@needs_java
@in_the_soak
def test_a_batch_read_has_sparks_progress_bar_that_counts_its_tasks(topic: Topic, tmp_path: Path) -> None:
    topic.write(200)
    script = tmp_path / "job.py"
    script.write_text(WITH_A_BAR)
    conf = {"spark.master": "local[2]", "spark.ui.showConsoleProgress": "true"}
    said = submitted(script, topic.address, topic.name, conf=conf).stderr
    bars = re.findall(r"\[Stage \d+:=*>? *\((\d+) \+ \d+\) / (\d+)\]", said)
    done, of = zip(*[map(int, bar) for bar in bars], strict=True)
    assert set(of) == {8}, "four partitions of fifty records, 25 in a task"
    assert max(done) > min(done)


@pytest.fixture
def connect(spark: SparkSession) -> Iterator[str]:
    """A server in the JVM that is there anyway; where it is."""
    pytest.importorskip("grpc_status", reason="a client of Spark Connect needs grpcio and grpcio-status")
    jvm = spark._jvm
    assert jvm is not None
    service = getattr(getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    service.start(spark._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    service.stop(jvm.scala.Option.empty(), jvm.scala.Option.empty())


def test_through_spark_connect_names_are_enough(connect: str, topic: Topic, tmp_path: Path) -> None:
    """No SparkContext, no RDD, no JVM in the client's process: the package is needed by the server alone."""
    copies = Topic(topic.address, "copies", 2)
    topic.write(200)
    done = subprocess.run(
        [sys.executable, str(HERE / "connect_client.py"), connect, topic.address, topic.name, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    found = json.loads(done.stdout)
    assert "did you mean startingOffsets?" in found.pop("mistake")
    assert found == {
        "session": "pyspark.sql.connect.session",
        "jvm": False,
        "read": 200,
        "is_over": True,
        "error": None,
        "described": ["Coterie[Subscribe[orders]] as member of g"],
    }
    assert topic.committed("g") == topic.committed("lag") == 200  # listeners run in the client
    assert copies.records() == 207
    copies.close()
    until(lambda: topic.members("g") == 0, 60)  # it has left: its session lasts longer than that


def test_a_query_is_started_from_a_thread_and_from_a_running_loop(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """As in a notebook, whose cells run inside an event loop, in whatever thread the kernel has."""
    topic.write(100)
    servers = {"kafka.bootstrap.servers": topic.address}
    committer = OffsetCommitter(servers | {"groupId": "lag"})

    async def cell() -> None:
        """Spark's calls block the loop, as they do there."""
        spark.streams.addListener(committer)
        options = servers | {"subscribe": topic.name, "startingOffsets": "earliest", "groupId": "g"}
        rows = spark.readStream.format("coterie").options(**options).load()
        writer = rows.selectExpr("int(string(value)) as number").writeStream.format("parquet")
        writer = writer.option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(60)
        until(lambda: topic.committed("lag") == 100, 60)

    def in_thread() -> None:
        asyncio.run(cell())

    thread = Thread(target=in_thread)
    try:
        thread.start()
        thread.join(WITHIN_S)
    finally:
        spark.streams.removeListener(committer)
    assert topic.committed("g") == topic.committed("lag") == 100
    assert numbers(tmp_path) == list(range(100))


@in_the_soak
@needs_java
@pytest.mark.parametrize(("master", "executors"), [("local[2]", 1), ("local-cluster[2,1,1024]", 3)])
def test_an_archive_brings_it_to_machines_that_have_spark_alone(
    topic: Topic, tmp_path: Path, master: str, executors: int
) -> None:
    """As docs/spark.md has it. `site` is a directory of the driver, and what executors unpack where they run."""
    topic.write(200)
    python = python_with(tmp_path / "env", LIBRARIES_OF_SPARK)
    without = subprocess.run([python, "-c", "import coterie"], capture_output=True, text=True, check=False)
    assert "No module named 'coterie'" in without.stderr
    site = installed(tmp_path / "site")
    conf = {
        "spark.master": master,
        "spark.executor.memory": "512m",
        "spark.archives": f"{shutil.make_archive(str(site), 'gztar', site)}#site",
        "spark.executorEnv.PYTHONPATH": "site",
    }
    args = topic.address, topic.name, str(tmp_path)
    environment = {"PYSPARK_PYTHON": str(python), "PYTHONPATH": "site"}
    said = spark_submit(HERE / "submitted_job.py", *args, conf=conf, environment=environment, cwd=tmp_path)
    assert said.split() == [master, str(executors)]
    assert numbers(tmp_path) == list(range(200))
    assert topic.committed("g") == 200


PACKAGES = ["cramjam", "crc32c", f"crc32c-{version('crc32c')}.dist-info", "msgspec"]
LIBRARIES_OF_SPARK = ["pyspark", "py4j", "pyarrow", "numpy", "numpy.libs", "pandas", "pandas.libs", "dateutil", "pytz"]


def installed(site: Path) -> Path:
    """Make what `pip install --target` makes, as far as a query needs it, without the network."""
    ours = Path(coterie.__file__).parent
    shutil.copytree(ours, site / "coterie", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ours.parent / "pyspark_coterie.py", site)
    for name in PACKAGES:
        shutil.copytree(Path(sysconfig.get_path("purelib"), name), site / name)
    return site


def python_with(folder: Path, names: Sequence[str]) -> Path:
    """Make an environment that has these modules of this one, and no others."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for name in names:
        there = Path(sysconfig.get_path("purelib"), name)
        if there.exists():
            (packages / name).symlink_to(there)
    return folder / "bin" / "python"
