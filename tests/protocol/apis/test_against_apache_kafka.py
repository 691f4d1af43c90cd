"""Our client half asks Apache Kafka 4.3.1, every API in every version; what it answers we could have written."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import pytest

from apache_kafka import ApacheKafka, needs_apache_kafka
from coterie.errors import ErrorCode
from coterie.protocol.apis import (
    APIS,
    Api,
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    write_txn_markers,
)
from coterie.protocol.frames import FrameCutter, read_response_header, request_frame
from coterie.protocol.messages import (
    CommitPartition,
    DeleteGroup,
    DescribedGroup,
    DescribeGroup,
    FetchedOffset,
    Heartbeat,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    LeftGroup,
    LeftMember,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    Protocol,
    SyncedGroup,
    SyncGroup,
)
from protocol.apis.oracle import our_codec, served

pytestmark = [needs_apache_kafka, pytest.mark.real_time]
TOPIC, GROUP = "orders", "a group"
THE_TOPIC = metadata.Request(topics=[metadata.Topic(name=TOPIC)], allow_auto_topic_creation=False)
LARGEST_ANSWER = 1 << 24


class Connection:
    """Sends bodies of ours, hands out bodies of theirs."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.cutter = FrameCutter(LARGEST_ANSWER)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def ask(self, api: Api, version: int, body: bytes) -> bytes:
        flexible = version >= api.flexible
        self.socket.sendall(request_frame(api.key, version, 77, "coterie", body, flexible=flexible))
        while True:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError(f"Kafka closed the connection on {api.name} version {version}")
            for frame in self.cutter.feed(data):
                correlation_id, at = read_response_header(frame, flexible=api.has_flexible_response_header(version))
                assert correlation_id == 77
                return frame[at:]

    def ask_for(self, api: Api, version: int, request: Any) -> Any:
        return api.module.read_response(self.ask(api, version, api.module.write_request(request, version)), 0, version)


def wait_for(ready: Callable[[], bool], what: str) -> None:
    for _ in range(600):
        if ready():
            return
        time.sleep(0.05)
    pytest.fail(f"Apache Kafka has no {what} after half a minute")


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka() as running, Connection(running.bootstrap) as connection:

        def has_coordinator() -> bool:  # the first question creates the offsets topic
            found = connection.ask_for(find_coordinator.API, 4, find_coordinator.Request(keys=[GROUP]))
            (committed,) = connection.ask_for(offset_fetch.API, 8, [OffsetFetch(0, GROUP, None)])
            return not found.coordinators[0].error and not committed.error

        def has_topic() -> bool:
            (topic,) = connection.ask_for(metadata.API, 12, THE_TOPIC).topics
            return bool(topic.partitions) and not any(partition.error for partition in topic.partitions)

        new = create_topics.NewTopic(name=TOPIC, num_partitions=2, replication_factor=1)
        connection.ask_for(create_topics.API, 7, create_topics.Request(topics=[new]))
        wait_for(has_coordinator, "coordinator")
        wait_for(has_topic, "topic")
        yield running


@pytest.fixture(scope="module")
def topic_id(kafka: ApacheKafka) -> UUID:
    with Connection(kafka.bootstrap) as connection:
        (topic,) = connection.ask_for(metadata.API, 12, THE_TOPIC).topics
    assert isinstance(topic.topic_id, UUID)
    return topic.topic_id


def requests(topic_id: UUID, version: int) -> dict[str, Any]:
    commits = [CommitPartition(TOPIC, p, 10 + p, 0, "note" * p, topic_id) for p in (0, 1)]
    commit = OffsetCommit(0, GROUP, "", None, -1, commits)
    transaction: dict[str, Any] = {"transactional_id": "x", "producer_id": 1 << 40, "producer_epoch": 0}
    resource: dict[str, Any] = {"resource_type": 2, "resource_name": TOPIC}
    return {
        "Produce": produce.Request(
            acks=1,
            timeout_ms=1000,
            topics=[
                produce.Topic(
                    name=TOPIC, topic_id=topic_id, partitions=[produce.Partition(partition=0, records=no_batch())]
                )
            ],
        ),
        "Fetch": fetch.Request(
            max_wait_ms=10,
            min_bytes=1,
            topics=[
                fetch.Topic(
                    topic=TOPIC,
                    topic_id=topic_id,
                    partitions=[
                        fetch.Partition(partition=0, fetch_offset=0, max_bytes=1000),
                        fetch.Partition(partition=1, fetch_offset=99, max_bytes=1000),
                    ],
                )
            ],
        ),
        "ListOffsets": list_offsets.Request(
            topics=[
                list_offsets.Topic(
                    name=TOPIC, partitions=[list_offsets.Partition(partition=p, timestamp=-1) for p in (0, 1, 9)]
                )
            ]
        ),
        "Metadata": metadata.Request(topics=None),
        "OffsetCommit": commit,
        "OffsetFetch": [OffsetFetch(0, GROUP, [(TOPIC, [0, 1, 7])], topic_ids=[topic_id])],
        "FindCoordinator": find_coordinator.Request(keys=[GROUP]),
        "JoinGroup": JoinGroup(0, f"joined {version}", "", None, "consumer", [Protocol("range", b"\0")], 500, 500, ""),
        "Heartbeat": Heartbeat(0, GROUP, "m", None, 1),
        "LeaveGroup": LeaveGroup(0, GROUP, [LeavingMember("m", None, "why")]),
        "SyncGroup": SyncGroup(0, GROUP, "m", None, 1, [("m", b"\1")], "consumer", "range"),
        "DescribeGroups": [DescribeGroup(0, GROUP), DescribeGroup(0, "gone"), DescribeGroup(0, "joined 0")],
        "ConsumerGroupHeartbeat": consumer_group_heartbeat.Request(
            group_id=f"consumers {version}",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        ),
        "ConsumerGroupDescribe": consumer_group_describe.Request(group_ids=["gone"]),
        "ListGroups": ListGroups(0),
        "SaslHandshake": sasl_handshake.Request(mechanism="PLAIN"),
        "SaslAuthenticate": sasl_authenticate.Request(auth_bytes=b"\0alice\0secret"),
        "ApiVersions": api_versions.Request(client_software_name="coterie", client_software_version="1"),
        "CreateTopics": create_topics.Request(
            topics=[
                create_topics.NewTopic(
                    name="new",
                    num_partitions=1,
                    replication_factor=1,
                    configs=[create_topics.Config(name="retention.ms", value="1000")],
                )
            ],
            validate_only=True,
        ),
        "DeleteTopics": delete_topics.Request(topics=[delete_topics.Topic(name="no such topic")]),
        "DeleteRecords": delete_records.Request(
            topics=[
                delete_records.Topic(name=TOPIC, partitions=[delete_records.Partition(partition=1, offset=0)]),
            ]
        ),
        "InitProducerId": init_producer_id.Request(),
        "OffsetForLeaderEpoch": offset_for_leader_epoch.Request(
            topics=[
                offset_for_leader_epoch.Topic(
                    topic=TOPIC, partitions=[offset_for_leader_epoch.Partition(partition=0, leader_epoch=0)]
                )
            ]
        ),
        "DescribeAcls": describe_acls.Request(resource_type_filter=1, operation=1, permission_type=1),
        "CreateAcls": create_acls.Request(
            creations=[
                create_acls.Creation(
                    resource_type=2, resource_name=TOPIC, principal="User:a", host="*", operation=3, permission_type=3
                )
            ]
        ),
        "DeleteAcls": delete_acls.Request(
            filters=[delete_acls.Filter(resource_type_filter=2, operation=1, permission_type=1)]
        ),
        "DescribeConfigs": describe_configs.Request(
            resources=[describe_configs.Resource(**resource)], include_synonyms=True, include_documentation=True
        ),
        "AlterConfigs": alter_configs.Request(
            resources=[
                alter_configs.Resource(**resource, configs=[alter_configs.Config(name="retention.ms", value="1000")])
            ],
            validate_only=True,
        ),
        "DescribeLogDirs": describe_log_dirs.Request(),
        "CreatePartitions": create_partitions.Request(
            topics=[create_partitions.Topic(name=TOPIC, count=3)], validate_only=True
        ),
        "DeleteGroups": [DeleteGroup(0, "gone"), DeleteGroup(0, "gone")],
        "IncrementalAlterConfigs": incremental_alter_configs.Request(
            resources=[
                incremental_alter_configs.Resource(
                    **resource,
                    configs=[incremental_alter_configs.Config(name="no.such", operation=0, value="1000")],
                )
            ]
        ),
        "AlterReplicaLogDirs": alter_replica_log_dirs.Request(
            dirs=[
                alter_replica_log_dirs.LogDir(
                    path="/nowhere", topics=[alter_replica_log_dirs.Topic(name=TOPIC, partitions=[1])]
                )
            ]
        ),
        "ElectLeaders": elect_leaders.Request(
            topic_partitions=[elect_leaders.Topic(topic=TOPIC, partitions=[0, 1, 9])]
        ),
        "AlterPartitionReassignments": alter_partition_reassignments.Request(
            topics=[
                alter_partition_reassignments.Topic(
                    name=TOPIC,
                    partitions=[
                        alter_partition_reassignments.Partition(partition=0, replicas=[1]),
                        alter_partition_reassignments.Partition(partition=1, replicas=[5]),
                        alter_partition_reassignments.Partition(partition=9),
                    ],
                )
            ]
        ),
        "ListPartitionReassignments": list_partition_reassignments.Request(),
        "DescribeClientQuotas": describe_client_quotas.Request(
            components=[describe_client_quotas.Component(entity_type="user", match_type=describe_client_quotas.ANY)]
        ),
        "AlterClientQuotas": alter_client_quotas.Request(
            entries=[
                alter_client_quotas.Entry(
                    entity=[alter_client_quotas.Entity(entity_type="user", entity_name=None)],
                    ops=[alter_client_quotas.Op(key="producer_byte_rate", value=1000.0)],
                )
            ],
            validate_only=True,
        ),
        "DescribeUserScramCredentials": describe_user_scram_credentials.Request(),
        "AlterUserScramCredentials": alter_user_scram_credentials.Request(
            deletions=[alter_user_scram_credentials.Deletion(name="nobody", mechanism=1)]
        ),
        "DescribeQuorum": describe_quorum.Request(
            topics=[
                describe_quorum.Topic(
                    topic=describe_quorum.METADATA_TOPIC, partitions=[describe_quorum.Partition(partition=0)]
                )
            ]
        ),
        "DescribeProducers": describe_producers.Request(
            topics=[describe_producers.Topic(name=TOPIC, partitions=[0, 9])]
        ),
        "AddPartitionsToTxn": add_partitions_to_txn.Request(
            transactions=[
                add_partitions_to_txn.Transaction(
                    **transaction, topics=[add_partitions_to_txn.Topic(name=TOPIC, partitions=[0, 1])]
                )
            ]
        ),
        "AddOffsetsToTxn": add_offsets_to_txn.Request(**transaction, group_id=GROUP),
        "EndTxn": end_txn.Request(**transaction, committed=True),
        "TxnOffsetCommit": (
            "x",
            OffsetCommit(0, GROUP, "", None, -1, commits, producer_id=1 << 40, producer_epoch=0),
        ),
        "WriteTxnMarkers": write_txn_markers.Request(
            markers=[
                write_txn_markers.Marker(
                    producer_id=1 << 40,
                    producer_epoch=0,
                    transaction_result=False,
                    topics=[write_txn_markers.Topic(name=TOPIC, partitions=[0, 9])],
                    coordinator_epoch=0,
                )
            ]
        ),
        "DescribeTransactions": describe_transactions.Request(transactional_ids=["x", ""]),
        "ListTransactions": list_transactions.Request(state_filters=["Ongoing", "happy"]),
        "ListConfigResources": list_config_resources.Request(),
        "OffsetDelete": OffsetDelete(0, GROUP, [(TOPIC, [5])]),
        "DescribeCluster": describe_cluster.Request(),
        "DescribeTopicPartitions": describe_topic_partitions.Request(
            topics=[describe_topic_partitions.Topic(name=TOPIC)], response_partition_limit=1
        ),
    }


def no_batch() -> bytes:
    """It has a batch's size and no more: Kafka refuses it, which is an answer too."""
    return struct.pack(">qiibIhiqqqhii", 0, 49, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 0)


@pytest.mark.parametrize("api", [row for row in APIS if row.advertised], ids=lambda row: row.name)
def test_apache_kafka_understands_us_and_we_it(api: Api, kafka: ApacheKafka, topic_id: UUID) -> None:
    read_wire, write_wire = our_codec(api, "Response")
    with Connection(kafka.bootstrap) as connection:
        for version in served(api):
            request = requests(topic_id, version)[api.name]
            body = connection.ask(api, version, api.module.write_request(request, version))
            answer = api.module.read_response(body, 0, version)
            assert write_wire(read_wire(body, 0, version), version) == body, f"version {version}: {answer}"


UNKNOWN_MEMBER_ID = ErrorCode.UNKNOWN_MEMBER_ID
REFUSALS: list[tuple[Api, Any, Any]] = [
    (heartbeat.API, Heartbeat(0, "gone", "m", None, 1), UNKNOWN_MEMBER_ID),
    (
        join_group.API,
        JoinGroup(0, "", "m", None, "consumer", [Protocol("range", b"")], 6000, 6000, ""),
        JoinedGroup(ErrorCode.INVALID_GROUP_ID, "m"),
    ),
    (sync_group.API, SyncGroup(0, "gone", "m", None, 1, [], "consumer", "range"), SyncedGroup(UNKNOWN_MEMBER_ID)),
    (
        leave_group.API,
        LeaveGroup(0, "gone", [LeavingMember("m")]),
        LeftGroup(ErrorCode.NONE, [LeftMember("m", None, UNKNOWN_MEMBER_ID)]),
    ),
    (delete_groups.API, [DeleteGroup(0, "gone")] * 2, [("gone", ErrorCode.GROUP_ID_NOT_FOUND)]),
    (
        offset_delete.API,
        OffsetDelete(0, "gone", [(TOPIC, [0])]),
        OffsetsDeleted(ErrorCode.GROUP_ID_NOT_FOUND),
    ),
]


@pytest.mark.parametrize(("api", "request_", "reply"), REFUSALS, ids=[api.name for api, _, _ in REFUSALS])
def test_a_refusal_of_ours_is_apache_kafkas_to_the_byte(
    api: Api, request_: Any, reply: Any, kafka: ApacheKafka
) -> None:
    with Connection(kafka.bootstrap) as connection:
        for version in served(api):
            theirs = connection.ask(api, version, api.module.write_request(request_, version))
            assert api.module.write_response(reply, version) == theirs, f"version {version}"


def test_a_commit_and_its_offsets_are_answered_as_apache_kafka_answers_them(kafka: ApacheKafka, topic_id: UUID) -> None:
    commits = [CommitPartition(TOPIC, p, 10 + p, 0, "note" * p, topic_id) for p in (0, 1)]
    committed = OffsetsCommitted(commits, [ErrorCode.NONE] * 2)
    with Connection(kafka.bootstrap) as connection:
        for version in served(offset_commit.API):
            group_id = f"commit {version}"
            body = offset_commit.write_request(OffsetCommit(0, group_id, "", None, -1, commits), version)
            assert connection.ask(offset_commit.API, version, body) == offset_commit.write_response(committed, version)
        for version in served(offset_fetch.API):
            asked = OffsetFetch(0, "commit 10", [(TOPIC, [0, 1, 7])], topic_ids=[topic_id])
            fetched = [
                FetchedOffset(TOPIC, 0, offset=10, leader_epoch=0, topic_id=topic_id),
                FetchedOffset(TOPIC, 1, offset=11, leader_epoch=0, metadata="note", topic_id=topic_id),
                FetchedOffset(TOPIC, 7, topic_id=topic_id),
            ]
            body = connection.ask(offset_fetch.API, version, offset_fetch.write_request([asked], version))
            reply = OffsetsFetched("commit 10", ErrorCode.NONE, fetched)
            assert offset_fetch.write_response([reply], version) == body, f"version {version}"


def test_an_absent_group_is_described_as_apache_kafka_describes_it(kafka: ApacheKafka) -> None:
    """Rule 25. The message of version 6 is in our own words."""
    reply = DescribedGroup("gone", "Dead", exists=False)
    with Connection(kafka.bootstrap) as connection:
        for version in served(describe_groups.API):
            body = connection.ask(
                describe_groups.API, version, describe_groups.write_request([DescribeGroup(0, "gone")], version)
            )
            ours = describe_groups.write_response([reply], version)
            if version >= 6:
                assert describe_groups.read_response(body, 0, version) == describe_groups.read_response(
                    ours, 0, version
                )
            else:
                assert ours == body


def test_what_we_advertise_apache_kafka_advertises(kafka: ApacheKafka) -> None:
    with Connection(kafka.bootstrap) as connection:
        theirs = connection.ask_for(api_versions.API, 0, api_versions.Request()).api_keys
        assert [row for row in theirs if row.api_key in {ours.api_key for ours in api_versions.ADVERTISED}] == list(
            api_versions.ADVERTISED
        )
        unknown = connection.ask(api_versions.API, 99, b"\1\1\0")  # the header is flexible, the body is not read
        assert unknown == api_versions.refuse_version()


def test_produce_before_version_3_ends_the_connection(kafka: ApacheKafka) -> None:
    with Connection(kafka.bootstrap) as connection, pytest.raises(ConnectionError, match="closed the connection"):
        connection.ask(produce.API, 2, b"\0\1\0\0\0\0\0\0\0\0")
