"""`coterie report` of a real data directory: as the broker told it, and as `__consumer_offsets` alone lets conclude."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from coterie import Broker, Consumer
from coterie.cli.app import app
from coterie.cli.report import DERIVED, OBSERVED, all_facts
from coterie.client.admin import Admin, NewTopic, checked
from coterie.facts import AssignmentStored, Fact
from coterie.ledger import Rebalance, RebalanceOutcome, fold, intervals_of
from coterie.protocol.records import BatchRecord, build_batch

QUICK = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.assignment.interval.ms": 0,
}
CLASSIC = {"heartbeat.interval.ms": 100}
CONSUMER = {"group.protocol": "consumer"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classic group lives."""
    return lived(tmp_path_factory.mktemp("report") / "data", CLASSIC)


@pytest.fixture(scope="module")
def consumer_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A consumer group (KIP-848) lives the same life."""
    return lived(tmp_path_factory.mktemp("consumer-report") / "data", CONSUMER)


def lived(home: Path, protocol: Mapping[str, object]) -> Path:
    """One member, a second, the first leaves, the second comes back as a static one, everybody leaves."""
    with Broker(home, QUICK) as broker:
        where = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "shop", **protocol}
        with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            checked(admin.create_topics([NewTopic("orders", 4)]))
        first, second = Consumer(where, client_id="first"), Consumer(where, client_id="second")
        first.subscribe(["orders"])
        second.subscribe(["orders"])
        until(lambda: len(first.assignment()) == 4, first)
        until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
        first.close()
        until(lambda: len(second.assignment()) == 4, second)
        second.close()
        for _ in range(2):
            static = Consumer(where, client_id="static", group_instance_id="till")
            static.subscribe(["orders"])
            until(lambda: len(static.assignment()) == 4, static)  # noqa: B023  it is this one's
            static.close()
    return home


def until(it_is_so: Callable[[], bool], *consumers: Consumer) -> None:
    for _ in range(600):
        for consumer in consumers:
            consumer.poll(0.05)
        if it_is_so():
            return
    raise AssertionError("it never was so")


@pytest.fixture
def without_facts(data: Path, tmp_path: Path) -> Path:
    return stripped(data, tmp_path)


def stripped(data: Path, into: Path) -> Path:
    """Return a copy as Kafka's directory would be."""
    shutil.copytree(data, into / "data")
    shutil.rmtree(into / "data" / "__coterie_facts-0")
    return into / "data"


def test_the_page_is_made_of_what_the_broker_kept(data: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(data), "-o", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.html").read_text()
    assert OBSERVED in page and "Group shop" in page and "the consumer is being closed" in page


def test_without_facts_it_is_concluded_from_the_offsets_topic_and_says_so(without_facts: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(without_facts)])
    assert done.exit_code == 0, done.output
    assert DERIVED in done.stdout and "Group shop" in done.stdout


def test_what_the_offsets_topic_does_not_say_is_called_unknown(without_facts: Path) -> None:
    """It has no word of how long a rebalance took, what it cost, and whether who is gone left or crashed."""
    page = CliRunner().invoke(app, ["report", str(without_facts)]).stdout
    assert ": disappeared (left, crashed or timed out: the log does not say)" in page and ": left</span>" not in page
    assert "<td class='n'>unknown</td><td class='n'>unknown</td>" in page, "join and sync"
    assert "0.00 s" not in page and "<b>0.0</b>" not in page and "<b>0 ms</b>" not in page
    assert "leader rejoined" not in page and "<td>member left" not in page


def test_both_agree_on_generations_and_on_who_owned_what_next(data: Path, without_facts: Path) -> None:
    (observed, _), (derived, _) = all_facts(data), all_facts(without_facts)
    assert stored(observed) == stored(derived) != []
    rebalances = [one for one in fold(observed) if one.outcome is RebalanceOutcome.STABLE]
    concluded = [one for one in fold(derived) if one.outcome is RebalanceOutcome.STABLE]
    assert [(one.generation_id, one.protocol_name, one.leader_id) for one in rebalances] == [
        (one.generation_id, one.protocol_name, one.leader_id) for one in concluded
    ]
    assert [len(one.moves) for one in rebalances] == [len(one.moves) for one in concluded]
    order = [[(one.partition, one.owner) for one in intervals_of(told)] for told in (observed, derived)]
    assert set(order[0]) == set(order[1])


def stored(told: Sequence[Fact]) -> list[tuple[int, dict[str, bytes]]]:
    return [(fact.generation_id, dict(fact.assignments)) for fact in told if isinstance(fact, AssignmentStored)]


def test_a_consumer_group_is_shown_with_its_phases(consumer_data: Path) -> None:
    """K2, K13: epochs, the phases of this protocol, and who had to revoke."""
    page = CliRunner().invoke(app, ["report", str(consumer_data)]).stdout
    assert "<th>epoch</th>" in page and "<th>assigning</th>" in page and "<th>reconciling</th>" in page
    assert "first revoked: " in page and "last to reconcile: second" in page
    tables = page.split('<details id="tables"')[1].split("</details>")[0]  # what is read; the script has the word
    assert "unknown" not in tables and "Group shop" in tables


def test_the_records_of_a_consumer_group_show_what_its_facts_do(consumer_data: Path, tmp_path: Path) -> None:
    """K27: each step is a record, with its time; the names of topics come from the directory of Kafka, too."""
    data = stripped(consumer_data, tmp_path)
    (observed, _), (derived, note) = all_facts(consumer_data), all_facts(data)
    assert note == DERIVED
    rebalances = [(one, two) for one, two in zip(fold(observed), fold(derived), strict=True)]
    assert len(rebalances) == 5, "joins and leaves of two members; the static one joins, and its restart is none"
    for one, two in rebalances:
        assert (one.generation_id, one.outcome, moved(one)) == (two.generation_id, two.outcome, moved(two))
        assert one.took_ms is not None and two.took_ms is not None and abs(one.took_ms - two.took_ms) < 5_000
    page = CliRunner().invoke(app, ["report", str(data)]).stdout
    assert "orders-3" in page and "first revoked: " in page and "at least" in page
    assert "<td class='n'>before" not in page, "it is known when each began"


def test_a_group_that_is_not_there_and_a_directory_that_is_none_are_named(data: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(data), "--group", "shoe"])
    assert done.exit_code == 1 and "'shoe'" in done.stderr
    done = CliRunner().invoke(app, ["report", str(tmp_path / "nothing")])
    assert done.exit_code == 1 and "is not a directory" in done.stderr
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert done.exit_code == 1 and "is not a Coterie or Kafka data directory" in done.stderr


def test_a_file_that_ends_in_svg_is_the_picture_alone(data: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(data), "-o", str(tmp_path / "picture.svg")])
    assert done.exit_code == 0, done.output
    svg = ET.fromstring((tmp_path / "picture.svg").read_text())
    assert svg.tag.endswith("svg") and any(element.get("class") == "bar" for element in svg.iter())


def test_groups_of_newer_protocols_are_named_as_not_shown(tmp_path: Path) -> None:
    """As Kafka writes them: 11 and 12 of share groups, 17 of streams groups; 99 is of the future."""

    def record(kind: int, group: str) -> BatchRecord:
        key = kind.to_bytes(2, "big") + len(group).to_bytes(2, "big") + group.encode()
        return BatchRecord(timestamp=0, key=key, value=b"\0\0\0")

    partition = tmp_path / "data" / "__consumer_offsets-0"
    partition.mkdir(parents=True)
    groups = [(11, "n2"), (12, "n1"), (11, "n1"), (17, "streaming"), (99, "later")]
    batch = build_batch([record(*one) for one in groups])
    (partition / "00000000000000000000.log").write_bytes(bytes(batch))
    said = "Not shown yet: 2 share groups of KIP-932 (n1, n2); 1 streams group of KIP-1071 (streaming)."
    done = CliRunner().invoke(app, ["report", str(tmp_path / "data")])
    assert done.exit_code == 0 and said in done.stdout and done.stderr == f"coterie: {said}\n"
    done = CliRunner().invoke(app, ["report", str(tmp_path / "data"), "--group", "n1"])
    assert done.exit_code == 1
    assert done.stderr == "coterie: group 'n1' is a share group (KIP-932): this type is not supported yet\n"


def moved(one: Rebalance) -> list[tuple[object, str, str]]:
    return sorted((move.partition, move.old_owner, move.new_owner) for move in one.moves)
