"""`coterie groups` next to Apache Kafka's own tools, on one cluster: the same columns, the same cells.

The groups are of both protocols, with a static member, a partition that nobody has committed and one that nobody owns.
`make conformance` does it on Apache Kafka as well.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from apache_kafka import needs_apache_kafka
from client.admin_stories import create
from clients.either import EitherBroker, apache_kafka, coterie
from clients.tools import Tools
from clients.trial import ALL
from coterie import Consumer, Producer
from coterie.cli.app import app
from coterie.client.admin import Admin, GroupDescription
from coterie.client.types import OffsetAndMetadata, TopicPartition

pytestmark = [pytest.mark.real_time, needs_apache_kafka]

BROKERS = {"coterie": coterie, "kafka": apache_kafka}
in_conformance = pytest.mark.skipif(not ALL, reason="run by make conformance")
PROTOCOLS = ("classic", "consumer")
EMPTY = "empty"
"""A group that has had commits, and never a member."""
PATIENCE_S = 90.0
VIEWS: dict[str, Sequence[str]] = {
    "--offsets": ("describe",),
    "--offsets --verbose": ("describe", "--verbose"),
    "--members": ("members",),
    "--members --verbose": ("members", "--verbose"),
    "--state": ("state",),
    "--state --verbose": ("state", "--verbose"),
}
"""What is shown of groups: the options of Kafka's tool, and our command."""


@dataclass
class Cluster:
    bootstrap: str
    tools: Tools

    def ours(self, *words: str) -> str:
        result = CliRunner().invoke(app, ["groups", *words, "-b", self.bootstrap])
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture(scope="module", params=["coterie", pytest.param("kafka", marks=in_conformance)])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("commands")
    with BROKERS[request.param](directory) as broker, Tools(broker.bootstrap) as tools, ExitStack() as members:
        _make_groups(broker, members)
        yield Cluster(broker.bootstrap, tools)


def _make_groups(broker: EitherBroker, members: ExitStack) -> None:
    """Two members own three partitions of a topic; two of these, and one of another topic, have been committed."""
    where = {"bootstrap.servers": broker.bootstrap}
    with Admin(where) as admin:
        for name in ("read", "old"):
            create(admin, name, 3)
        with Producer(where) as producer:
            for number in range(30):
                producer.send("read", str(number), partition=number % 3)
        offsets = {
            TopicPartition("read", 0): OffsetAndMetadata(4, leader_epoch=0),
            TopicPartition("read", 2): OffsetAndMetadata(10),
            TopicPartition("old", 1): OffsetAndMetadata(0),
        }
        for group in (*PROTOCOLS, EMPTY):
            assert not any(admin.alter_group_offsets(group, offsets).values())
        for protocol in PROTOCOLS:
            _join(admin, members, where, protocol)


def _join(admin: Admin, members: ExitStack, where: dict[str, str], protocol: str) -> None:
    about: dict[str, Any] = {"group.id": protocol, "group.protocol": protocol, "enable.auto.commit": False}
    joined = []
    for client_id, instance_id in (("fixed", "desk-1"), ("loose", None)):
        named = {"client.id": client_id, "group.instance.id": instance_id}
        joined.append(members.enter_context(Consumer({**where, **about, **named})))
        joined[-1].subscribe(["read"])
    give_up = time.monotonic() + PATIENCE_S
    while not (sorted(len(one.assignment()) for one in joined) == [1, 2] and _is_stable(admin, protocol)):
        assert time.monotonic() < give_up, [one.assignment() for one in joined]
        for one in joined:
            one.poll(0.1)


def _is_stable(admin: Admin, group: str) -> bool:
    found = admin.describe_groups([group])[group]
    return isinstance(found, GroupDescription) and found.state == "Stable"


Table = tuple[list[str], list[list[str]]]


def tables(text: str) -> list[Table]:
    """Return the header and the rows of each table; an empty cell is `-`. Sentences about a group are left out."""
    found: list[Table] = []
    starts: list[int] = []
    for line in text.splitlines():
        if line.startswith("GROUP "):
            starts = [one.start() for one in re.finditer(r"(?<!\S)[^\s(]", line)]
            found.append((_cells(line, starts), []))
        elif not line.strip():
            starts = []
        elif starts and not line.startswith("Consumer group "):
            found[-1][1].append(_cells(line, starts))
    return found


def _cells(line: str, starts: Sequence[int]) -> list[str]:
    """Cut a line where the columns of its table begin. Blanks in a cell, as in a coordinator's name, do not count."""
    parts = [line[begin:end] for begin, end in zip(starts, [*starts[1:], len(line)], strict=True)]
    return [re.sub(r"\s+", "", part) or "-" for part in parts]


def cells_of(text: str) -> list[dict[str, str]]:
    """Return the rows of all tables by column; a column that only another group has is empty."""
    columns = {column for header, _ in tables(text) for column in header}
    rows = [dict(zip(header, row, strict=True)) for header, some in tables(text) for row in some]
    return sorted(
        ({one: row.get(one, "-") for one in sorted(columns)} for row in rows), key=lambda row: [*row.values()]
    )


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("group", [*PROTOCOLS, EMPTY])
def test_a_group_looks_as_kafkas_tool_shows_it(cluster: Cluster, group: str, view: str) -> None:
    theirs = tables(cluster.tools.groups("--describe", "--group", group, *view.split()))
    command, *more = VIEWS[view]
    ours = tables(cluster.ours(command, group, *more))
    if "--members" in view and group == EMPTY:
        assert [rows for _, rows in [*theirs, *ours] if rows] == []
        return
    ((header, rows),), ((our_header, our_rows),) = theirs, ours
    assert our_header == header and sorted(our_rows) == sorted(rows) and len(rows) > 0


@pytest.mark.parametrize("view", VIEWS)
def test_all_groups_look_as_kafkas_tool_shows_them(cluster: Cluster, view: str) -> None:
    theirs = cells_of(cluster.tools.groups("--describe", "--all-groups", *view.split()))
    assert cells_of(cluster.ours(*VIEWS[view])) == theirs and {one["GROUP"] for one in theirs} >= {*PROTOCOLS}


def test_groups_are_listed_as_kafkas_tools_list_them(cluster: Cluster) -> None:
    theirs = cells_of(cluster.tools.groups("--list", "--state", "--type"))
    assert cells_of(cluster.ours("list")) == theirs and len(theirs) == 3
    for option in (["--state", "stable"], ["--state", "Empty"], ["--type", "consumer"], ["--type", "classic"]):
        chosen = tables(cluster.tools.groups("--list", *option))
        ours = tables(cluster.ours("list", *option))
        assert sorted(row[0] for row in ours[0][1]) == sorted(row[0] for row in chosen[0][1])
    ours_by_kind = [
        {name: row[name] for name in ("GROUP", "TYPE", "PROTOCOL")}
        for row in cells_of(cluster.ours("list", "--all", "--verbose"))
    ]
    assert sorted(ours_by_kind, key=str) == sorted(cells_of(cluster.tools.all_groups("--list")), key=str)


def test_a_reset_plans_what_kafkas_tool_plans(cluster: Cluster) -> None:
    for target in (
        ["--to-earliest"],
        ["--to-latest"],
        ["--to-offset", "7"],
        ["--to-current"],
        ["--by-duration", "PT1H"],
    ):
        theirs = cells_of(
            cluster.tools.groups("--reset-offsets", "--group", EMPTY, "--topic", "read", *target, "--dry-run")
        )
        assert cells_of(cluster.ours("reset", EMPTY, "--topic", "read", *target)) == theirs and len(theirs) == 3
