"""`coterie plan`, as it is called: from a file, from a ledger, and from a live group."""

from __future__ import annotations

import csv
import json
import pickle
import socket
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from coterie import Broker, Consumer, Producer
from coterie.cli.app import app
from coterie.cli.plan_worlds import Progress, check_master
from coterie.client.admin import Admin, NewTopic
from coterie.errors import CoterieError
from coterie.forecast import Deploy, Question, parse_group
from coterie.forecast.variants import Outcome, World, outcome_of

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


def interrupt_after(worlds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C when so many worlds have ended."""
    ran: list[World] = []

    def interrupted(world: World) -> Outcome:
        if len(ran) == worlds:
            raise KeyboardInterrupt
        ran.append(world)
        return outcome_of(world)

    monkeypatch.setattr("coterie.cli.plan_worlds.outcome_of", interrupted)


def test_ctrl_c_keeps_what_has_ended_and_says_what_is_missing(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seeds have both variants. The row of the fifth world is kept too, though the answer cannot use it."""
    interrupt_after(5, monkeypatch)
    more = ("--compare", "session.timeout.ms=6000", "--seeds", "0-9", "--jobs", 1, "--out", tmp_path)
    found = plan("crash", file, *more)
    assert found.exit_code == 130
    assert "interrupted: 5 of 20 worlds ran" in found.stderr and "as it is" in found.stdout
    assert "rests on 2 of 10 seeds" in found.stderr and "8 are missing, from 2 on" in found.stderr
    with (tmp_path / "worlds.csv").open() as table:
        assert [row["seed"] for row in csv.DictReader(table)] == ["0", "0", "1", "1", "2"]
    assert "2 seeds" in found.stdout and (tmp_path / "plan.html").exists()


def test_ctrl_c_before_a_seed_is_complete_keeps_the_rows_and_gives_no_answer(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_after(1, monkeypatch)
    found = plan("crash", file, "--compare", "session.timeout.ms=6000", "--jobs", 1, "--out", tmp_path)
    assert found.exit_code == 130 and "VARIANT" not in found.stdout
    assert "1 of 20 worlds ran" in found.stderr and "there is no answer" in found.stderr
    assert str(tmp_path / "worlds.csv") in found.stderr
    assert len((tmp_path / "worlds.csv").read_text().splitlines()) == 2


def test_a_mistake_that_only_a_world_shows_is_named(file: Path) -> None:
    found = plan("slow", file, "--set", "max.poll.interval.ms=1", "--seeds", "0-3", "--jobs", 2)
    assert found.exit_code == 1 and "does not settle" in found.stderr


def test_progress_has_worlds_rate_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    """The first line after a second has no estimate; in a log the others are ten seconds apart."""
    times = iter([0.0, 0.5, 2.0, 3.0, 12.0, 250.0, 500.0, 501.0])
    progress = Progress(6, lambda: next(times))
    for _ in range(6):
        progress.another()
    progress.end()
    assert capsys.readouterr().err.splitlines() == [
        "2 of 6 worlds",
        "4 of 6 worlds, 0.3 worlds/s, about 6 s left",
        "5 of 6 worlds, 0.0 worlds/s, about 50 s left",
        "6 of 6 worlds in 8 min 21 s, 0.0 worlds/s",
    ]


def test_what_takes_less_than_a_second_has_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 0.1, 0.2, 0.3])
    progress = Progress(2, lambda: next(times))
    progress.another()
    progress.another()
    progress.end()
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("master", "why"),
    [
        ("nonsense", r"no such master; give local\[2\]"),
        ("local[two]", "no such master"),
        ("spark://head", "'head' is not HOST:PORT"),
        ("spark://127.0.0.1:1", "cannot be reached: 127.0.0.1:1: Connection refused. Start the master"),
    ],
)
def test_a_master_that_cannot_be_used_is_named_at_once(master: str, why: str) -> None:
    with pytest.raises(CoterieError, match=why):
        check_master(master)


def test_masters_that_spark_has_are_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        masters = ("local", "local[2]", "local[*]", "local[2,4]", "yarn", "k8s://https://h:1")
        for master in (*masters, f"spark://127.0.0.1:1,127.0.0.1:{head.getsockname()[1]}"):
            check_master(master)


def test_without_java_or_pyspark_the_message_says_what_to_do(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    no_java = plan("crash", file, "--spark", "--out", tmp_path / "out")
    assert no_java.exit_code == 1 and "Java 17" in no_java.stderr and "Without --spark".lower() in no_java.stderr
    monkeypatch.setitem(sys.modules, "coterie.spark.sweep", None)
    no_spark = plan("crash", file, "--spark", "--out", tmp_path / "out")
    assert no_spark.exit_code == 1 and "pip install" in no_spark.stderr and "Without --spark" in no_spark.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "give either a FILE"),
        (("--compare", "nonsense"), "NAME=VALUE"),
        (("--compare", "session.timeout.mss=1"), "session.timeout.ms"),
        (("--at-most", "lag=1"), "worst_lag_s@p99=10"),
        (("--spark",), "--spark needs --out"),
        (("--master", "local[2]"), "add --spark"),
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
    for missing in (tmp_path / "none.toml", tmp_path):
        found = plan("steady", missing)
        assert found.exit_code == 1 and str(missing) in found.stderr and "coterie plan group NAME" in found.stderr


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
