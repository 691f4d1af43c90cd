"""The commands that explain rebalances, as they are typed: on a live broker, a ledger, a data directory and logs."""

from __future__ import annotations

import csv
import gzip
import io
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coterie import Broker, Consumer, Producer
from coterie.cli.app import app
from coterie.cli.diagnosis import _loop
from coterie.cli.diagnosis_sources import parse_time, parse_zone
from coterie.cli.options import CommandError
from coterie.cli.stopping import stoppable
from coterie.client.admin import Admin, NewTopic
from coterie.errors import AuthorizationError, RequestTimedOutError
from diagnosis.test_merge import RECORDED

pytestmark = pytest.mark.real_time

PATIENCE_S = 90
LOG = str(RECORDED / "kafka-4.3.1.log")


@dataclass
class Crashed:
    """A broker with a group in which b has crashed; a reads everything."""

    bootstrap: str
    data: Path

    def run(self, *words: str, stdin: bytes | None = None) -> tuple[int, str, str]:
        environ = {"COTERIE_BOOTSTRAP": self.bootstrap, "COLUMNS": "120"}
        result = CliRunner().invoke(app, [*words], env=environ, input=stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert "Traceback" not in result.stderr
        return result.exit_code, result.stdout, result.stderr

    def json(self, *words: str) -> Any:
        status, out, err = self.run(*words, "-o", "json")
        assert status == 0, err
        return json.loads(out)


def wait_for(members: list[Consumer], counts: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S  # noqa: TID251
    while [len(one.assignment()) for one in members] != counts:
        assert time.monotonic() < deadline, [one.assignment() for one in members]  # noqa: TID251
        for one in members:
            one.poll(0.05)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashed]:
    data = tmp_path_factory.mktemp("crashed") / "data"
    settings = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 100}
    with Broker(data, settings=settings) as broker:
        where = broker.bootstrap_servers
        with Admin(bootstrap_servers=where) as admin, Producer(bootstrap_servers=where) as producer:
            admin.create_topics([NewTopic("t", 4)])
            for number in range(8):
                producer.send("t", str(number))
        about = {"group_id": "g", "auto_offset_reset": "earliest", "session_timeout_ms": 2_000}
        a = Consumer(bootstrap_servers=where, client_id="a", heartbeat_interval_ms=300, **about)  # type: ignore[arg-type]
        b = Consumer(bootstrap_servers=where, client_id="b", heartbeat_interval_ms=300, **about)  # type: ignore[arg-type]
        with a:
            a.subscribe(["t"])
            wait_for([a], [4])
            b.subscribe(["t"])
            wait_for([a, b], [2, 2])
            b.close(leave=False)
            wait_for([a], [4])
            a.commit()
            yield Crashed(where, data)


def test_why_is_a_paragraph_with_cause_member_cost_and_evidence(crashed: Crashed) -> None:
    status, out, _ = crashed.run("groups", "why", "g")
    assert status == 0
    for part in ("Cause: session expired, b on 127.0.0.1 (observed)", "It belongs to: crash", "Do: ", "Evidence:"):
        assert part in out
    assert "unknown" not in out


def test_why_as_json_has_every_statement_with_its_evidence(crashed: Crashed) -> None:
    (found,) = crashed.json("groups", "why", "g")
    (last,) = found["rebalance"]
    assert (last["cause"]["value"], last["cause"]["grade"]) == ("session expired", "observed")
    assert {one["grade"] for one in last["moves"]["evidence"]} == {"observed", "derived"}
    assert all(not one["disagreements"] for one in last.values() if isinstance(one, dict) and "disagreements" in one)
    assert [one["name"] for one in found["findings"]] == ["crash"]


def test_findings_in_every_format(crashed: Crashed) -> None:
    _, table, _ = crashed.run("groups", "findings")
    _, wide, _ = crashed.run("groups", "findings", "-o", "wide")
    _, text, _ = crashed.run("groups", "findings", "g", "-o", "csv")
    _, yaml, _ = crashed.run("groups", "findings", "-o", "yaml")
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["FINDING"] == "crash" and row["MEMBERS"] == "b" and "dead" in row["COST"]
    assert "ADVICE" in wide and "ADVICE" not in table
    assert yaml.startswith('- name: "crash"\n  severity: "warning"\n')
    (found,) = crashed.json("groups", "findings")
    assert found["cost"]["dead_ms"] == 2 * 2_000


def test_a_timeline_has_a_row_for_each_partition(crashed: Crashed) -> None:
    status, out, _ = crashed.run("groups", "timeline", "g")
    rows = [line for line in out.splitlines() if line.startswith("t-")]
    assert status == 0 and len(rows) == 4 and "A = a  B = b" in out
    assert sum("B" in row for row in rows) == 2
    assert len(crashed.json("groups", "timeline", "g")) >= 6


def test_a_ledger_explains_as_much_as_the_cluster_and_goes_on(crashed: Crashed, tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger")
    for _ in range(2):
        status, _, err = crashed.run("watch", "--ledger", ledger, "--for", "2", "--every", "0.5")
        assert status == 0
    assert "(continued)" in err and "\ncoterie: 0 records read" in err
    live, stored = crashed.json("groups", "why", "g"), crashed.json("groups", "why", "g", "--ledger", ledger)
    assert live[0]["rebalance"] == stored[0]["rebalance"]
    assert "crash" in crashed.run("groups", "findings", "--ledger", ledger)[1]


def test_watch_prints_what_is_new(crashed: Crashed) -> None:
    status, out, err = crashed.run("groups", "watch", "g", "--for", "1", "--every", "0.5")
    assert status == 0 and "watching" in err and not out  # nothing has happened since


def test_a_data_directory_and_a_time_range(crashed: Crashed) -> None:
    all_of = crashed.json("groups", "why", "g", "--data", str(crashed.data))
    assert all_of[0]["rebalance"][0]["cause"]["value"] == "session expired"
    later = crashed.json("groups", "why", "g", "--data", str(crashed.data), "--since", "2199-01-01")
    assert later[0]["rebalance"] == []


def test_the_log_of_a_broker_is_explained_plain_gzipped_and_from_stdin(crashed: Crashed, tmp_path: Path) -> None:
    packed = tmp_path / "server.log.gz"
    packed.write_bytes(gzip.compress(Path(LOG).read_bytes()))
    found = [crashed.json("explain", name, "--group", "g-classic")[0] for name in (LOG, str(packed))]
    assert [len(one["rebalances"]) for one in found] == [12, 12]
    assert found[0]["rebalances"][3]["cause"]["evidence"][0]["source"].startswith("kafka-4.3.1.log:")
    assert {one["name"] for one in found[0]["findings"]} >= {"crash", "heartbeat-lost", "duplicate-instance-id"}


def test_the_table_of_a_log_says_unknown_where_it_does_not_know(crashed: Crashed) -> None:
    _, out, _ = crashed.run("explain", LOG, "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {row["MOVED"] for row in rows} == {"unknown"} and {row["UNASSIGNED"] for row in rows} == {"unknown"}
    assert {row["TOOK"] for row in rows if row["GROUP"] == "g-consumer"} == {"unknown"}


def test_lines_of_a_log_can_be_stored_in_the_ledger(crashed: Crashed, tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger")
    assert crashed.run("explain", LOG, "--ledger", ledger)[0] == 0
    (found,) = crashed.json("groups", "why", "g-classic", "--ledger", ledger)
    assert found["rebalance"][0]["cause"]["grade"] == "logged"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("groups", "why", "nothing", "--log", LOG), "nothing is known about group"),
        (("groups", "why", "g", "--ledger", "no-such-ledger"), "is not a ledger"),
        (("explain", LOG, "--zone", "Mars"), "unknown zone"),
        (("explain", LOG, "--since", "yesterday"), "is not a time"),
        (("groups", "findings", "--log", LOG, "--since", "2026-01-02", "--until", "2026-01-01"), "is later than"),
        (("explain", "no-such-file"), "no-such-file: no such file or directory"),
    ],
)
def test_mistakes_are_one_line(crashed: Crashed, words: tuple[str, ...], said: str) -> None:
    status, _, err = crashed.run(*words)
    assert status == 1 and said in err and len(err.splitlines()) <= 2


def test_a_profile_has_the_settings_of_a_cluster(
    crashed: Crashed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("COTERIE_CONFIG", "")  # so that it is as before afterwards
    (tmp_path / "coterie").mkdir()
    (tmp_path / "coterie" / "prod.properties").write_text(f"bootstrap.servers={crashed.bootstrap}\n")
    there = CliRunner().invoke(app, ["--profile", "prod", "groups", "list"])
    missing = CliRunner().invoke(app, ["--profile", "test", "groups", "list"])
    wrong = CliRunner().invoke(app, ["--profile", "../prod", "groups", "list"])
    assert there.exit_code == 0 and "g  " in there.stdout
    assert (
        missing.exit_code == wrong.exit_code == 1
        and "there is no" in missing.stderr
        and "give the name" in wrong.stderr
    )


class Unreliable:
    """A cluster that is away three times, and then refuses."""

    def __init__(self) -> None:
        self.calls = 0

    def poll(self, _timeout: float) -> int:
        self.calls += 1
        raise RequestTimedOutError("no broker can be reached") if self.calls < 4 else AuthorizationError("not allowed")

    def sample(self) -> int:
        return 0


def test_a_watch_goes_on_when_the_cluster_is_away_and_ends_when_it_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = Unreliable()
    with stoppable() as stop, pytest.raises(AuthorizationError):
        _loop(cluster, stop, every_s=60, for_s=PATIENCE_S, step=lambda: None)  # type: ignore[arg-type]
    assert cluster.calls == 4 and capsys.readouterr().err.count("trying again") == 1


def test_a_log_of_something_else_says_so(crashed: Crashed, tmp_path: Path) -> None:
    other = tmp_path / "other.log"
    other.write_bytes(b"\xff\xfe nothing\n" * 3)
    status, _, err = crashed.run("explain", str(other))
    assert status == 0 and "none of 3 lines is about a consumer group" in err


@pytest.mark.parametrize(
    ("text", "ms"),
    [("90s", 910_000), ("15m", 100_000), ("PT15M", 100_000), ("1970-01-01T00:10", 600_000), ("0.5h", -800_000)],
)
def test_times(text: str, ms: int) -> None:
    assert parse_time(text, 1_000_000) == ms


def test_zones() -> None:
    assert str(parse_zone("Europe/Paris")) == "Europe/Paris" and str(parse_zone("+02:00")) == "UTC+02:00"
    with pytest.raises(CommandError):
        parse_zone("+2")
