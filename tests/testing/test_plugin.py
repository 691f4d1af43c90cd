"""The plugin of pytest and the test cases of unittest, in runs of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar

import pytest

from coterie.testing import FaultNotFiredError, KafkaBroker
from coterie.testing.unittest import AsyncKafkaTestCase, KafkaTestCase


def run(directory: Path, *args: str, **environment: str) -> tuple[int, str]:
    """Run pytest on a directory, in a process of its own, with no settings but these."""
    plugins = ("-p", "coterie.testing.plugin", "-p", "xdist")  # those of this project cost seconds
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *args, str(directory)],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
    )
    return done.returncode, done.stdout + done.stderr


IMPORTS = """
import sys

def test_nothing_heavy_is_imported():
    ours = {name for name in sys.modules if name.startswith("coterie")}
    assert ours == {"coterie", "coterie.version", "coterie.testing", "coterie.testing.plugin"}
"""

FIXTURES = """
import os
import pytest

ADDRESS = "COTERIE_BOOTSTRAP_SERVERS"

def test_a_broker(kafka_broker):
    assert os.environ[ADDRESS] == kafka_broker.bootstrap_servers
    assert kafka_broker.topic("orders").partitions == 0
    kafka_broker.create_topic("orders")

def test_the_next_broker_is_fresh(kafka_broker):
    assert kafka_broker.topic("orders").partitions == 0

@pytest.mark.kafka(settings={"num.partitions": 5}, topics={"orders": 3}, nodes=3)
class TestMarked:
    def test_all_that_was_marked(self, kafka_broker):
        assert kafka_broker.topic("orders").partitions == 3
        assert len(kafka_broker.bootstrap_servers.split(",")) == 3

    @pytest.mark.kafka(topics={"more": 1}, nodes=1)
    def test_the_closest_mark_counts_most(self, kafka_broker):
        assert (kafka_broker.topic("orders").partitions, kafka_broker.topic("more").partitions) == (3, 1)
        assert "," not in kafka_broker.bootstrap_servers

def test_many_brokers(kafka_broker_factory, tmp_path):
    first = kafka_broker_factory(topics={"orders": 1})
    second = kafka_broker_factory({"num.partitions": 2}, data=tmp_path)
    assert first.bootstrap_servers != second.bootstrap_servers == os.environ[ADDRESS]

def test_the_environment_is_as_it_was():
    assert os.environ.get(ADDRESS) == "before"

def test_a_server(kafka_server):
    kafka_server.create_topic("kept")

def test_the_server_keeps_its_state(kafka_server):
    assert kafka_server.topic("kept").partitions == 1
"""

FAILING = """
def test_that_fails(kafka_broker):
    kafka_broker.create_topic("orders", 2)
    from coterie import Consumer
    with Consumer({"bootstrap.servers": kafka_broker.bootstrap_servers}, group_id="billing", client_id="a") as consumer:
        consumer.subscribe(["orders"])
        while not consumer.assignment():
            consumer.poll(0.02)
        assert kafka_broker.group("billing").state == "Empty"

def test_that_waits_in_vain(kafka_broker):
    kafka_broker.group("other").wait_stable(timeout=0.01)

def test_whose_fault_never_fired(kafka_broker):
    kafka_broker.faults.on("OffsetCommit").garble().begin()

def test_two_brokers(kafka_broker, kafka_broker_factory):
    kafka_broker_factory()
    assert False

def test_without_a_broker():
    assert False

def test_that_passes(kafka_broker):
    pass
"""


def test_a_run_that_uses_no_fixture_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_imports.py").write_text(IMPORTS)
    status, text = run(tmp_path, "-q")
    assert status == 0, text
    (found,) = [one for one in entry_points(group="pytest11") if one.name == "coterie"]
    assert found.value == "coterie.testing.plugin"


def test_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_fixtures.py").write_text(FIXTURES)
    status, text = run(tmp_path, "-q", "--strict-markers", COTERIE_BOOTSTRAP_SERVERS="before")
    assert status == 0 and "8 passed" in text, text


def test_with_xdist_each_worker_has_its_own(tmp_path: Path) -> None:
    for number in range(2):
        text = FIXTURES.replace("def test_the_server_keeps", "def _not").replace('"kept"', f'"kept-{number}"')
        (tmp_path / f"test_fixtures_{number}.py").write_text(text)
    status, text = run(tmp_path, "-q", "-n", "2", COTERIE_BOOTSTRAP_SERVERS="before")
    assert status == 0 and "14 passed" in text, text


def test_a_failing_test_has_a_section_and_a_report(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(FAILING)
    reports = tmp_path / "reports"
    status, text = run(tmp_path, "-q", "--coterie-report", str(reports))
    assert status == 1 and "4 failed, 2 passed, 1 error" in text, text
    sections = text.split("_ test_")
    (failed,) = [one for one in sections if one.startswith("that_fails ")]
    assert "- Kafka -" in failed and "group billing is Empty, no members" in failed  # the consumer was closed by then
    assert "Stable; a: orders-0 orders-1" in failed and "at_ms | who | says" in failed
    (waited,) = [one for one in sections if one.startswith("that_waits_in_vain ")]
    assert "waited 0.01 s for group other to be Stable" in waited
    unfired = text.split("ERROR at teardown of test_whose_fault_never_fired")[1]
    assert "FaultNotFiredError: this fault never fired: OffsetCommit() -> garble the answer" in unfired
    (two,) = [one for one in sections if one.startswith("two_brokers ")]
    assert "- Kafka 1 -" in two and "- Kafka 2 -" in two
    (alone,) = [one for one in sections if one.startswith("without_a_broker ")]
    assert "Kafka" not in alone.split("short test summary")[0]
    (written,) = reports.glob("*that_fails.html")
    assert "Group billing" in written.read_text() and "new member" in written.read_text()
    assert not list(reports.glob("*passes*"))


def test_a_mark_with_a_mistake_is_told(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.kafka({'orders': 3})\ndef test_it(kafka_broker): pass\n"
    (tmp_path / "test_mark.py").write_text(text)
    _, told = run(tmp_path, "-q")
    assert "the marker kafka has keyword arguments alone, such as topics={'orders': 3}" in told


def outcome(case: type[unittest.TestCase]) -> unittest.TestResult:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    return result


class Case(KafkaTestCase):
    __test__ = False
    kafka: ClassVar[dict[str, Any]] = {"topics": {"orders": 3}}

    def test_it_has_a_broker(self) -> None:
        assert self.kafka_broker.topic("orders").partitions == 3
        assert os.environ["COTERIE_BOOTSTRAP_SERVERS"] == self.kafka_broker.bootstrap_servers

    def test_an_unfired_fault_fails(self) -> None:
        self.kafka_broker.faults.on("Fetch").garble().begin()


class AsyncCase(AsyncKafkaTestCase):
    __test__ = False

    async def test_it_waits(self) -> None:
        await self.kafka_broker.group("billing").wait_empty_async()


def test_the_test_cases_of_unittest() -> None:
    before = os.environ.get("COTERIE_BOOTSTRAP_SERVERS")
    result = outcome(Case)
    assert result.testsRun == 2 and not result.errors
    ((failed, why),) = result.failures
    assert "an_unfired_fault" in str(failed) and "FaultNotFiredError: this fault never fired" in why
    assert outcome(AsyncCase).wasSuccessful()
    assert os.environ.get("COTERIE_BOOTSTRAP_SERVERS") == before


def test_faults_that_are_in_force_are_ended(kafka_broker: KafkaBroker) -> None:
    first, second = (kafka_broker.faults.on("Fetch").garble().begin() for _ in range(2))
    with pytest.raises(FaultNotFiredError):
        kafka_broker.end_faults()
    assert not (first.is_in_force or second.is_in_force)
    kafka_broker.end_faults()
