"""`coterie plan`, as it is called: from a file, from a ledger, and from a live group."""

from __future__ import annotations

import csv
import json
import pickle
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from coterie import Broker, Consumer, Producer
from coterie.cli.app import app
from coterie.client.admin import Admin, NewTopic
from coterie.forecast import Deploy, Question, parse_group, simulate_group
from coterie.forecast.variants import World

GROUP = """
group = "orders"
members = 2
ms_per_record = 4
restart_s = 3
[topics.orders]
partitions = 4
records_per_s = 40
[settings]
session.timeout.ms = 8000
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "group.toml"
    path.write_text(GROUP)
    return path


def plan(*words: object) -> Result:
    found = CliRunner().invoke(app, ["plan", *map(str, words)])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found


def test_a_deploy_is_compared_with_a_variant_and_the_better_one_can_be_pasted(file: Path) -> None:
    found = plan("deploy", file, "--pause", 2, "--compare", "deploy.batch=2", "--seeds", "0-1", "--jobs", 1)
    assert found.exit_code == 0
    assert "as it is" in found.stdout and "deploy.batch=2" in found.stdout and "Recommendation: " in found.stdout
    assert "network_ms     assumed" in found.stdout and "members        given" in found.stdout


def test_two_processes_give_the_same_as_one(file: Path) -> None:
    one, two = (plan("crash", file, "--seeds", "0-2", "--jobs", jobs, "-o", "json").stdout for jobs in (1, 2))
    assert one == two
    (found,) = json.loads(one)
    costs = found["variants"][0]["costs"]
    assert 5 <= costs["detection_s"]["p50"] <= 8.5 and costs["duplicates"]["p90"] > 0
    assert found["rests_on"]["ms_per_record"] == "given"


def test_a_bound_that_is_not_met_is_exit_status_1(file: Path) -> None:
    met = plan("crash", file, "--seeds", "0", "--at-most", "detection_s@max=9")
    missed = plan("crash", file, "--seeds", "0", "--at-most", "detection_s@max=1")
    assert met.exit_code == 0 and missed.exit_code == 1
    assert "no variant meets all requirements" in missed.stdout


def test_a_page_and_a_table_are_written(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = plan("deploy", file, "--compare", "group.instance.id=each", "--seeds", "0-1", "--out", out)
    assert found.exit_code == 0
    page = (out / "plan.html").read_text()
    assert (
        "<svg" in page
        and "What it rests on" in page
        and "Lag over time" in page
        and "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    )
    with (out / "worlds.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == 4 and {row["variant"] for row in rows} == {"as it is", "group.instance.id=each"}
    assert all(row["rebalances"] == "0" for row in rows if row["variant"] != "as it is")


def test_ctrl_c_keeps_what_has_ended(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = simulate_group

    def interrupted(*world: object) -> object:
        if world[1] == 2:
            raise KeyboardInterrupt
        return run(*world)  # type: ignore[arg-type]

    monkeypatch.setattr("coterie.cli.plan.simulate_group", interrupted)
    found = plan("crash", file, "--seeds", "0-9", "--jobs", 1)
    assert found.exit_code == 130
    assert "rests on 2 of 10 seeds" in found.stderr and "as it is" in found.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "give either a FILE"),
        (("--compare", "nonsense"), "NAME=VALUE"),
        (("--compare", "session.timeout.mss=1"), "session.timeout.ms"),
        (("--at-most", "lag=1"), "worst_lag_s@p99=10"),
        (("--spark",), "--spark needs --out"),
        (("--seeds", "a"), "list of numbers"),
    ],
)
def test_mistakes_are_named(file: Path, words: tuple[str, ...], why: str) -> None:
    found = plan("deploy", *((file,) if words else ()), *words)
    assert found.exit_code == 1 and why in found.stderr, found.stderr


def test_a_file_that_is_no_group_says_what_is_wrong(tmp_path: Path) -> None:
    for name, text, why in (
        ("a.toml", "members = [", "cannot be read"),
        ("b.json", "[]", "it must be an object"),
        ("c.json", '{"members": 1}', "topics"),
    ):
        (tmp_path / name).write_text(text)
        found = plan("steady", tmp_path / name)
        assert found.exit_code == 1 and why in found.stderr, found.stderr


def test_tune_searches_and_says_what_it_found(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two candidates: the whole search takes minutes."""
    monkeypatch.setattr("coterie.forecast.variants.SESSIONS_S", (6,))
    monkeypatch.setattr("coterie.forecast.variants.COOPERATIVE", {})
    monkeypatch.setattr("coterie.forecast.variants.CONSUMER", {})
    found = plan("tune", file, "--pause", 2, "--seeds", "0-1", "--at-most", "detection_s@max=7", "--jobs", 1)
    assert found.exit_code == 0, found.output
    assert "candidates with 2 seeds" in found.stderr and "session.timeout.ms=6000" in found.stdout


@pytest.mark.real_time
def test_a_live_group_becomes_a_file_that_says_what_was_measured(tmp_path: Path) -> None:
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        where = {"bootstrap.servers": broker.bootstrap_servers}
        with Admin(where) as admin:
            admin.create_topics([NewTopic("orders", 3)])
        with (
            Producer(where) as producer,
            Consumer(
                where, group_id="g", group_instance_id="one", session_timeout_ms=9_000, max_poll_interval_ms=20_000
            ) as consumer,
        ):
            consumer.subscribe(["orders"])
            consumer.poll(0.5)
            producer.send("orders", "tea")
            found = plan("group", "g", "--bootstrap", broker.bootstrap_servers, "--for", 1)
            ledger = tmp_path / "ledger"
            watch = ["watch", "--bootstrap", broker.bootstrap_servers, "--ledger", str(ledger), "--for", "1"]
            assert CliRunner().invoke(app, watch).exit_code == 0
    assert found.exit_code == 0, found.output
    told = tomllib.loads(found.stdout)
    assert told["topics"]["orders"]["partitions"] == 3 and told["members"][0]["name"] == "one"
    assert told["settings"] == {
        "partition.assignment.strategy": "range",
        "session.timeout.ms": "9000",
        "max.poll.interval.ms": "20000",
        "group.instance.id": "each",
    }
    assert told["origins"]["restart_s"].startswith("assumed") and told["origins"]["members"].startswith("measured")
    (tmp_path / "group.toml").write_text(found.stdout)
    assert plan("crash", tmp_path / "group.toml", "--seeds", "0").exit_code == 0
    recorded = plan("crash", "--group", "g", "--ledger", ledger, "--seeds", "0", "-o", "json")
    assert recorded.exit_code == 0, recorded.output
    (answer,) = json.loads(recorded.stdout)
    assert answer["variants"][0]["settings"]["session.timeout.ms"] == "9000"


def test_worlds_can_be_sent_to_other_processes() -> None:
    """What Spark and a pool of processes send: a question and a seed."""
    model = parse_group({"members": 1, "topics": {"t": {"partitions": 1}}}, "test")
    world: World = (Question(model, Deploy()), 7)
    assert pickle.loads(pickle.dumps(world)) == world
