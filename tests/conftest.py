"""Fixtures for stories, how hard the property tests search, and which tests stay together.

COTERIE_HYPOTHESIS=soak tries more cases, and others each time (`make properties`); =quick tries a few.
"""

from __future__ import annotations

import gc
import os
import signal
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from coterie.stories import Story

_SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)

# The same cases every time, so that a change that breaks nothing cannot fail by bad luck. `soak` draws them at random,
# by --hypothesis-seed, and prints with a failure what repeats it.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=100)
settings.register_profile(
    "soak",
    deadline=None,
    derandomize=False,
    print_blob=True,
    max_examples=1_000,
    stateful_step_count=120,
    suppress_health_check=_SLOW_IS_FINE,
)
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=5, stateful_step_count=20)
settings.load_profile(os.environ.get("COTERIE_HYPOTHESIS", "default"))


# kafka-python may leave a socket to the garbage collector, which closes it during any later test.
_ROOMS_OF_OTHER_LIBRARIES = ("clients", "adapters", "testing", "docs")
_ROOMS_WITH_ONE_START = ("spark", "clients", "history", "package")  # Spark, a broker, ZooKeeper, a wheel: once
_SPARK_TABLES = ("decoding", "docs", "group", "pipeline", "spark_packages", "submit", "sweep", "tables")
"""Tests of Spark whose files are called so have a session of their own: one session for all is the longest chain."""


class Rooms(LoadScopeScheduling):  # type: ignore[misc]
    """With `-n 6`, a file's tests run in one process, and so do those of a room that shares a start."""

    def _split_scope(self, nodeid: str) -> str:
        file, *_ = nodeid.split("::")
        _, room, *_ = file.split("/")
        if room == "spark" and file.rpartition("/test_")[2].startswith(_SPARK_TABLES):
            return "tables of spark"
        return room if room in _ROOMS_WITH_ONE_START else file


_SPARK_STARTS_SOON = '--driver-java-options "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" pyspark-shell'
"""No query of a test runs long enough for the code that Java's second compiler makes."""


def pytest_configure() -> None:
    """Set what the commands that tests start inherit: how Spark starts, and SIGINT.

    In a script's background job SIGINT is ignored, and the commands would ignore it as well.
    """
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", _SPARK_STARTS_SOON)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Rooms:
    """Tests wait, for sessions to expire and for Java, four rooms most of all: six processes keep two cores busy."""
    config.option.loadscopereorder = False
    return Rooms(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that no process waits for the other in the end."""
    items.sort(key=lambda item: _room(item) not in _ROOMS_WITH_ONE_START)
    for item in items:
        if _room(item) in _ROOMS_OF_OTHER_LIBRARIES:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from the modules and tests themselves, which stay: with them a look takes 0.5 s."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()


def _room(item: pytest.Item | pytest.Collector) -> str:
    return item.path.relative_to(item.config.rootpath / "tests").parts[0]


@pytest.fixture(scope="module", autouse=True)
def _collected_where_it_was_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect the sockets that other libraries did not close, before tests of Coterie would be blamed for them."""
    yield
    if _room(request.node) in _ROOMS_OF_OTHER_LIBRARIES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture
def group() -> Story:
    """A group with Kafka's defaults, which nobody has joined yet."""
    return Story()


@pytest.fixture
def quick() -> Story:
    """A group without the initial delay."""
    return Story(group_initial_rebalance_delay_ms=0)


@pytest.fixture(scope="session")
def secured_kafka() -> Iterator[Any]:
    """One secured Apache Kafka for all tests of the process."""
    from secured_kafka import SHARED, started  # it needs libraries that tests on another Python do not have

    with started("apache kafka", SHARED) as running:
        yield running


@pytest.fixture(scope="module", params=["coterie", "apache kafka"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A secured cluster: Coterie, then Apache Kafka."""
    from secured_kafka import SHARED, started

    if request.param == "apache kafka":
        yield request.getfixturevalue("secured_kafka")
        return
    with started(request.param, SHARED) as running:
        yield running
