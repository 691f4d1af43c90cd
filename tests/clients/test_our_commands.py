"""`coterie groups` next to Apache Kafka's own tool, on one broker: the same rows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from apache_kafka import needs_apache_kafka
from client.admin_stories import create, member_of
from clients.harness import BrokerProcess
from clients.tools import Tools
from coterie.cli.app import app
from coterie.client.admin import Admin
from coterie.client.types import OffsetAndMetadata, TopicPartition

pytestmark = [pytest.mark.real_time, needs_apache_kafka]


@pytest.fixture(scope="module")
def tools(broker: BrokerProcess) -> Iterator[Tools]:
    with Tools(broker.bootstrap) as runner:
        yield runner


def rows(table: str) -> list[list[str]]:
    """From the header on, cut where there are blanks; the one in a coordinator's name does not count."""
    lines = [line for line in table.replace("  (", " (").splitlines() if line.strip()]
    begin = next(at for at, line in enumerate(lines) if line.startswith("GROUP"))
    return [re.split(r"\s+", re.sub(r"\s+\((ID|\d+)\)", r"(\1)", line.strip())) for line in lines[begin:]]


@pytest.mark.parametrize(
    "view", [[], ["--members"], ["--members", "--verbose"], ["--state"], ["--verbose"]], ids=" ".join
)
def test_a_group_looks_as_kafkas_tool_shows_it(broker: BrokerProcess, tools: Tools, name: str, view: list[str]) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        create(admin, name, 3)
        offsets = {
            TopicPartition(name, 0): OffsetAndMetadata(0, leader_epoch=0),
            TopicPartition(name, 2): OffsetAndMetadata(0),
        }
        assert not any(admin.alter_group_offsets(name, offsets).values())
    command = {"--members": "members", "--state": "state"}.get(next(iter(view), ""), "describe")
    more = ["--verbose"] if "--verbose" in view else []
    with member_of(broker.bootstrap, name, name, 2):
        theirs = rows(tools.groups("--describe", "--group", name, *view))
        ours = rows(CliRunner().invoke(app, ["groups", command, name, "-b", broker.bootstrap, *more]).stdout)
    assert ours[0] == theirs[0] and sorted(ours[1:]) == sorted(theirs[1:]) and len(ours) > 1


def test_a_reset_plans_what_kafkas_tool_plans(broker: BrokerProcess, tools: Tools, name: str) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        create(admin, name, 2)
    for target in (
        ["--to-earliest"],
        ["--to-latest"],
        ["--to-offset", "7"],
        ["--to-current"],
        ["--by-duration", "PT1H"],
    ):
        theirs = rows(tools.groups("--reset-offsets", "--group", name, "--topic", name, *target, "--dry-run"))
        ours = CliRunner().invoke(app, ["groups", "reset", name, "--topic", name, *target, "-b", broker.bootstrap])
        found = rows(ours.stdout)
        assert found[0] == theirs[0] and sorted(found[1:]) == sorted(theirs[1:]) and len(found) == 3
