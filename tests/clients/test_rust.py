"""The crate rdkafka: transactions of Rust programs, which use librdkafka with the older requests.

Building it takes minutes of two cores the first time, so it has a target of its own: make clients-rust.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from apache_kafka import needs_apache_kafka
from clients import transactional_programs as situations
from clients.either import EitherBroker, apache_kafka, coterie
from clients.transactional_programs import QUICK_TIMEOUTS

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif("COTERIE_RUST_CLIENTS" not in os.environ, reason="run by make clients-rust"),
    pytest.mark.skipif(not shutil.which("cargo"), reason="there is no `cargo` on the PATH to build the program with"),
]


@pytest.fixture(scope="module")
def program() -> Path:
    """The program, built in build/rust, where the next run finds what it needs not build again."""
    source = Path(__file__).with_name("rust")
    target = Path(__file__).parents[2] / "build" / "rust"
    shutil.copytree(source, target, dirs_exist_ok=True)
    done = subprocess.run(
        ["cargo", "build", "--quiet", "--release"], cwd=target, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"the program could not be built: {done.stderr[-500:]}")
    return target / "target" / "release" / "coterie-test-clients"


@pytest.fixture(scope="module", params=["coterie", pytest.param("kafka", marks=needs_apache_kafka)])
def either(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EitherBroker]:
    starts = {"coterie": coterie, "kafka": apache_kafka}
    settings = {**QUICK_TIMEOUTS, "group.initial.rebalance.delay.ms": "0"}
    with starts[request.param](tmp_path_factory.mktemp(request.param), settings) as running:
        yield running


def test_rust_commits_and_aborts(program: Path, either: EitherBroker, name: str) -> None:
    situations.check_commits_and_aborts(program, either, name)


def test_rust_fences_an_older_producer(program: Path, either: EitherBroker, name: str) -> None:
    error = situations.check_fencing(program, either, name)
    assert "fenced" in error.lower(), error


def test_a_transaction_of_rust_times_out(program: Path, either: EitherBroker, name: str) -> None:
    """TT2: an older producer is fenced by it, and stays so."""
    error, after = situations.check_timeout(program, either, name, "commit")
    assert "fenced" in error.lower(), error
    assert after, "the producer is fenced"


def test_rust_reads_processes_and_writes(program: Path, either: EitherBroker, name: str) -> None:
    situations.check_read_process_write(program, either, name)


def test_rust_goes_on_after_a_crash(program: Path, either: EitherBroker, name: str) -> None:
    situations.check_crash(program, either, name)
