"""Spark at a secured cluster: source, sink and committer log in, and no secret shows.

Not in a plan, the event log, a checkpoint, the log of Spark or an error.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from coterie import Admin, Producer
from coterie.settings import SettingsError
from coterie.spark.options import SourceOptions, Use, admin_settings
from coterie.spark.pipeline.groups_pipeline import GroupsPipeline, PipelineOptions
from secured_kafka import USERS, Cluster
from spark.conftest import QUIET, in_the_soak, needs_java

WRONG = "not-her-password"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of topics and groups: other tests may use the same Kafka."""
    return re.sub(r"\W+", "-", request.node.name).strip("-")


@needs_java
@pytest.mark.parametrize(
    ("cluster", "master"),
    [
        ("coterie", "local[2]"),
        pytest.param("apache kafka", "local[2]", marks=in_the_soak),
        pytest.param("coterie", "local-cluster[1,1,1024]", marks=in_the_soak),
        pytest.param("apache kafka", "local-cluster[1,1,1024]", marks=in_the_soak),
    ],
    indirect=["cluster"],
)
def test_no_secret_is_in_plans_logs_and_checkpoints(cluster: Cluster, master: str, name: str, tmp_path: Path) -> None:
    """S57: also where the executor is a process of its own."""
    (tmp_path / "events").mkdir()
    secret = USERS["alice"]
    with Producer(bootstrap_servers=cluster.address_of("PLAINTEXT")) as producer:
        for number in range(10):
            producer.send(name, str(number).encode())
    options = {
        "kafka.bootstrap.servers": cluster.address_of("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": f'{MODULE} required username="alice" password="{secret}";',
        "kafka.ssl.ca.location": str(cluster.certificates.ca),
    }
    wrong = {**options, "kafka.sasl.jaas.config": options["kafka.sasl.jaas.config"].replace(secret, WRONG)}
    settings = QUIET | {
        "spark.master": master,
        "spark.executor.memory": "512m",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
    }
    arguments = [json.dumps(each) for each in (settings, options, wrong, str(tmp_path), name)]
    job = subprocess.run(
        [sys.executable, Path(__file__).with_name("secured_job.py"), *arguments],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    said = job.stdout + job.stderr
    assert job.returncode == 0, said[-4000:]
    assert "read 10, copied 10" in said and "refused user 'alice'" in said
    with Admin(bootstrap_servers=cluster.address_of("PLAINTEXT")) as admin:
        groups = {each.group_id for each in admin.list_groups()}
    assert {f"{name}-readers", f"{name}-committed"} <= groups
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any("events" in path.parts for path in written) and any("checkpoint" in path.parts for path in written)
    for each in (secret, WRONG):
        assert each not in said
        assert not [path for path, data in written.items() if each.encode() in data]


@needs_java
def test_the_pipeline_reads_a_secured_cluster(cluster: Cluster, spark: SparkSession, name: str, tmp_path: Path) -> None:
    """Its source, its admin and the tasks that look up the times of records log in, by a reference to the password."""
    secret = tmp_path / "secret"
    secret.write_text(USERS["alice"])
    plain = {"bootstrap.servers": cluster.address_of("PLAINTEXT")}
    with Producer(plain) as producer:
        for number in range(3):
            producer.send(name, str(number).encode()).result()
    with Admin(plain) as admin:
        admin.alter_group_offsets(name, {(name, 0): 1})
    options = {
        "kafka.bootstrap.servers": cluster.address_of("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanisms": "SCRAM-SHA-512",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": f"${{file:{secret}}}",
        "kafka.ssl.ca.location": str(cluster.certificates.ca),
    }
    out = tmp_path / "out"
    GroupsPipeline(spark, PipelineOptions(str(out), options), print).once()
    (lag,) = spark.read.parquet(str(out / "lag")).where(f"group_id = '{name}'").collect()
    assert (lag.committed, lag.records_behind, lag.seconds_from) == (1, 2, "record")
    assert not [path for path in out.rglob("*") if path.is_file() and USERS["alice"].encode() in path.read_bytes()]


def test_options_show_no_secret_and_carry_it_to_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver follows references, so that an executor needs neither the variable nor the file."""
    monkeypatch.setenv("COTERIE_TEST_PASSWORD", USERS["alice"])
    given = {
        "kafka.bootstrap.servers": "SASL_PLAINTEXT://localhost:9092",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": "${env:COTERIE_TEST_PASSWORD}",
        "subscribe": "orders",
    }
    options = SourceOptions.of(given, Use.BATCH)
    assert USERS["alice"] not in repr(options)
    assert options.client.sasl_password is not None and options.client.sasl_password.value == USERS["alice"]
    assert admin_settings({**given, "kafka.fetch.min.bytes": "1"}).credentials == options.client.credentials
    with pytest.raises(SettingsError, match=r"sasl\.username and sasl\.password are given, and security"):
        SourceOptions.of({**given, "kafka.security.protocol": "PLAINTEXT", "kafka.bootstrap.servers": "a:1"}, Use.BATCH)
    with pytest.raises(SettingsError, match=r"did you mean sasl\.password\?"):
        admin_settings({**given, "kafka.sasl.pasword": "x"})
