"""What is asked, and by whom: every API that checks rights, by principals of whom each has few of them.

A request names things that some principals have rights on (topics `t`, `absent`, `new` and `doomed`, groups `g`, `ga`,
`gj` and `gd`, transactional id `x`) and things that none but a few has (topics `o`, `oabsent`, `onew` and `odoomed`,
groups `h`, `ha` and `hd`, transactional id `y`). A cell is one request by one principal. The transactional ids `xo` and
`yo` have an open transaction with `t` and `o`, for the first of which there are rights. Requests for `x` and `y` have a
producer id that is not theirs: with every right they are refused for that, and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.transactional import transactional_batch
from coterie.protocol.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from logs import batch

# --- principals -------------------------------------------------------------------------------------------------------

NAMES = {
    AclResourceType.TOPIC: ("t", "absent", "new", "doomed"),
    AclResourceType.GROUP: ("g", "ga", "gj", "gd"),
    AclResourceType.CLUSTER: ("kafka-cluster",),
    AclResourceType.TRANSACTIONAL_ID: ("x", "xo"),
}
"""The resources that ACLs are about, unless an ACL says another name."""
SINGLE = {
    "TOPIC": "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS ALL",
    "GROUP": "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS ALL",
    "CLUSTER": "CREATE DELETE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE ALL",
    "TRANSACTIONAL_ID": "DESCRIBE WRITE ALL",
}
SEVERAL = {
    "consumer": "TOPIC READ; TOPIC DESCRIBE; GROUP READ",
    "producer": "TOPIC WRITE; TOPIC DESCRIBE; TOPIC CREATE",
    "group-read-topic-describe": "GROUP READ; TOPIC DESCRIBE",
    "group-describe-topic-describe": "GROUP DESCRIBE; TOPIC DESCRIBE",
    "group-delete-topic-read": "GROUP DELETE; TOPIC READ",
    "group-all-topic-all": "GROUP ALL; TOPIC ALL",
    "transactional-id-write-topic-write": "TRANSACTIONAL_ID WRITE; TOPIC WRITE",
    "transactional-id-write-group-read": "TRANSACTIONAL_ID WRITE; GROUP READ",
    "transactional-id-write-group-read-topic-read": "TRANSACTIONAL_ID WRITE; GROUP READ; TOPIC READ",
    "transactional-id-describe-topic-describe": "TRANSACTIONAL_ID DESCRIBE; TOPIC DESCRIBE",
    "topic-describe-create": "TOPIC DESCRIBE; TOPIC CREATE",
    "topic-create-describe-configs": "TOPIC CREATE; TOPIC DESCRIBE_CONFIGS",
    "topic-describe-cluster-create": "TOPIC DESCRIBE; CLUSTER CREATE",
    "cluster-create-topic-create-denied": "CLUSTER CREATE; deny TOPIC CREATE",
    "everything-on-prefixes": "TOPIC ALL prefix t; TOPIC ALL prefix abs; GROUP ALL prefix g; "
    "TRANSACTIONAL_ID ALL prefix x",
    "everything-by-wildcards": "TOPIC ALL literal *; GROUP ALL literal *; TRANSACTIONAL_ID ALL literal *; CLUSTER ALL",
    "topic-all-read-denied": "TOPIC ALL; deny TOPIC READ",
    "topic-all-describe-denied": "TOPIC ALL; deny TOPIC DESCRIBE",
    "topic-all-denied-by-prefix": "TOPIC ALL; deny TOPIC ALL prefix t",
    "topic-all-denied-by-wildcard": "TOPIC ALL; deny TOPIC ALL literal *",
    "group-all-read-denied": "GROUP ALL; TOPIC ALL; deny GROUP READ",
    "write-denied-where-allowed": "TOPIC WRITE literal only; deny TOPIC WRITE literal only",
    "write-on-an-absent-name": "TOPIC WRITE literal nowhere",
    "from-another-host": "TOPIC ALL from 10.9.9.9; GROUP ALL from 10.9.9.9; CLUSTER ALL from 10.9.9.9",
    "from-this-host": "TOPIC ALL from HOST; GROUP ALL from HOST",
}
PRINCIPALS: Mapping[str, str] = {
    "nobody": "",
    **{
        f"{kind}-{operation}".lower().replace("_", "-"): f"{kind} {operation}"
        for kind, operations in SINGLE.items()
        for operation in operations.split()
    },
    **SEVERAL,
    "admin": "",
}
"""The ACLs of each user; `admin` is a super user."""


def bindings(user: str, host: str) -> list[AclBinding]:
    """Return the ACLs of a user who connects from a host."""
    return [
        binding
        for text in filter(None, PRINCIPALS[user].split("; "))
        for binding in _parsed(text, f"User:{user}", host)
    ]


def _parsed(text: str, principal: str, host: str) -> list[AclBinding]:
    words = text.split()
    permission = AclPermissionType.ALLOW
    if words[0] == "deny":
        permission = AclPermissionType.DENY
        words.pop(0)
    kind, operation = AclResourceType[words[0]], AclOperation[words[1]]
    names, pattern, peer = NAMES[kind], PatternType.LITERAL, "*"
    if words[2:3] == ["from"]:
        peer = host if words[3] == "HOST" else words[3]
    elif words[2:]:
        pattern = PatternType.PREFIXED if words[2] == "prefix" else PatternType.LITERAL
        names = (words[3],)
    entry = AccessControlEntry(principal, peer, operation, permission)
    return [AclBinding(ResourcePattern(kind, name, pattern), entry) for name in names]


# --- requests ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Id:
    """The id that a topic has on the broker that is asked."""

    topic: str


@dataclass(frozen=True)
class Request:
    """A request with kio's names of the fields. Afterwards the topics, groups and ACLs of `restores` are as before."""

    name: str
    api: str
    version: int
    values: Mapping[str, Any]
    restores: Sequence[str] = ()


UNKNOWN_ID = "unknown"
TOPICS = {"t": 2, "o": 2, "only": 1}
"""Topics that are always there."""
DOOMED = ("doomed", "odoomed")
"""Topics that are there when a request is sent."""
NEW = ("new", "onew")
"""Topics that are not there when a request is sent."""
COMMITTED = ("g", "h", "gd", "hd")
"""Groups with an offset of `t` and one of `o`."""
_ALL_NAMES = ("t", "o", "absent", "oabsent")
_IDS = (Id("t"), Id("o"), Id(UNKNOWN_ID))
ANY = 1


def _each(field: str, names: Sequence[Any], **more: Any) -> tuple[dict[str, Any], ...]:
    return tuple({field: name, **more} for name in names)


def _metadata(version: int, topics: Any, *, creates: bool = False) -> dict[str, Any]:
    if topics is not None and version >= 10:
        topics = tuple({"topic_id": None, **topic} if "name" in topic else {"name": None, **topic} for topic in topics)
    values = {"topics": topics}
    if version >= 4:
        values["allow_auto_topic_creation"] = creates
    if version >= 8:
        values["include_topic_authorized_operations"] = True
    if 8 <= version <= 10:
        values["include_cluster_authorized_operations"] = True
    return values


_RECORDS = {"partition_data": ({"index": 0, "records": bytes(batch(b"a"))},)}
_PRODUCE = {"transactional_id": None, "acks": 1, "timeout": 5_000}
_FETCHED = {
    "partition": 0,
    "current_leader_epoch": -1,
    "fetch_offset": 0,
    "last_fetched_epoch": -1,
    "log_start_offset": -1,
    "partition_max_bytes": 1_000,
}
_FETCH = {
    "max_wait": 1,
    "min_bytes": 0,
    "max_bytes": 1_000_000,
    "isolation_level": 0,
    "session_id": 0,
    "session_epoch": -1,
    "forgotten_topics_data": (),
    "rack_id": "",
}
_COMMIT = {
    "partition_index": 0,
    "committed_offset": 1,
    "committed_leader_epoch": -1,
    "committed_metadata": "",
}
_MEMBER = {"generation_id": 3, "member_id": "m", "group_instance_id": None}
_COMMITTER = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}


def _join(group: str, version: int = 9) -> dict[str, Any]:
    values = {
        "group_id": group,
        "session_timeout": 6_000,
        "rebalance_timeout": 6_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": ({"name": "range", "metadata": b""},),
        "reason": None,
    }
    return {name: value for name, value in values.items() if version >= 8 or name != "reason"}


def _beat(group: str, topics: tuple[str, ...] | None, member_id: str = "m") -> dict[str, Any]:
    """A member that nobody knows: with every right it is refused, and nothing is left of it."""
    return {
        "group_id": group,
        "member_id": member_id,
        "member_epoch": 5,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 6_000,
        "subscribed_topic_names": topics,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
    }


def _sync(group: str, protocol: str | None) -> dict[str, Any]:
    named = {"protocol_type": "consumer", "protocol_name": protocol}
    return {"group_id": group, **_MEMBER, **named, "assignments": ()}


def _fetched_groups(topics: Any, **more: Any) -> dict[str, Any]:
    groups = tuple({"group_id": group, **more, "topics": topics} for group in ("h", "g", "ga", "g"))
    return {"groups": groups, "require_stable": False}


def _created(*names: str) -> tuple[dict[str, Any], ...]:
    return _each("name", names, num_partitions=1, replication_factor=1, assignments=(), configs=())


def _configs(types: Mapping[int, Sequence[tuple[str, str, str]]], **more: Any) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": ({"name": config, **more, "value": value},) if config else (),
        }
        for kind, resources in types.items()
        for name, config, value in resources
    )


_ALTERED = {
    2: [("t", "retention.ms", "1000"), ("o", "retention.ms", "1000"), ("absent", "retention.ms", "1000")],
    32: [("g", "consumer.session.timeout.ms", "50000"), ("h", "consumer.session.timeout.ms", "50000")],
}
_FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": "zed",
    "pattern_type_filter": 3,
    "principal_filter": "User:zed",
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}
_ACL = {
    "resource_type": 2,
    "resource_name": "zed",
    "resource_pattern_type": 3,
    "principal": "User:zed",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_INIT = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
_NOBODY = {"member_id": None, "member_epoch": -1}
OPEN = ("xo", "yo")
"""Transactional ids with an open transaction."""
_STRANGER = {"producer_id": 987_654, "producer_epoch": 0}
"""A producer that has no transactional id."""
_ADDED = ("t", "o", "absent", "oabsent", "__consumer_offsets")
_TRANSACTIONAL = {
    "partition_data": ({"index": 0, "records": transactional_batch(b"a", producer=(_STRANGER["producer_id"], 0))},)
}


def _added(transactional_id: str, topics: Sequence[str]) -> dict[str, Any]:
    return {"transactional_id": transactional_id, **_STRANGER, "topics": _each("name", topics, partitions=(0,))}


def _marked(topics: Sequence[str], **more: Any) -> dict[str, Any]:
    marker = {**_STRANGER, "transaction_result": True, "coordinator_epoch": 0, **more}
    return {"markers": ({**marker, "topics": _each("name", topics, partition_indexes=(0,))},)}


def _transactions() -> Iterator[Request]:
    """Yield the requests of transactional producers."""
    for name in ("x", "y"):
        for topics in (("t",), _ADDED):
            values = {f"v3_and_below_{field}": value for field, value in _added(name, topics).items()}
            of = "a topic" if len(topics) == 1 else "topics"
            yield Request(f"AddPartitionsToTxn v3, {name}, {of}", "add_partitions_to_txn", 3, values)
        yield Request(f"EndTxn v5, {name}", "end_txn", 5, {"transactional_id": name, **_STRANGER, "committed": True})
        for group in ("g", "h"):
            asked = {"transactional_id": name, **_STRANGER, "group_id": group}
            yield Request(f"AddOffsetsToTxn v4, {name}, {group}", "add_offsets_to_txn", 4, asked)
            for version in (3, 5):
                member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
                offsets = {**asked, **member, "topics": _each("name", _ALL_NAMES, partitions=(_COMMIT,))}
                yield Request(f"TxnOffsetCommit v{version}, {name}, {group}", "txn_offset_commit", version, offsets)
    for owner in ("x", "y", None):
        topic_data = _each("name", ("t", "o", "absent"), **_TRANSACTIONAL)
        records = {**_PRODUCE, "transactional_id": owner, "topic_data": topic_data}
        yield Request(f"Produce v12, records of a transaction of {owner}", "produce", 12, records)


def _transactions_of_brokers_and_admins() -> Iterator[Request]:
    for verify_only in (False, True):
        adds = tuple({**_added(name, ("t", "o")), "verify_only": verify_only} for name in ("x", "y"))
        of = "verifies" if verify_only else "adds"
        yield Request(f"AddPartitionsToTxn v5, {of}", "add_partitions_to_txn", 5, {"transactions": adds})
    marked = ("t", "o", "absent")
    yield Request("WriteTxnMarkers v1", "write_txn_markers", 1, _marked(marked))
    yield Request("WriteTxnMarkers v2", "write_txn_markers", 2, _marked(marked, transaction_version=2))
    yield Request("DescribeTransactions v0", "describe_transactions", 0, {"transactional_ids": (*OPEN, "xno", "yno")})
    listed = {"state_filters": ("Ongoing",), "producer_id_filters": (), "duration_filter": -1}
    yield Request("ListTransactions v0", "list_transactions", 0, {"state_filters": (), "producer_id_filters": ()})
    yield Request("ListTransactions v2", "list_transactions", 2, {**listed, "transactional_id_pattern": ".o"})
    yield Request(
        "ListTransactions v2, no pattern", "list_transactions", 2, {**listed, "transactional_id_pattern": "("}
    )


REQUESTS = (
    # topics
    *(
        Request(f"Metadata v{version}, names", "metadata", version, _metadata(version, _each("name", _ALL_NAMES)))
        for version in (7, 9, 13)
    ),
    Request("Metadata v1, names", "metadata", 1, _metadata(1, _each("name", ("t", "o", "no good")))),
    Request(
        "Metadata v12, internal and illegal names",
        "metadata",
        12,
        _metadata(12, _each("name", ("__consumer_offsets", "no good"))),
    ),
    Request("Metadata v12, ids", "metadata", 12, _metadata(12, _each("topic_id", _IDS))),
    Request("Metadata v12, all topics", "metadata", 12, _metadata(12, None)),
    Request("Metadata v0, all topics", "metadata", 0, _metadata(0, ())),
    Request(
        "Metadata v12, creates topics", "metadata", 12, _metadata(12, _each("name", ("t", *NEW)), creates=True), NEW
    ),
    Request(
        "DescribeTopicPartitions v0, names",
        "describe_topic_partitions",
        0,
        {"topics": _each("name", _ALL_NAMES), "response_partition_limit": 100, "cursor": None},
    ),
    Request(
        "DescribeTopicPartitions v0, all topics",
        "describe_topic_partitions",
        0,
        {"topics": (), "response_partition_limit": 100, "cursor": None},
    ),
    Request(
        "CreateTopics v7, validated",
        "create_topics",
        7,
        {"topics": _created("new", "onew", "t", "o", "twice", "twice"), "timeout": 5_000, "validate_only": True},
    ),
    Request(
        "CreateTopics v4, validated",
        "create_topics",
        4,
        {"topics": _created("new", "onew", "t", "o"), "timeout": 5_000, "validate_only": True},
    ),
    Request(
        "CreateTopics v7", "create_topics", 7, {"topics": _created(*NEW), "timeout": 5_000, "validate_only": False}, NEW
    ),
    Request(
        "DeleteTopics v6, names",
        "delete_topics",
        6,
        {"topics": _each("name", (*DOOMED, "absent", "oabsent"), topic_id=None), "timeout": 5_000},
        DOOMED,
    ),
    Request(
        "DeleteTopics v6, ids",
        "delete_topics",
        6,
        {"topics": _each("topic_id", (Id("doomed"), Id("odoomed"), Id(UNKNOWN_ID)), name=None), "timeout": 5_000},
        DOOMED,
    ),
    Request("DeleteTopics v4", "delete_topics", 4, {"topic_names": (*DOOMED, "absent"), "timeout": 5_000}, DOOMED),
    Request(
        "CreatePartitions v3, validated",
        "create_partitions",
        3,
        {
            "topics": _each("name", ("t", "o", "absent"), count=9, assignments=None),
            "timeout": 5_000,
            "validate_only": True,
        },
    ),
    # records
    Request("Produce v9", "produce", 9, {**_PRODUCE, "topic_data": _each("name", _ALL_NAMES, **_RECORDS)}),
    Request("Produce v13", "produce", 13, {**_PRODUCE, "topic_data": _each("topic_id", _IDS, **_RECORDS)}),
    Request(
        "Produce v9, unknown acks",
        "produce",
        9,
        {**_PRODUCE, "acks": 7, "topic_data": _each("name", ("t", "o"), **_RECORDS)},
    ),
    Request(
        "Produce v9, an internal topic",
        "produce",
        9,
        {**_PRODUCE, "topic_data": _each("name", ("__consumer_offsets",), **_RECORDS)},
    ),
    Request(
        "Produce v9, a transactional id with plain records",
        "produce",
        9,
        {**_PRODUCE, "transactional_id": "x", "topic_data": _each("name", ("o",), **_RECORDS)},
    ),
    Request(
        "Fetch v12",
        "fetch",
        12,
        {**_FETCH, "replica_id": -1, "topics": _each("topic", _ALL_NAMES, partitions=(_FETCHED,))},
    ),
    Request("Fetch v16", "fetch", 16, {**_FETCH, "topics": _each("topic_id", _IDS, partitions=(_FETCHED,))}),
    *(
        Request(
            f"ListOffsets v{version}",
            "list_offsets",
            version,
            {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": _each(
                    "name",
                    _ALL_NAMES,
                    partitions=({"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1},),
                ),
            },
        )
        for version in (4, 9)
    ),
    Request(
        "ListOffsets v7, a partition twice",
        "list_offsets",
        7,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": _each(
                "name",
                ("t", "o", "o"),
                partitions=({"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1},),
            ),
        },
    ),
    Request(
        "OffsetForLeaderEpoch v4",
        "offset_for_leader_epoch",
        4,
        {
            "replica_id": -2,
            "topics": _each(
                "topic", _ALL_NAMES, partitions=({"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0},)
            ),
        },
    ),
    Request(
        "DeleteRecords v2",
        "delete_records",
        2,
        {"topics": _each("name", _ALL_NAMES, partitions=({"partition_index": 0, "offset": 0},)), "timeout": 5_000},
    ),
    Request("InitProducerId v4", "init_producer_id", 4, {**_INIT, "transactional_id": None}),
    Request("InitProducerId v4, a transactional id", "init_producer_id", 4, {**_INIT, "transactional_id": "x"}),
    Request("InitProducerId v4, another transactional id", "init_producer_id", 4, {**_INIT, "transactional_id": "y"}),
    # groups
    *(Request(f"FindCoordinator v0, {group}", "find_coordinator", 0, {"key": group}) for group in ("g", "h")),
    *(
        Request(f"FindCoordinator v3, {group}", "find_coordinator", 3, {"key": group, "key_type": 0})
        for group in ("g", "h", "")
    ),
    Request("FindCoordinator v6", "find_coordinator", 6, {"key_type": 0, "coordinator_keys": ("h", "g", "ga", "")}),
    Request(
        "FindCoordinator v4, transactional ids", "find_coordinator", 4, {"key_type": 1, "coordinator_keys": ("y", "x")}
    ),
    Request("FindCoordinator v3, a transactional id", "find_coordinator", 3, {"key": "y", "key_type": 1}),
    Request(
        "FindCoordinator v6, a share group",
        "find_coordinator",
        6,
        {"key_type": 2, "coordinator_keys": ("g:AAAAAAAAAAAAAAAAAAAAAQ:0",)},
    ),
    *(
        request
        for group in ("gj", "hj")
        for request in (
            Request(f"JoinGroup v9, {group}", "join_group", 9, _join(group)),
            Request(f"JoinGroup v5, {group}", "join_group", 5, _join(group, 5)),
            Request(f"SyncGroup v5, {group}", "sync_group", 5, _sync(group, "range")),
            Request(f"SyncGroup v5 without a protocol, {group}", "sync_group", 5, _sync(group, None)),
            Request(f"Heartbeat v4, {group}", "heartbeat", 4, {"group_id": group, **_MEMBER}),
            Request(
                f"LeaveGroup v5, {group}",
                "leave_group",
                5,
                {"group_id": group, "members": ({"member_id": "m", "group_instance_id": None, "reason": None},)},
            ),
            Request(f"LeaveGroup v1, {group}", "leave_group", 1, {"group_id": group, "member_id": "m"}),
        )
    ),
    *(
        Request(
            f"ConsumerGroupHeartbeat v1, {group}, topics {topics}", "consumer_group_heartbeat", 1, _beat(group, topics)
        )
        for group in ("ga", "ha")
        for topics in (None, ("t",), ("t", "o"), ("oabsent",))
    ),
    Request(
        "ConsumerGroupHeartbeat v1 without a member id",
        "consumer_group_heartbeat",
        1,
        _beat("ga", ("o",), member_id=""),
    ),
    Request(
        "ConsumerGroupDescribe v1",
        "consumer_group_describe",
        1,
        {"group_ids": ("h", "g", "ga", "ha", ""), "include_authorized_operations": True},
    ),
    *(
        request
        for group in ("g", "h")
        for request in (
            Request(
                f"OffsetCommit v9, {group}",
                "offset_commit",
                9,
                {"group_id": group, **_COMMITTER, "topics": _each("name", _ALL_NAMES, partitions=(_COMMIT,))},
            ),
            Request(
                f"OffsetCommit v10, {group}",
                "offset_commit",
                10,
                {"group_id": group, **_COMMITTER, "topics": _each("topic_id", _IDS, partitions=(_COMMIT,))},
            ),
            Request(
                f"OffsetFetch v1, {group}",
                "offset_fetch",
                1,
                {"group_id": group, "topics": _each("name", _ALL_NAMES, partition_indexes=(0, 1))},
            ),
            Request(
                f"OffsetFetch v7, {group}",
                "offset_fetch",
                7,
                {
                    "group_id": group,
                    "require_stable": False,
                    "topics": _each("name", _ALL_NAMES, partition_indexes=(0,)),
                },
            ),
            Request(f"OffsetFetch v5, all topics of {group}", "offset_fetch", 5, {"group_id": group, "topics": None}),
            Request(
                f"OffsetDelete v0, {group}",
                "offset_delete",
                0,
                {"group_id": group, "topics": _each("name", _ALL_NAMES, partitions=({"partition_index": 0},))},
                (group,),
            ),
        )
    ),
    Request(
        "OffsetCommit v9, one topic",
        "offset_commit",
        9,
        {"group_id": "g", **_COMMITTER, "topics": _each("name", ("o",), partitions=(_COMMIT,))},
    ),
    Request("OffsetFetch v8", "offset_fetch", 8, _fetched_groups(_each("name", _ALL_NAMES, partition_indexes=(0,)))),
    Request("OffsetFetch v9, all topics", "offset_fetch", 9, _fetched_groups(None, **_NOBODY)),
    Request(
        "OffsetFetch v10",
        "offset_fetch",
        10,
        _fetched_groups(_each("topic_id", _IDS, partition_indexes=(0,)), **_NOBODY),
    ),
    Request("OffsetFetch v10, all topics", "offset_fetch", 10, _fetched_groups(None, **_NOBODY)),
    Request("DeleteGroups v2", "delete_groups", 2, {"groups_names": ("hd", "gd", "ga", "ha", "hd")}, ("gd", "hd")),
    Request(
        "DescribeGroups v5",
        "describe_groups",
        5,
        {"groups": ("g", "h", "ga", "ha"), "include_authorized_operations": True},
    ),
    Request(
        "DescribeGroups v6",
        "describe_groups",
        6,
        {"groups": ("g", "h", "ga", "ha"), "include_authorized_operations": True},
    ),
    Request("DescribeGroups v1", "describe_groups", 1, {"groups": ("h", "g")}),
    Request("ListGroups v5", "list_groups", 5, {"states_filter": (), "types_filter": ()}),
    Request("ListGroups v0", "list_groups", 0, {}),
    # the cluster
    Request(
        "DescribeCluster v2",
        "describe_cluster",
        2,
        {"include_cluster_authorized_operations": True, "endpoint_type": 1, "include_fenced_brokers": False},
    ),
    Request("DescribeLogDirs v4", "describe_log_dirs", 4, {"topics": None}),
    Request("DescribeLogDirs v1", "describe_log_dirs", 1, {"topics": None}),
    Request("ListPartitionReassignments v0", "list_partition_reassignments", 0, {"timeout": 5_000, "topics": None}),
    Request(
        "DescribeConfigs v4",
        "describe_configs",
        4,
        {
            "resources": tuple(
                {"resource_type": kind, "resource_name": name, "configuration_keys": None}
                for kind, name in (
                    (2, "t"),
                    (2, "o"),
                    (2, "absent"),
                    (2, "oabsent"),
                    (2, "no good"),
                    (32, "g"),
                    (32, "h"),
                    (4, "1"),
                    (8, "1"),
                )
            ),
            "include_synonyms": False,
            "include_documentation": False,
        },
    ),
    Request("AlterConfigs v2, validated", "alter_configs", 2, {"resources": _configs(_ALTERED), "validate_only": True}),
    Request(
        "IncrementalAlterConfigs v1, validated",
        "incremental_alter_configs",
        1,
        {"resources": _configs(_ALTERED, config_operation=0), "validate_only": True},
    ),
    Request(
        "IncrementalAlterConfigs v1, validated, wrong in other ways",
        "incremental_alter_configs",
        1,
        {
            "resources": _configs(
                {2: [("t", "no.such.config", "1"), ("no good", "retention.ms", "1"), ("o", "no.such.config", "1")]},
                config_operation=0,
            ),
            "validate_only": True,
        },
    ),
    Request(
        "IncrementalAlterConfigs v1, validated, of a broker",
        "incremental_alter_configs",
        1,
        {"resources": _configs({4: [("1", "log.retention.ms", "1000")]}, config_operation=0), "validate_only": True},
    ),
    Request(
        "IncrementalAlterConfigs v1, validated, of a logger",
        "incremental_alter_configs",
        1,
        {"resources": _configs({8: [("1", "kafka", "INFO")]}, config_operation=0), "validate_only": True},
    ),
    Request(
        "AlterPartitionReassignments v0",
        "alter_partition_reassignments",
        0,
        {"timeout": 5_000, "topics": ({"name": "t", "partitions": ({"partition_index": 0, "replicas": None},)},)},
    ),
    Request(
        "ElectLeaders v2",
        "elect_leaders",
        2,
        {"election_type": 0, "topic_partitions": ({"topic": "t", "partitions": (0,)},), "timeout": 5_000},
    ),
    Request(
        "AlterReplicaLogDirs v2",
        "alter_replica_log_dirs",
        2,
        {"dirs": ({"path": "/no/such", "topics": ({"name": "t", "partitions": (0,)},)},)},
    ),
    Request(
        "DescribeQuorum v2",
        "describe_quorum",
        2,
        {"topics": ({"topic_name": "__cluster_metadata", "partitions": ({"partition_index": 0},)},)},
    ),
    Request("DescribeClientQuotas v1", "describe_client_quotas", 1, {"components": (), "strict": False}),
    Request(
        "AlterClientQuotas v1",
        "alter_client_quotas",
        1,
        {
            "entries": (
                {
                    "entity": ({"entity_type": "user", "entity_name": "zed"},),
                    "ops": ({"key": "request_percentage", "value": 0.0, "remove": True},),
                },
            ),
            "validate_only": True,
        },
    ),
    Request("ListConfigResources v1", "list_config_resources", 1, {"resource_types": (16,)}),
    Request(
        "DescribeProducers v0",
        "describe_producers",
        0,
        {"topics": _each("name", _ALL_NAMES, partition_indexes=(0,))},
    ),
    Request(
        "ListTransactions v1",
        "list_transactions",
        1,
        {"state_filters": (), "producer_id_filters": (), "duration_filter": -1},
    ),
    # transactions
    *_transactions(),
    *_transactions_of_brokers_and_admins(),
    # users
    Request(
        "DescribeUserScramCredentials v0",
        "describe_user_scram_credentials",
        0,
        {"users": ({"name": "zed"},)},
    ),
    Request(
        "AlterUserScramCredentials v0",
        "alter_user_scram_credentials",
        0,
        {"deletions": ({"name": "zed", "mechanism": 1}, {"name": "zoe", "mechanism": 1}), "upsertions": ()},
    ),
    # ACLs
    Request("DescribeAcls v3", "describe_acls", 3, _FILTER),
    Request("CreateAcls v3", "create_acls", 3, {"creations": (_ACL, {**_ACL, "resource_name": ""})}, ("ACLs",)),
    Request("DeleteAcls v3", "delete_acls", 3, {"filters": (_FILTER, {**_FILTER, "operation": 99})}, ("ACLs",)),
    Request("DescribeAcls v1", "describe_acls", 1, _FILTER),
)
