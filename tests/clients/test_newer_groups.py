"""`coterie groups` on Apache Kafka with groups of the newer protocols, next to Kafka's own tool: the same rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from typer.testing import CliRunner

from apache_kafka import ApacheKafka, needs_apache_kafka
from client.admin_stories import create
from clients.test_our_commands import rows
from clients.tools import Tools
from coterie.cli.app import app
from coterie.client.admin import Admin
from coterie.client.types import OffsetAndMetadata, TopicPartition
from newer_groups import settled, share_joins, streams_joins
from raw_kafka import RawConnection

pytestmark = [pytest.mark.real_time, needs_apache_kafka]
TOPIC = "orders"


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    """With a librdkafka member of a KIP-848 group, a share group and a streams group."""
    with (
        ApacheKafka({"offsets.topic.num.partitions": "2"}) as running,
        Admin(bootstrap_servers=running.bootstrap) as admin,
    ):
        create(admin, TOPIC, 3)
        create(admin, "old", 1)
        where = {"bootstrap.servers": running.bootstrap, "group.id": "newer", "group.protocol": "consumer"}
        member = Consumer({**where, "client.id": "librdkafka", "enable.auto.commit": False})
        member.subscribe([TOPIC])
        settled(lambda: (member.poll(0.1), len(member.assignment()))[1], lambda owned: owned == 3)
        with RawConnection(running.bootstrap) as connection:
            share_joins(connection, "shared", TOPIC)
            streams_joins(connection, "streaming", TOPIC)
        yield running
        member.close()


@pytest.fixture(scope="module")
def tools(kafka: ApacheKafka) -> Iterator[Tools]:
    with Tools(kafka.bootstrap) as runner:
        yield runner


def call(kafka: ApacheKafka, *words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["groups", *words, "-b", kafka.bootstrap])
    return result.exit_code, result.stdout, result.stderr


VIEWS: tuple[list[str], ...] = (
    [],
    ["--members"],
    ["--members", "--verbose"],
    ["--state"],
    ["--state", "--verbose"],
    ["--verbose"],
)


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
def test_a_newer_group_looks_as_kafkas_tool_shows_it(kafka: ApacheKafka, tools: Tools, view: list[str]) -> None:
    theirs = rows(tools.groups("--describe", "--group", "newer", *view))
    command = {"--members": "members", "--state": "state"}.get(next(iter(view), ""), "describe")
    code, out, said = call(kafka, command, "newer", *(word for word in view if word == "--verbose"))
    ours = rows(out)
    assert code == 0, said
    assert ours[0] == theirs[0] and sorted(ours[1:]) == sorted(theirs[1:]) and len(ours) > 1


def test_every_group_is_listed_with_its_type_and_described(kafka: ApacheKafka, tools: Tools) -> None:
    theirs = {tuple(row[:2]) for row in rows(tools.all_groups("--list"))}
    code, out, _ = call(kafka, "list", "--all")
    assert code == 0 and {tuple(row[:2]) for row in rows(out)} == theirs and len(theirs) >= 4
    for words in (["describe"], ["members"], ["state"], ["describe", "newer", "shared", "streaming"]):
        code, out, said = call(kafka, *words)
        assert code == 0 and "newer" in out, said
    assert 'group "shared" is a share group' in said and 'group "streaming" is a streams group' in said


def test_offsets_are_deleted_as_kafkas_tool_does_it(kafka: ApacheKafka, tools: Tools) -> None:
    """Its own words for the errors are other ones; what is deleted and what is refused is the same."""
    old = TopicPartition("old", 0)
    with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        for by_kafka in (True, False):
            assert not any(admin.alter_group_offsets("simple", {old: OffsetAndMetadata(0)}).values())
            if by_kafka:
                tools.groups("--delete-offsets", "--group", "simple", "--topic", "old")
            else:
                assert call(kafka, "delete-offsets", "simple", "--topic", "old")[0] == 0
            assert not admin.list_group_offsets("simple")
    theirs = tools.groups("--delete-offsets", "--group", "newer", "--topic", TOPIC)
    code, out, said = call(kafka, "delete-offsets", "newer", "--topic", TOPIC)
    assert theirs.count("GroupSubscribedToTopicException") == said.count("GROUP_SUBSCRIBED_TO_TOPIC") == 3
    assert (code, out) == (1, "")
    assert "GroupIdNotFoundException" in tools.groups("--delete-offsets", "--group", "nosuch", "--topic", TOPIC)
    assert "GROUP_ID_NOT_FOUND" in call(kafka, "delete-offsets", "nosuch", "--topic", TOPIC)[2]


def test_a_report_of_kafkas_directory_names_what_it_does_not_show(kafka: ApacheKafka) -> None:
    done = CliRunner().invoke(app, ["report", str(kafka.data_dir)])
    assert done.exit_code == 0
    for said in ("1 consumer group of KIP-848 (newer)", "1 share group of KIP-932 (shared)", "(streaming)"):
        assert said in done.stdout and said in done.stderr
