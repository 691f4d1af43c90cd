"""`coterie topics` and `coterie groups`, as they are typed, against a Coterie broker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import coterie
from broker.peer import Peer
from client.admin_stories import create, member_of
from coterie.cli import groups
from coterie.cli.app import app
from coterie.cli.groups import MEMBERS, MORE_MEMBER_COLUMNS, OFFSETS, Committed
from coterie.client.admin import Admin, GroupDescription, GroupListing, ListedOffset, MemberDescription
from coterie.client.arguments import ByPartition, partition_of
from coterie.client.network.metadata import Node
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import KafkaError

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
QUICKLY = ("--set", "default.api.timeout.ms=100", "--set", "request.timeout.ms=100")

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def broker() -> Iterator[coterie.Broker]:
    with coterie.Broker(settings={"group.initial.rebalance.delay.ms": 0}) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: coterie.Broker) -> Iterator[Admin]:
    """A topic of two partitions, the first with five records, at 1000 to 5000 ms."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as running:
        create(running, "orders", 2)
        with Peer(broker.bootstrap_servers) as peer:
            for number in range(5):
                assert not peer.produce("orders", b"x", timestamps=[1_000 * (number + 1)]).error
        yield running


class Shell:
    def __init__(self, bootstrap: str) -> None:
        self._environ = {"COTERIE_BOOTSTRAP": bootstrap}

    def run(self, *words: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, [*words], env=self._environ)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert "Traceback" not in result.stderr
        return result.exit_code, result.stdout, result.stderr

    def table(self, *words: str) -> list[list[str]]:
        code, out, said = self.run(*words)
        assert code == 0, said
        return [re.split(r"\s\s+", line.strip()) for line in out.splitlines()]

    def json(self, *words: str) -> list[dict[str, Any]]:
        code, out, said = self.run(*words, "-o", "json")
        assert code == 0, said
        found: list[dict[str, Any]] = json.loads(out)
        return found

    def refused(self, *words: str) -> str:
        code, out, said = self.run(*words)
        assert code == 1 and not out and said.startswith("coterie: ")
        return said


@pytest.fixture
def shell(broker: coterie.Broker, admin: Admin) -> Shell:
    return Shell(broker.bootstrap_servers)


def set_offsets(admin: Admin, group: str, **offsets: int) -> None:
    wanted = {TopicPartition("orders", int(name[1:])): OffsetAndMetadata(at) for name, at in offsets.items()}
    assert not any(admin.alter_group_offsets(group, wanted).values())


# Topics


def test_a_topic_from_its_making_to_its_end(shell: Shell) -> None:
    made = shell.table("topics", "create", "made", "-p", "2", "--topic-config", "retention.ms=5000")
    assert made[0] == ["TOPIC", "TOPIC-ID", "PARTITION-COUNT", "REPLICATION-FACTOR"]
    assert made[1][0] == "made" and made[1][2:] == ["2", "1"]
    assert "TOPIC_ALREADY_EXISTS" in shell.refused("topics", "create", "made")
    assert shell.run("topics", "create", "made", "--if-not-exists") == (0, "", "")
    assert ["made"] in shell.table("topics", "list")
    assert shell.table("topics", "describe", "made") == [
        ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR"],
        ["made", "0", "1", "1", "1"],
        ["made", "1", "1", "1", "1"],
    ]
    assert shell.json("topics", "describe", "made", "--configs") == [
        {"topic": "made", "config": "retention.ms", "value": "5000", "source": "DYNAMIC_TOPIC"}
    ]
    changed = shell.json(
        "topics", "alter", "made", "-p", "3", "--topic-config", "segment.ms=9000", "--delete-config", "retention.ms"
    )
    assert [(row["partition_count"], row["configs"]) for row in changed] == [(3, "segment.ms=9000")]
    assert shell.table("topics", "delete", "made") == [["TOPIC", "STATUS"], ["made", "deleted"]]
    assert "the topic or partition does not exist" in shell.refused("topics", "delete", "made")
    assert shell.run("topics", "delete", "made", "--if-exists") == (0, "", "")


def test_partitions_are_reassigned_to_other_nodes() -> None:
    with coterie.Broker(nodes=3) as three, Admin(bootstrap_servers=three.bootstrap_servers) as admin:
        create(admin, "orders", 3)
        shell = Shell(three.bootstrap_servers)
        assert shell.table("topics", "reassign", "orders:0,2", "--to", "3") == [
            ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR"],
            ["orders", "0", "3", "3", "3"],
            ["orders", "2", "3", "3", "3"],
        ]
        moved = shell.json("topics", "reassign", "orders", "--to", "2")
        assert [(row["partition"], row["leader"]) for row in moved] == [(0, 2), (1, 2), (2, 2)]
        code, out, said = shell.run("topics", "reassign", "orders:0,9", "--to", "1", "-o", "csv")
        assert code == 1 and "orders,0,1,1,1" in out and "reassigning orders-9" in said
        assert "share one copy of each log" in shell.refused("topics", "reassign", "orders", "--to", "1", "--to", "2")
        assert "no such broker is registered" in shell.refused("topics", "reassign", "orders", "--to", "7")


def test_where_there_is_nothing_that_is_said() -> None:
    with coterie.Broker() as empty:
        shell = Shell(empty.bootstrap_servers)
        assert shell.run("topics", "list") == (
            0,
            "",
            "there are no topics; create one with: coterie topics create NAME\n",
        )
        assert shell.run("groups", "list") == (0, "", "there are no consumer groups\n")
        assert shell.run("groups", "list", "--state", "Stable") == (0, "", "no group matches\n")
        assert shell.run("topics", "list", "-o", "json")[:2] == (0, "[]\n")


def test_what_worked_is_shown_beside_what_did_not(shell: Shell) -> None:
    code, out, said = shell.run("topics", "describe", "orders", "nope", "-o", "csv")
    assert code == 1 and out.splitlines() == ["TOPIC,PARTITION,LEADER,REPLICAS,ISR", "orders,0,1,1,1", "orders,1,1,1,1"]
    assert said.startswith('coterie: topic "nope": the topic or partition does not exist')


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["topics", "create", "a b"], 'coterie: topic "a b": a topic'),
        (["topics", "create", "x", "--topic-config", "nonsense"], "give name=value"),
        (["topics", "create", "x", "--topic-config", "retention.ms=soon"], "retention.ms"),
        (["topics", "alter", "orders"], "nothing to change"),
        (["topics", "reassign", "orders:x", "--to", "1"], "coterie: orders:x: after the colon give partitions"),
        (["topics", "reassign", "nope", "--to", "1"], 'topic "nope"'),
        (["topics", "alter", "orders", "-p", "1"], "adding partitions"),
        (["topics", "list", "--set", "request.timeout.ms=soon"], "must be a whole number"),
        (["topics", "list", "--set", "requests.timeout.ms=1"], "did you mean request.timeout.ms?"),
        (["topics", "list", "-b", "nonsense"], "must be host:port"),
        (["groups", "describe", "nope"], 'group "nope": the group does not exist (GROUP_ID_NOT_FOUND)'),
        (["groups", "delete", "nope"], 'deleting group "nope"'),
        (["groups", "remove-members", "g"], "give the members, by id or with --instance, or --all"),
        (["groups", "reset", "idle", "--topic", "orders"], "exactly one of --to-earliest"),
        (
            ["groups", "reset", "idle", "--topic", "orders", "--to-earliest", "--to-latest"],
            "; not --to-earliest and --to-latest",
        ),
        (["groups", "reset", "idle", "--to-earliest"], "give the topics to reset"),
        (["groups", "reset", "idle", "--topic", "nope", "--to-earliest"], "the topic or partition does not exist"),
        (
            ["groups", "reset", "idle", "--topic", "orders:7", "--to-earliest"],
            "the topic has no partition 7; it has 0 to 1",
        ),
        (["groups", "reset", "idle", "--topic", "orders:x", "--to-earliest"], "as in orders:0,1"),
        (["groups", "reset", "idle", "--topic", "orders", "--by-duration", "1h"], "is not a duration"),
        (["groups", "reset", "idle", "--topic", "orders", "--to-datetime", "noon"], "is not a date and time"),
        (["groups", "reset", "fresh", "--topic", "orders", "--shift-by", "1"], "has no committed offset for"),
        (["groups", "reset", "fresh", "--all-topics", "--to-latest"], "has no committed offsets"),
    ],
)
def test_a_mistake_is_one_message_and_status_1(shell: Shell, words: list[str], says: str) -> None:
    said = shell.refused(*words)
    assert says in said and len(said.splitlines()) <= 2


def test_a_cluster_that_is_not_there_is_said_soon(shell: Shell) -> None:
    said = shell.refused("topics", "list", "-b", "127.0.0.1:1", *QUICKLY)
    assert "cannot connect to 127.0.0.1:1: connection refused (gave up after 0.1 s)" in said


def test_a_file_of_settings_is_read(shell: Shell, tmp_path: Path, broker: coterie.Broker) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={broker.bootstrap_servers}\nclient.id=me\n")
    result = CliRunner().invoke(app, ["topics", "list", "--config", str(file)], env={"COTERIE_BOOTSTRAP": ""})
    assert result.exit_code == 0 and "orders" in result.stdout
    file.write_bytes(b"client.id=\xff")
    assert "is not UTF-8 text: byte 10" in shell.refused("topics", "list", "--config", str(file))


# Groups


def test_a_group_with_a_member_is_shown_from_all_sides(shell: Shell, admin: Admin, broker: coterie.Broker) -> None:
    set_offsets(admin, "live", p0=2)
    with member_of(broker.bootstrap_servers, "live", "orders", 2) as member:
        assert ["live", "Classic", "Stable"] in shell.table("groups", "list")
        assert [row["group"] for row in shell.json("groups", "list", "--state", "Stable", "--type", "classic")] == [
            "live"
        ]
        who = [member.member_id, "/127.0.0.1", "tester"]
        assert shell.table("groups", "describe", "live") == [
            list(OFFSETS),
            ["live", "orders", "0", "2", "5", "3", *who],
            ["live", "orders", "1", "-", "0", "-", *who],
        ]
        assert shell.table("groups", "members", "live", "--verbose") == [
            [*MEMBERS, *MORE_MEMBER_COLUMNS],
            ["live", *who, "2", "-", "orders:0,1", "-", "-"],
        ]
        (state,) = shell.json("groups", "state", "live")
        assert state == {
            "group": "live",
            "coordinator": f"{broker.bootstrap_servers}  (1)",
            "assignment_strategy": "range",
            "state": "Stable",
            "members": 1,
        }
        said = shell.refused("groups", "reset", "live", "--topic", "orders", "--to-earliest", "--execute")
        assert said.splitlines() == [
            'coterie: group "live" is Stable with 1 member; offsets can be set only while it is Empty.',
            "         Stop its consumers, or: coterie groups remove-members live --all",
        ]
        assert "the group has members" in shell.refused("groups", "delete", "live")
        removed = shell.table("groups", "remove-members", "live", "--all", "--reason", "its machine is gone")
        assert removed == [["GROUP", "CONSUMER-ID", "STATUS"], ["live", member.member_id, "removed"]]
    assert shell.run("groups", "describe", "live")[2] == 'group "live" has no members\n'
    assert shell.table("groups", "delete", "live")[1:] == [["live", "deleted"]]


RESETS = [
    (["--topic", "orders", "--to-earliest"], {0: 0, 1: 0}, ""),
    (["--topic", "orders", "--to-latest"], {0: 5, 1: 0}, ""),
    (["--topic", "orders:0", "--to-offset", "4"], {0: 4}, ""),
    (["--topic", "orders:0", "--to-offset", "9"], {0: 5}, "orders-0 has offsets 0 to 5: using 5 instead of 9"),
    (["--all-topics", "--shift-by", "-1"], {0: 2}, ""),
    (["--all-topics", "--shift-by", "-9"], {0: 0}, "0 instead of -6"),
    (["--topic", "orders", "--to-current"], {0: 3, 1: 0}, ""),
    (["--topic", "orders:0", "--to-datetime", "1970-01-01T00:00:02.500"], {0: 2}, ""),
    (["--topic", "orders:0", "--to-datetime", "1970-01-01T01:00:02.500+01:00"], {0: 2}, ""),
    (["--topic", "orders:0", "--by-duration", "PT1H"], {0: 5}, "orders-0 has no record since then: using its end"),
    (["--topic", "orders:0", "--by-duration", "P99999D"], {0: 0}, ""),
    (["--topic", "orders:0", "--topic", "orders:0,1", "--to-earliest"], {0: 0, 1: 0}, ""),
]


def test_offsets_are_deleted_of_what_nobody_is_subscribed_to(
    shell: Shell, admin: Admin, broker: coterie.Broker
) -> None:
    set_offsets(admin, "forgetful", p0=1, p1=2)
    deleted = shell.table("groups", "delete-offsets", "forgetful", "--topic", "orders:1")
    assert deleted == [["GROUP", "TOPIC", "PARTITION", "STATUS"], ["forgetful", "orders", "1", "deleted"]]
    assert [row["partition"] for row in shell.json("groups", "describe", "forgetful")] == [0]

    code, out, said = shell.run("groups", "delete-offsets", "forgetful", "--topic", "orders:0,9", "--topic", "nosuch")
    assert code == 1 and len(out.splitlines()) == 2 and "orders-9" in said and 'topic "nosuch"' in said
    assert not admin.list_group_offsets("forgetful")

    set_offsets(admin, "faithful", p0=1)
    with member_of(broker.bootstrap_servers, "faithful", "orders", 2):
        said = shell.refused("groups", "delete-offsets", "faithful", "--topic", "orders")
        assert said.count("GROUP_SUBSCRIBED_TO_TOPIC") == 2
    admin.remove_members("faithful")
    assert shell.refused("groups", "delete-offsets", "nobody", "--topic", "orders").count("GROUP_ID_NOT_FOUND") == 1
    assert "--topic orders:0,1" in shell.refused("groups", "delete-offsets", "forgetful")


class NewerGroups(Admin):
    """Of Apache Kafka: a classic, a KIP-848, a share and a streams group."""

    def __init__(self) -> None:
        self.node = Node(1, "kafka", 9092, None)

    def list_groups(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        assert not states
        rows = [("classic", "consumer"), ("consumer", "consumer"), ("share", "share"), ("streams", "streams")]
        found = [GroupListing(f"a-{type_}", protocol, "Stable", type_) for type_, protocol in rows]
        return [one for one in found if not types or one.type in types]

    def describe_groups(self, group_ids: Collection[str]) -> dict[str, GroupDescription | KafkaError]:
        owned = MemberDescription("m", None, "c", "/h", (T0, T1), ("orders",), 6, (T0,))
        return {
            name: GroupDescription(name, "Stable", "consumer", "uniform", self.node, (owned,), "consumer", 8, 7)
            if name == "a-consumer"
            else GroupDescription(name, "Stable", "", "", self.node, (), name.removeprefix("a-"))
            for name in group_ids
        }

    def list_group_offsets(self, group_id: str, *_: object, **__: object) -> Committed:
        return {} if group_id == "a-share" else {T0: OffsetAndMetadata(4)}

    def list_offsets(self, wanted: ByPartition[int], **_: object) -> dict[TopicPartition, ListedOffset | KafkaError]:
        return dict.fromkeys(map(partition_of, wanted), ListedOffset(9))


def test_groups_of_newer_protocols_are_shown_as_far_as_they_can_be() -> None:
    admin = NewerGroups()
    listed = groups.list_all(admin, states=[], types=[], everything=False)
    assert [row[:2] for row in listed.rows] == [("a-classic", "Classic"), ("a-consumer", "Consumer")]
    assert listed.notes == ["not listed: 1 share, 1 streams; --all lists them too"]
    assert len(groups.list_all(admin, states=[], types=[], everything=True).rows) == 4
    assert len(groups.list_all(admin, states=[], types=["share"], everything=False).rows) == 1

    shown = groups.describe(admin, ["a-consumer", "a-share", "a-streams"], verbose=False)
    assert shown.errors == [] and [row[:6] for row in shown.rows] == [
        ("a-consumer", "orders", 0, 4, 9, 5),
        ("a-consumer", "orders", 1, None, 9, None),
        ("a-streams", "orders", 0, 4, 9, 5),
    ]
    assert shown.notes == [
        'group "a-share" is a share group (Stable): this command does not show its members and offsets',
        'group "a-streams" is a streams group (Stable): this command does not show its members',
    ]
    (member,) = groups.members(admin, ["a-consumer"], verbose=True).rows
    assert member == ("a-consumer", "m", "/h", "c", 2, 6, "orders:0,1", 7, "orders:0")
    newer, share = groups.state(admin, ["a-consumer", "a-share"], verbose=True).rows
    assert newer[2:] == ("uniform", "Stable", 8, 7, 1) and share[2:] == (None, "Stable", None, None, None)


@pytest.mark.parametrize(("words", "plan", "note"), RESETS, ids=str)
def test_a_reset_shows_its_plan_and_does_it_when_told(
    shell: Shell, admin: Admin, words: list[str], plan: dict[int, int], note: str
) -> None:
    set_offsets(admin, "idle", p0=3)
    code, out, said = shell.run("groups", "reset", "idle", *words, "-o", "json")
    assert code == 0 and {row["partition"]: row["new_offset"] for row in json.loads(out)} == plan
    assert note in said and "nothing was changed; add --execute" in said
    assert admin.list_group_offsets("idle") == {TopicPartition("orders", 0): OffsetAndMetadata(3)}
    assert shell.table("groups", "reset", "idle", *words, "--execute")[0] == [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "NEW-OFFSET",
    ]
    found = admin.list_group_offsets("idle")
    assert {place.partition: one.offset for place, one in found.items() if isinstance(one, OffsetAndMetadata)} == plan
    assert shell.table("groups", "delete", "idle")


def test_a_plan_that_was_printed_can_be_given_back(shell: Shell, admin: Admin, tmp_path: Path) -> None:
    _, printed, _ = shell.run("groups", "reset", "planned", "--topic", "orders", "--to-latest", "-o", "csv")
    file = tmp_path / "plan.csv"
    file.write_text(printed + "another,orders,0,1\n")
    assert shell.run("groups", "reset", "planned", "--from-file", str(file), "--execute")[0] == 0
    found = admin.list_group_offsets("planned")
    assert found == {
        TopicPartition("orders", 0): OffsetAndMetadata(5),
        TopicPartition("orders", 1): OffsetAndMetadata(0),
    }
    file.write_text("orders,0,1\n")
    assert shell.json("groups", "reset", "planned", "--from-file", str(file))[0]["new_offset"] == 1
    file.write_text("orders;0;1\n")
    assert "line 1: a line must be [group,]topic,partition,offset" in shell.refused(
        "groups", "reset", "planned", "--from-file", str(file)
    )
    file.write_text("another,orders,0,1\n")
    assert 'no offset for group "planned"' in shell.refused("groups", "reset", "planned", "--from-file", str(file))


def test_a_name_that_would_move_the_cursor_is_tamed(shell: Shell, admin: Admin) -> None:
    set_offsets(admin, "red\x1b[31m\nrows", p0=1)
    _, out, _ = shell.run("groups", "list")
    assert "\x1b" not in out and r"red\x1b[31m\nrows" in out
    assert "red\x1b[31m\nrows" in [row["group"] for row in shell.json("groups", "list")]
    assert not any(admin.delete_groups(["red\x1b[31m\nrows"]).values())


def test_help_does_not_load_what_commands_need() -> None:
    """`coterie --help` and `coterie serve` stay quick: the client's room is opened by those who use it."""
    program = (
        "import sys; from coterie.cli.app import app; "
        "heavy = ('coterie.client', 'coterie.protocol', 'asyncio'); "
        "loaded = [name for name in sys.modules if name.startswith(heavy)]; "
        "print(loaded)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_command_teaches_by_an_example() -> None:
    for room, names in {
        "topics": ["list", "create", "describe", "alter", "delete"],
        "groups": ["list", "describe", "members", "state", "reset", "delete", "remove-members"],
    }.items():
        for name in names:
            shown = CliRunner().invoke(app, [room, name, "--help"]).stdout
            assert f"Try it: coterie {room} {name}" in shown


class Reconciling(NewerGroups):
    """A group of KIP-848 with members of both protocols, one of which has to give up a partition."""

    state = "Reconciling"

    def describe_groups(self, group_ids: Collection[str]) -> dict[str, GroupDescription | KafkaError]:
        old = MemberDescription("m", None, "c", "/h", (T0, T1), ("orders",), 6, (T0,), "classic")
        new = MemberDescription("n", None, "c", "/h", (), ("orders",), 7, (T1,), "consumer")
        unknown = MemberDescription("o", None, "c", "/h", (), ("orders",), 7, (), "")
        about = ("consumer", "uniform", self.node, (old, new, unknown), "consumer", 7, 7)
        return {name: GroupDescription(name, self.state, *about) for name in group_ids}


def test_a_group_that_reconciles_names_who_has_to_give_up_partitions_and_who_is_not_upgraded() -> None:
    """K22, K25: the columns and values of Kafka's tool; what is not known is empty."""
    admin = Reconciling()
    shown = groups.members(admin, ["g"], verbose=True)
    assert shown.notes == ['group "g" is rebalancing (Reconciling): m has to give up orders:1']
    assert shown.columns[-1] == "UPGRADED" and [row[-1] for row in shown.rows] == ["false", "true", None]
    assert groups.members(admin, ["g"], verbose=False).columns[-1] == "#PARTITIONS"
    admin.state = "Assigning"
    assert groups.members(admin, ["g"], verbose=False).notes == [
        'group "g" is rebalancing (Assigning): its target assignment is computed at a next heartbeat'
    ]


def test_a_list_has_the_protocol_type_if_asked_for() -> None:
    """K23: as GroupsCommand lists it."""
    listed = groups.list_all(NewerGroups(), states=[], types=[], everything=True, verbose=True)
    assert listed.columns == ("GROUP", "TYPE", "PROTOCOL", "STATE")
    assert ("a-share", "Share", "share", "Stable") in listed.rows
