"""`coterie groups` with groups of the newer protocols, next to Apache Kafka's own tools: the same rows.

Consumer groups (KIP-848) are on Coterie and on Apache Kafka; share and streams groups on Apache Kafka alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as At
from typer.testing import CliRunner

from apache_kafka import ApacheKafka, needs_apache_kafka
from client.admin_stories import create
from clients.harness import BrokerProcess
from clients.tools import Tools, rows
from coterie.cli.app import app
from coterie.client.admin import Admin, GroupDescription
from coterie.client.types import OffsetAndMetadata, TopicPartition
from newer_groups import settled, share_joins, streams_joins
from raw_kafka import RawConnection

pytestmark = [pytest.mark.real_time, needs_apache_kafka]
TOPIC = "orders"
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
}
STATES = {"stable": "Stable", "reconciling": "Reconciling", "empty": "Empty"}
"""Groups of librdkafka members, and the state that each is in."""
ROWS = {
    "stable": {"--offsets": 3, "--members": 1, "--state": 1},
    "reconciling": {"--offsets": 3, "--members": 2, "--state": 1},
    "empty": {"--offsets": 1, "--members": 0, "--state": 1},
}
"""How many rows each view has."""
Kafka = pytest.mark.parametrize("broker", ["kafka"], indirect=True)


class Groups:
    """A broker with groups in all states, and Kafka's tools for it."""

    def __init__(self, bootstrap: str, stack: ExitStack, kafka: ApacheKafka | None) -> None:
        self.bootstrap = bootstrap
        self.kafka = kafka
        self._stack = stack
        self.admin = stack.enter_context(Admin(bootstrap_servers=bootstrap))
        self.tools = stack.enter_context(Tools(bootstrap))
        create(self.admin, TOPIC, 3)
        create(self.admin, "old", 1)
        self.has_all(self.member("stable", **{"group.instance.id": "till"})).commit(
            offsets=[At(TOPIC, 0, 0)], asynchronous=False
        )
        self.has_all(self.member("reconciling"))  # it is not polled any more, so it gives nothing up
        self.member("reconciling")
        gone = self.has_all(self.member("empty"))
        gone.commit(offsets=[At(TOPIC, 1, 0)], asynchronous=False)
        gone.close()
        settled(lambda: {name: self.group(name).state for name in STATES}, lambda found: found == STATES)
        settled(lambda: self.group("reconciling"), lambda group: len({one.epoch for one in group.members}) == 2)

    def member(self, group_id: str, protocol: str = "consumer", **more: str) -> Consumer:
        about = {"bootstrap.servers": self.bootstrap, "group.id": group_id, "group.protocol": protocol}
        member = Consumer({**about, "client.id": "librdkafka", "enable.auto.commit": False, **more})
        self._stack.callback(member.close)
        member.subscribe([TOPIC])
        return member

    def has_all(self, member: Consumer) -> Consumer:
        settled(lambda: (member.poll(0.1), len(member.assignment()))[1], lambda owned: owned == 3)
        return member

    def group(self, group_id: str) -> GroupDescription:
        found = self.admin.describe_groups([group_id])[group_id]
        assert isinstance(found, GroupDescription)
        return found

    def call(self, *words: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, ["groups", *words, "-b", self.bootstrap])
        return result.exit_code, result.stdout, result.stderr

    def assert_same(self, group_id: str, view: list[str]) -> list[list[str]]:
        """Return our rows, which are those of Kafka's tool."""
        theirs = rows(self.tools.groups("--describe", "--group", group_id, *view))
        command = {"--members": "members", "--state": "state"}.get(next(iter(view), ""), "describe")
        code, out, said = self.call(command, group_id, *(word for word in view if word == "--verbose"))
        assert code == 0, said
        ours = rows(out)
        assert ours[0] == theirs[0] and sorted(ours[1:]) == sorted(theirs[1:])
        return ours


@pytest.fixture(scope="module", params=["coterie", "kafka"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groups]:
    with ExitStack() as stack:
        if request.param == "kafka":
            kafka = stack.enter_context(ApacheKafka(SETTINGS))
            yield Groups(kafka.bootstrap, stack, kafka)
        else:
            process = stack.enter_context(BrokerProcess(tmp_path_factory.mktemp("broker"), SETTINGS))
            yield Groups(process.bootstrap, stack, None)


VIEWS: tuple[list[str], ...] = (
    [],
    ["--members"],
    ["--members", "--verbose"],
    ["--state"],
    ["--state", "--verbose"],
    ["--verbose"],
)


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
@pytest.mark.parametrize("group_id", STATES)
def test_a_consumer_group_looks_as_kafkas_tool_shows_it(broker: Groups, group_id: str, view: list[str]) -> None:
    """K22: states, epochs, current and target assignments; an Empty group has no members, and Kafka's tool no table."""
    what = next((word for word in view if word != "--verbose"), "--offsets")
    if not ROWS[group_id][what]:
        assert "has no members" in broker.call("members", group_id)[2] and broker.group(group_id).members == ()
    else:
        assert len(broker.assert_same(group_id, view)) == 1 + ROWS[group_id][what]


def test_a_member_that_must_give_up_partitions_is_behind_its_target(broker: Groups) -> None:
    """K22: what it must give up counts as assigned; the newcomer has its epoch and nothing yet."""
    group = broker.group("reconciling")
    old, new = sorted(group.members, key=lambda member: member.epoch or 0)
    assert (old.epoch, new.epoch) == ((new.epoch or 0) - 1, group.assignment_epoch)
    assert len(old.assignment) == 3 and len(old.target_assignment) + len(new.target_assignment) == 3
    assert new.assignment == () and {old.type, new.type} == {"consumer"}
    partitions = ",".join(str(place.partition) for place in new.target_assignment)
    said = f'group "reconciling" is rebalancing (Reconciling): {old.member_id} has to give up {TOPIC}:{partitions}\n'
    assert broker.call("members", "reconciling")[2] == said


def test_every_group_is_listed_as_kafkas_tools_list_it(broker: Groups) -> None:
    """K23: id, type and protocol as GroupsCommand has them; id, type and state as ConsumerGroupCommand does."""
    code, out, _ = broker.call("list", "--all", "--verbose")
    header, *ours = rows(out)
    assert code == 0 and header == ["GROUP", "TYPE", "PROTOCOL", "STATE"]
    head, *theirs = rows(broker.tools.all_groups("--list"))
    theirs = [[*row, "-"][:3] for row in theirs]  # Kafka's tool leaves out the protocol of a group without members
    assert head == header[:3] and sorted(row[:3] for row in ours) == sorted(theirs)
    listed = rows(broker.tools.groups("--list", "--state", "--type"))
    assert sorted(rows(broker.call("list")[1])) == sorted(listed)
    assert {tuple(row) for row in listed} >= {(group_id, "Consumer", state) for group_id, state in STATES.items()}
    for wanted in (["--state", "reconciling"], ["--type", "consumer", "--state", "Empty,Stable"]):
        kafkas = rows(broker.tools.groups("--list", *(wanted if "--type" in wanted else [*wanted, "--type"])))
        assert sorted(rows(broker.call("list", *wanted)[1])) == sorted(kafkas)


@Kafka
def test_members_that_still_use_the_classic_protocol_are_not_upgraded(broker: Groups) -> None:
    """K25: a classic member in a consumer group is told apart, as Kafka's tool does it."""
    broker.has_all(broker.member("mixed"))
    broker.member("mixed", protocol="classic")
    settled(lambda: {one.type for one in broker.group("mixed").members}, lambda types: len(types) == 2)
    settled(lambda: broker.group("mixed").state, lambda state: state == "Reconciling")  # nobody polls: it stays so
    (header, *members) = broker.assert_same("mixed", ["--members", "--verbose"])
    assert header[-1] == "UPGRADED" and sorted(row[-1] for row in members) == ["false", "true"]


@Kafka
def test_share_and_streams_groups_are_listed_and_named(broker: Groups) -> None:
    with RawConnection(broker.bootstrap) as connection:
        share_joins(connection, "shared", TOPIC)
        streams_joins(connection, "streaming", TOPIC)
    theirs = {tuple(row[:2]) for row in rows(broker.tools.all_groups("--list"))}
    code, out, _ = broker.call("list", "--all")
    assert code == 0 and {tuple(row[:2]) for row in rows(out)} == theirs and len(theirs) >= 5
    for words in (["describe"], ["members"], ["state"], ["describe", "stable", "shared", "streaming"]):
        code, out, said = broker.call(*words)
        assert code == 0 and "stable" in out, said
    assert 'group "shared" is a share group' in said and 'group "streaming" is a streams group' in said
    assert broker.kafka is not None
    done = CliRunner().invoke(app, ["report", str(broker.kafka.data_dir)])
    assert done.exit_code == 0 and "Group reconciling" in done.stdout, "consumer groups are shown"
    for name in ("1 share group of KIP-932 (shared)", "(streaming)"):
        assert name in done.stdout and name in done.stderr


def test_offsets_are_deleted_as_kafkas_tool_does_it(broker: Groups) -> None:
    """K21: its own words for the errors are other ones; what is deleted and what is refused is the same."""
    old = TopicPartition("old", 0)
    for by_kafka in (True, False):
        assert not any(broker.admin.alter_group_offsets("simple", {old: OffsetAndMetadata(0)}).values())
        if by_kafka:
            broker.tools.groups("--delete-offsets", "--group", "simple", "--topic", "old")
        else:
            assert broker.call("delete-offsets", "simple", "--topic", "old")[0] == 0
        assert not broker.admin.list_group_offsets("simple")
    theirs = broker.tools.groups("--delete-offsets", "--group", "stable", "--topic", TOPIC)
    code, out, said = broker.call("delete-offsets", "stable", "--topic", TOPIC)
    assert theirs.count("GroupSubscribedToTopicException") == said.count("GROUP_SUBSCRIBED_TO_TOPIC") == 3
    assert (code, out) == (1, "")
    assert "GroupIdNotFoundException" in broker.tools.groups("--delete-offsets", "--group", "nosuch", "--topic", TOPIC)
    assert "GROUP_ID_NOT_FOUND" in broker.call("delete-offsets", "nosuch", "--topic", TOPIC)[2]
