"""What an admin does, once: told to a Coterie broker on every run, and to Apache Kafka where it is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from broker.peer import Peer
from coterie.client.admin import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Admin,
    AlterConfigOp,
    ConfigChange,
    ConfigResource,
    ConfigSource,
    ElectionType,
    MemberToRemove,
    NewTopic,
    ResourceType,
    TopicPartitionReplica,
    checked,
)
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import CoterieError, ErrorCode, KafkaError
from coterie.protocol.messages import JoinedGroup
from coterie.protocol.subscription import Assignment, Subscription, write_assignment, write_subscription

__all__ = ["STORIES", "code_of", "member_of"]


def code_of(found: object) -> ErrorCode:
    assert isinstance(found, KafkaError), found
    return found.code


def create(admin: Admin, name: str, partitions: int = 1) -> None:
    """And wait until the broker leads it."""
    checked(admin.create_topics([NewTopic(name, partitions, 1)]))
    places = dict.fromkeys([TopicPartition(name, number) for number in range(partitions)], LATEST)
    wait_until(lambda: not any(isinstance(found, KafkaError) for found in admin.list_offsets(places).values()))


def wait_until(it_is_so: Callable[[], bool]) -> None:
    """In Kafka the controller answers, and the broker hears of it later."""
    give_up = time.monotonic() + 60
    while not it_is_so():
        assert time.monotonic() < give_up
        time.sleep(0.05)


@contextmanager
def member_of(bootstrap: str, group: str, topic: str, partitions: int) -> Iterator[JoinedGroup]:
    """A member that owns the whole topic, and keeps its connection; it sends no heartbeat, and has half a minute."""
    with Peer(bootstrap) as peer:
        joined = peer.enter(
            group,
            write_assignment(Assignment({topic: list(range(partitions))})),
            protocols={"range": write_subscription(Subscription([topic]))},
        )
        yield joined


def topics_are_created_described_changed_and_deleted(admin: Admin, _: str) -> None:
    made = admin.create_topics([NewTopic("story", 2, 1, {"retention.ms": "86400000"}), NewTopic("many", 1, 9)])
    assert list(made) == ["story", "many"]
    assert not isinstance(made["story"], KafkaError) and made["story"].partitions == 2
    assert code_of(made["many"]) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert code_of(admin.create_topics([NewTopic("story")])["story"]) is ErrorCode.TOPIC_ALREADY_EXISTS
    checked(admin.create_topics([NewTopic("dry", 1, 1)], validate_only=True))
    wait_until(lambda: "story" in [topic.name for topic in admin.list_topics()])
    names = [topic.name for topic in admin.list_topics()]
    assert "dry" not in names and names == sorted(names)

    described = admin.describe_topics(["story", "nope"])
    assert code_of(described["nope"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    story = described["story"]
    assert not isinstance(story, KafkaError) and story.id == made["story"].id
    assert [(p.partition, p.replicas, p.isr) for p in story.partitions] == [(0, (1,), (1,)), (1, (1,), (1,))]
    assert all(p.leader is not None and p.leader.id == 1 for p in story.partitions)

    grown = admin.create_partitions({"story": 3, "nope": 2})
    assert grown["story"] is None and code_of(grown["nope"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(admin.create_partitions({"story": 1})["story"]) is ErrorCode.INVALID_PARTITIONS

    resource = ConfigResource.topic("story")
    configs = checked(admin.describe_configs([resource]))[resource]
    assert configs["retention.ms"].value == "86400000" and configs["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC
    changes = [ConfigChange("retention.ms", None, AlterConfigOp.DELETE), ConfigChange("max.message.bytes", "2000")]
    checked(admin.alter_configs({resource: changes}))
    wait_until(lambda: checked(admin.describe_configs([resource]))[resource]["max.message.bytes"].value == "2000")
    configs = checked(admin.describe_configs([resource]))[resource]
    assert configs["retention.ms"].source is not ConfigSource.DYNAMIC_TOPIC
    wrong = admin.alter_configs({resource: [ConfigChange("retention.ms", "soon")]})
    assert code_of(wrong[resource]) is ErrorCode.INVALID_CONFIG and "retention.ms" in str(wrong[resource])
    assert "node.id" in checked(admin.describe_configs([ConfigResource.broker(1)]))[ConfigResource.broker(1)]

    gone = admin.delete_topics(["story", "nope"])
    assert gone["story"] is None and code_of(gone["nope"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wait_until(lambda: "story" not in [topic.name for topic in admin.list_topics()])


def offsets_are_found_by_end_and_by_time(admin: Admin, bootstrap: str) -> None:
    create(admin, "found", 2)
    with Peer(bootstrap) as peer:
        for at in (1_000, 3_000, 2_000):
            assert not peer.produce("found", b"x", timestamps=[at]).error
    zero, one = TopicPartition("found", 0), TopicPartition("found", 1)

    def offset(wanted: int, place: TopicPartition = zero) -> int:
        return checked(admin.list_offsets({place: wanted}))[place].offset

    assert [offset(wanted) for wanted in (EARLIEST, LATEST, MAX_TIMESTAMP)] == [0, 3, 1]
    assert [offset(wanted) for wanted in (0, 1_001, 3_001)] == [0, 1, -1]
    assert offset(LATEST, one) == 0
    both = admin.list_offsets({zero: LATEST, TopicPartition("found", 7): LATEST, TopicPartition("nope", 0): LATEST})
    assert both[zero] == (3, -1, 0)
    assert code_of(both[TopicPartition("found", 7)]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(both[TopicPartition("nope", 0)]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    deleted = admin.delete_records({zero: 2, one: 5})
    assert deleted[zero] == 2 and code_of(deleted[one]) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert offset(EARLIEST) == 2


def the_cluster_is_described(admin: Admin, bootstrap: str) -> None:
    cluster = admin.describe_cluster()
    (node,) = cluster.nodes
    assert cluster.controller == node and f"{node.host}:{node.port}" == bootstrap and cluster.cluster_id
    create(admin, "sized")
    dirs = checked(admin.describe_log_dirs())
    assert dirs.keys() == {1} and any(TopicPartition("sized", 0) in each.sizes for each in dirs[1])


def the_only_replica_of_a_partition_stays_where_it_is(admin: Admin, _: str) -> None:
    """One node: every answer is Kafka's."""
    create(admin, "stays", 2)
    zero, nowhere, absent = (
        TopicPartition("stays", 0),
        TopicPartition("stays", 9),
        TopicPartition("nope", 0),
    )
    asked = {zero: [1], TopicPartition("stays", 1): [7], nowhere: [1], absent: None}
    answers = admin.alter_partition_reassignments(asked)
    assert answers[zero] is None
    assert [code_of(answers[place]) for place in asked if place != zero] == [
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    cancelled = admin.alter_partition_reassignments({zero: None})
    assert code_of(cancelled[zero]) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert admin.list_partition_reassignments() == admin.list_partition_reassignments([zero, absent]) == {}

    elected = admin.elect_leaders([zero, nowhere])
    assert code_of(elected[zero]) is ErrorCode.ELECTION_NOT_NEEDED
    assert code_of(elected[nowhere]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unclean = admin.elect_leaders([zero], election_type=ElectionType.UNCLEAN)
    assert code_of(unclean[zero]) is ErrorCode.ELECTION_NOT_NEEDED
    assert admin.elect_leaders() == {}

    (directory,) = checked(admin.describe_log_dirs([1]))[1]
    here, there = TopicPartitionReplica("stays", 0, 1), TopicPartitionReplica("stays", 1, 1)
    moved = admin.alter_replica_log_dirs({here: directory.path, there: "/nowhere"})
    assert moved[here] is None and code_of(moved[there]) is ErrorCode.LOG_DIR_NOT_FOUND


def the_controllers_are_described(admin: Admin, _: str) -> None:
    quorum = admin.describe_metadata_quorum()
    assert quorum.leader_id == 1
    assert [voter.replica_id for voter in quorum.voters] == [1] and quorum.observers == ()
    (voter,) = quorum.voters
    assert voter.log_end_offset >= quorum.high_watermark >= 0 and voter.last_fetch_timestamp > 0


def what_has_configs_is_listed(admin: Admin, _: str) -> None:
    create(admin, "configured")
    resources = admin.list_config_resources()
    assert {ConfigResource.topic("configured"), ConfigResource.broker(1)} <= set(resources)
    assert admin.list_config_resources([ResourceType.BROKER]) == [ConfigResource.broker(1)]
    assert admin.list_config_resources([ResourceType.GROUP]) == []


def groups_live_and_die(admin: Admin, bootstrap: str) -> None:
    create(admin, "read", 2)
    zero, one = TopicPartition("read", 0), TopicPartition("read", 1)
    assert code_of(admin.describe_groups(["readers"])["readers"]) is ErrorCode.GROUP_ID_NOT_FOUND
    with member_of(bootstrap, "readers", "read", 2) as member:
        (listed,) = [group for group in admin.list_groups() if group.group_id == "readers"]
        assert (listed.state, listed.protocol_type, listed.type) == ("Stable", "consumer", "classic")
        assert not [group for group in admin.list_groups(states=["Empty"]) if group.group_id == "readers"]
        assert [group.group_id for group in admin.list_groups(types=["classic"], states=["Stable"])] == ["readers"]

        described = admin.describe_groups(["readers", "nope"])
        assert code_of(described["nope"]) is ErrorCode.GROUP_ID_NOT_FOUND
        group = described["readers"]
        assert not isinstance(group, KafkaError)
        assert (group.state, group.assignor, str(group.coordinator)) == ("Stable", "range", bootstrap)
        (described_member,) = group.members
        assert described_member.member_id == member.member_id and described_member.client_id == "tester"
        assert described_member.assignment == (zero, one) and described_member.topics == ("read",)

        refused = admin.alter_group_offsets("readers", {zero: OffsetAndMetadata(0)})
        assert code_of(refused[zero]) is ErrorCode.UNKNOWN_MEMBER_ID and "while it is Empty" in str(refused[zero])
        assert code_of(admin.delete_groups(["readers"])["readers"]) is ErrorCode.NON_EMPTY_GROUP
        assert code_of(admin.delete_group_offsets("readers", [zero])[zero]) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC

        stranger = MemberToRemove("stranger")
        removed = admin.remove_members("readers", [stranger, member.member_id], reason="x" * 1_000)
        assert code_of(removed[stranger]) is ErrorCode.UNKNOWN_MEMBER_ID
        assert removed[MemberToRemove(member.member_id)] is None

    assert admin.remove_members("readers") == {}, "there is nobody left"
    checked(
        admin.alter_group_offsets(
            "readers", {zero: OffsetAndMetadata(5, metadata="by hand"), one: OffsetAndMetadata(7)}
        )
    )
    assert admin.list_group_offsets("readers") == {zero: OffsetAndMetadata(5, "by hand"), one: OffsetAndMetadata(7)}
    assert admin.list_group_offsets("readers", [one, TopicPartition("read", 9)]) == {
        one: OffsetAndMetadata(7),
        TopicPartition("read", 9): None,
    }
    checked(admin.delete_group_offsets("readers", [zero]))
    assert admin.list_group_offsets("readers") == {one: OffsetAndMetadata(7)}
    with pytest.raises(CoterieError, match="an offset is 0 or more"):
        admin.alter_group_offsets("readers", {zero: OffsetAndMetadata(-1)})
    deleted = admin.delete_groups(["readers", "nope"])
    assert deleted["readers"] is None and code_of(deleted["nope"]) is ErrorCode.GROUP_ID_NOT_FOUND
    assert not [group for group in admin.list_groups() if group.group_id == "readers"]


STORIES = [
    topics_are_created_described_changed_and_deleted,
    offsets_are_found_by_end_and_by_time,
    the_cluster_is_described,
    the_only_replica_of_a_partition_stays_where_it_is,
    the_controllers_are_described,
    what_has_configs_is_listed,
    groups_live_and_die,
]
