"""The plugin of pytest: fixtures with brokers, and a section in the report of a failing test.

It is imported in every run of pytest, so it imports nothing until a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from coterie.testing.kafka_broker import KafkaBroker

SECTION = "Kafka"
SEED = "COTERIE_SEED"
"""Where `chaos_runs.py` finds the seed, also without pytest."""
_BROKERS = pytest.StashKey[list["KafkaBroker"]]()
"""The brokers that a test uses."""


class _SharedBroker:
    """The broker of the session, and whether the test that runs uses it."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self._test = ExitStack()

    def begin_test(self) -> None:
        from coterie.testing.environment import bootstrap_in_environment

        self._test.enter_context(bootstrap_in_environment(self.broker.bootstrap_servers))

    def end_test(self) -> None:
        self._test.close()


_SERVER = pytest.StashKey[_SharedBroker]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("coterie", "brokers for tests of Kafka clients (coterie.testing)")
    group.addoption(
        "--coterie-report",
        metavar="DIR",
        default=None,
        help="write a report in HTML of the groups of each failing test to this directory",
    )
    group.addoption(
        "--coterie-seed",
        metavar="N",
        type=int,
        default=None,
        help="run tests under coterie.testing.chaos with the faults of this seed alone",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "kafka(settings=None, topics=None, nodes=1, **options): how the broker of the fixture kafka_broker is made; "
        "the arguments are those of coterie.testing.KafkaBroker",
    )
    seed = config.getoption("--coterie-seed")
    if seed is not None:
        environment = pytest.MonkeyPatch()
        environment.setenv(SEED, str(seed))
        config.add_cleanup(environment.undo)


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    """A broker with fresh state for this test, in memory. `@pytest.mark.kafka(...)` says how it is made.

    Code under test finds its address in the environment, as COTERIE_BOOTSTRAP_SERVERS.
    """
    with _broker(request.node, **_marked(request.node)) as broker:
        yield broker


@pytest.fixture
def kafka_broker_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., KafkaBroker]]:
    """A function that starts brokers for this test; it takes the arguments of `coterie.testing.KafkaBroker`.

    All of them are stopped at the end of the test. The last one is COTERIE_BOOTSTRAP_SERVERS in the environment.
    """
    with ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(_broker(request.node, *args, **options))


@pytest.fixture(scope="session")
def kafka_server(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    """A broker for all tests of the session, which keeps its state from one to the next.

    With pytest-xdist there is one for each worker. COTERIE_BOOTSTRAP_SERVERS in the environment is its address while a
    test runs that uses it.
    """
    from coterie.testing.kafka_broker import KafkaBroker

    with KafkaBroker() as broker:
        server = request.session.stash[_SERVER] = _SharedBroker(broker)
        server.begin_test()
        yield broker
        server.end_test()
        del request.session.stash[_SERVER]


@contextmanager
def _broker(node: Any, *args: Any, **options: Any) -> Iterator[KafkaBroker]:
    from coterie.testing.environment import bootstrap_in_environment
    from coterie.testing.kafka_broker import KafkaBroker

    with KafkaBroker(*args, **options) as broker:
        brokers = node.stash.setdefault(_BROKERS, [])
        brokers.append(broker)
        with bootstrap_in_environment(broker.bootstrap_servers):
            yield broker
        broker.end_faults()


def _marked(node: Any) -> dict[str, Any]:
    """Return the arguments of the markers `kafka`; the closest to the test counts most."""
    options: dict[str, Any] = {}
    for mark in reversed(list(node.iter_markers("kafka"))):
        if mark.args:
            raise pytest.UsageError("the marker kafka has keyword arguments alone, such as topics={'orders': 3}")
        for name, value in mark.kwargs.items():
            if isinstance(value, dict) and isinstance(options.get(name), dict):
                options[name] = {**options[name], **value}
            else:
                options[name] = value
    return options


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let a test that uses the broker of the session find it in the environment, and no other."""
    server = item.session.stash.get(_SERVER, None)
    if server is not None and _uses_server(item):
        server.begin_test()
    yield
    server = item.session.stash.get(_SERVER, None)
    if server is not None:
        server.end_test()


def _uses_server(item: pytest.Item) -> bool:
    return "kafka_server" in getattr(item, "fixturenames", ())


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add to the report of a failing test what happened in its brokers."""
    outcome: Any = yield
    report: pytest.TestReport = outcome.get_result()
    if not report.failed or call.when == "setup":
        return
    brokers = [*item.stash.get(_BROKERS, [])]
    server = item.session.stash.get(_SERVER, None)
    if server is not None and _uses_server(item):
        brokers.append(server.broker)
    for number, broker in enumerate(brokers, 1):
        story = broker.last_story()
        if story:
            title = SECTION if len(brokers) == 1 else f"{SECTION} {number}"
            report.sections.append((title, story))
            directory = item.config.getoption("--coterie-report")
            if directory is not None:
                written = _write_report(Path(directory), item.nodeid, number, broker)
                report.sections.append((f"{title} report", f"{written}"))


def _write_report(directory: Path, test: str, number: int, broker: KafkaBroker) -> Path:
    from coterie.web import report

    name = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in test)
    path = directory / f"{name}{f'-{number}' if number > 1 else ''}.html"
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(report(test, broker.last_facts(), note=f"The broker of the test {test}."), encoding="utf-8")
    return path
