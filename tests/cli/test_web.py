"""`coterie serve --web` and `coterie web` as processes, with real members: what their pages are told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from broker.peer import Serving
from coterie import Broker, Consumer, Producer
from coterie.broker.io.clock import wall_ms
from coterie.cli.app import app
from coterie.client.admin import Admin, NewTopic, checked

WITHIN_S = 90.0
READS: Any = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
QUICK = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 500}


def asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:
        return json.load(answer)


def until(found: Callable[[], Any]) -> Any:
    ends_s = time.monotonic() + WITHIN_S
    while time.monotonic() < ends_s:
        value = found()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError("it never was so")


def lived(bootstrap: str) -> None:
    """A member reads five of ten records of two partitions, and crashes; another reads the rest and leaves."""
    where = {"bootstrap.servers": bootstrap}
    with Admin(where) as admin:
        checked(admin.create_topics([NewTopic("orders", 2)]))
    with Producer(where) as producer:
        for number in range(10):
            producer.send("orders", str(number), partition=number % 2)
    first = Consumer(
        where, group_id="bar", client_id="first", session_timeout_ms=5_000, heartbeat_interval_ms=500, **READS
    )
    first.subscribe(["orders"])
    for _ in range(5):
        next(first)
    first.commit()
    first.close(leave=False)
    with Consumer(where, group_id="bar", client_id="second", **READS) as second:
        second.subscribe(["orders"])
        for _ in range(5):
            next(second)
        second.commit()


def causes(url: str) -> list[str | None]:
    """The causes of the rebalances that have ended; empty until the group has emptied."""
    listed = asked(f"{url}/api/groups")["groups"]
    if [row["group"] for row in listed] != ["bar"] or listed[0]["state"] != "Empty" or listed[0]["lag"] != 0:
        return []
    rows = asked(f"{url}/api/groups/bar")["rows"]
    found = [row["cause"] for row in rows if row["ended"] is not None]
    return found if len(found) >= 3 else []


@pytest.mark.real_time
def test_the_page_of_a_broker_has_what_its_coordinator_saw(tmp_path: Path) -> None:
    log = tmp_path / "log"
    sets = [word for name, value in QUICK.items() for word in ("--set", f"{name}={value}")]
    with Serving(None, "--web", "--web-address", "127.0.0.1:0", *sets, log=log) as broker:
        bootstrap = broker.ready()
        (line,) = [line for line in log.read_text().splitlines() if "url=" in line]
        url = line.partition("url=")[2]
        lived(bootstrap)
        assert until(lambda: causes(url)) == ["new member", "new member", "member left"]
        detail = asked(f"{url}/api/groups/bar")
        assert {one["name"] for one in detail["findings"]} >= {"crash"} and detail["grades"] == ["observed"]
        assert [name[0] for name in detail["names"]] == ["first", "second"]
        ((_, from_ms, to_ms, partitions),) = detail["dead"]
        assert (to_ms - from_ms, partitions) == (5_000, 2)
        with urllib.request.urlopen(f"{url}/metrics", timeout=WITHIN_S) as answer:
            assert 'coterie_group_rebalances_total{cause="new member",group="bar"} 2.0' in answer.read().decode()
        broker.signal()
        broker.process.wait(WITHIN_S)
    assert broker.process.returncode == 0 and "Traceback" not in log.read_text()


@contextmanager
def web(bootstrap: str) -> Iterator[str]:
    command = [str(Path(sys.executable).with_name("coterie")), "web", "-b", bootstrap, "--web-address", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("ready http://127.0.0.1:"), process.communicate(timeout=WITHIN_S)
            yield line.removeprefix("ready ").strip()
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=WITHIN_S)[1]
            assert process.returncode == 0 and said == "", said
        finally:
            process.kill()


@pytest.mark.real_time
@pytest.mark.skipif(
    abs(wall_ms() - time.time() * 1000) > 60_000,
    reason="the broker's clock is wrong (COTERIE_TEST_CLOCK): samples have the time of the page's own machine, and are "
    "merged with the log by time",
)
@pytest.mark.parametrize("records_facts", [True, False])
def test_the_page_of_a_cluster_has_what_its_topics_and_samples_say(records_facts: bool) -> None:
    """Without recorded facts it is as with Apache Kafka: times and causes that the log does not have are unknown."""
    settings = {**QUICK, "coterie.facts.enable": records_facts}
    with Broker(settings=settings) as broker, web(broker.bootstrap_servers) as url:
        assert asked(f"{url}/api/groups")["groups"] == []
        lived(broker.bootstrap_servers)
        found = until(lambda: causes(url))
        detail = asked(f"{url}/api/groups/bar")
    if records_facts:
        assert found == ["new member", "new member", "member left"]
        assert set(detail["grades"]) >= {"observed", "derived", "sampled"}
    else:
        assert found == ["new member", None, "member disappeared"], "a crash and a join at once, then a leave"
        assert "observed" not in detail["grades"] and all(row["began"] is None for row in detail["rows"])


def test_options_of_the_page_without_it_and_addresses_that_are_none_are_refused() -> None:
    done = CliRunner().invoke(app, ["serve", "--memory", "--webhook", "http://localhost"])
    assert done.exit_code == 1 and "--webhook is for the page: give --web as well" in done.stderr
    done = CliRunner().invoke(app, ["web", "--web-address", "9080"])
    assert done.exit_code == 1 and "is not an address" in done.stderr
    done = CliRunner().invoke(app, ["web", "--web-address", "0.0.0.0:0"])
    assert done.exit_code == 1 and "COTERIE_WEB_TOKEN" in done.stderr
    done = CliRunner().invoke(app, ["web", "--web-address", "127.0.0.1:0", "--webhook", "ftp://x"])
    assert done.exit_code == 1 and "is not an address" in done.stderr
    done = CliRunner().invoke(app, ["web", "-b", "127.0.0.1:1", "--web-address", "127.0.0.1:0"])
    assert done.exit_code == 1 and "127.0.0.1:1" in done.stderr
