"""A rebalance of real members on the open page, in a real browser: how long after the event is it there?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from apache_kafka import ApacheKafka, needs_apache_kafka
from broker.peer import Serving
from cli.test_web import QUICK as QUICK_CLASSIC
from cli.test_web import web
from clients.trial import ALL
from coterie import Broker, Consumer
from coterie.client.admin import Admin, NewTopic, checked
from web.browsing import browser, needs_chromium, opened

pytestmark = [needs_chromium, pytest.mark.real_time]

QUICK = {
    **QUICK_CLASSIC,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 500,
}
WITHIN_MS = 5_000
"""On a busy machine. Usually it is less than half a second; the test prints it."""
APPEARED = """(before) => new Promise((done) => {
  const look = () => {
    const rows = Coterie.open.history.rows;
    const shown = document.querySelectorAll('table.cards tbody tr').length;
    const last = rows[rows.length - 1];
    const event = last.began ?? last.ended; // the log of a classic group has the end alone
    if (rows.length > before && shown === rows.length && event !== null) done(Date.now() - event);
    else setTimeout(look, 10);
  };
  look();
})"""
"""Resolves, when a rebalance more than before is in the table with its time, to the milliseconds since then."""
Cluster = Callable[[Path], AbstractContextManager[tuple[str, str]]]


@contextmanager
def serve_web(directory: Path) -> Iterator[tuple[str, str]]:
    """The page of a broker itself. Yields the broker's address and the page's."""
    log = directory / "log"
    sets = [word for name, value in QUICK.items() for word in ("--set", f"{name}={value}")]
    with Serving(None, "--web", "--web-address", "127.0.0.1:0", *sets, log=log) as broker:
        bootstrap = broker.ready()
        (line,) = [line for line in log.read_text().splitlines() if "url=" in line]
        yield bootstrap, line.partition("url=")[2]


@contextmanager
def web_of_coterie(_directory: Path) -> Iterator[tuple[str, str]]:
    with Broker(settings={**QUICK, "coterie.facts.enable": False}) as broker, web(broker.bootstrap_servers) as url:
        yield broker.bootstrap_servers, url


@contextmanager
def web_of_kafka(_directory: Path) -> Iterator[tuple[str, str]]:
    with ApacheKafka({name: str(value) for name, value in QUICK.items()}) as kafka, web(kafka.bootstrap) as url:
        yield kafka.bootstrap, url


in_conformance = (needs_apache_kafka, pytest.mark.skipif(not ALL, reason="run by make conformance"))


@pytest.mark.parametrize(
    ("cluster", "protocol"),
    [
        (serve_web, "classic"),
        (web_of_coterie, "consumer"),
        pytest.param(serve_web, "consumer", marks=in_conformance),
        pytest.param(web_of_coterie, "classic", marks=in_conformance),
        pytest.param(web_of_kafka, "classic", marks=in_conformance),
        pytest.param(web_of_kafka, "consumer", marks=in_conformance),
    ],
)
def test_a_rebalance_is_on_the_open_page_soon(cluster: Cluster, protocol: str, tmp_path: Path) -> None:
    with cluster(tmp_path) as (bootstrap, url), browser() as chromium, ExitStack() as members:
        where: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "bar", "group.protocol": protocol}
        with Admin(bootstrap_servers=bootstrap) as admin:
            checked(admin.create_topics([NewTopic("orders", 4)]))
        joined: list[Consumer] = []

        def join(count: int) -> None:
            joined.append(members.enter_context(Consumer({**where, "client.id": f"member-{count}"})))
            joined[-1].subscribe(["orders"])
            while [len(one.assignment()) for one in joined] != [4 // count] * count:
                for one in joined:
                    one.poll(0.02)

        join(1)
        with opened(chromium, url) as page:
            page.until("document.querySelectorAll('table.cards tbody tr').length === 1")
            page.page.click("text=bar")
            page.drawn()
            page.until("Coterie.open.history.rows.length === 1 && Coterie.open.history.rows[0].ended !== null")
            page.page.evaluate(f"window.took = ({APPEARED})(1); null")
            join(2)
            took_ms = page.page.evaluate("window.took")
            assert page.said == []
    print(f"{cluster.__name__}, {protocol}: on the page {took_ms:.0f} ms after the event")  # noqa: T201  with pytest -s
    assert took_ms <= WITHIN_MS
