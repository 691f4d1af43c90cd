"""The supported APIs and their versions: the table that ApiVersions answers and docs/apis.md prints.

The versions are those of Apache Kafka 4.3.1. What an API does not do is data too: `missing`. The file named after an
API has its fields; this one, which all of them import, has the values that several APIs share.

A new version needs its row here; its fields in the API's file (`wire(since=...)`), and in the readers by hand where
there are some; what it means in its handler, in `broker/handlers/`; a place in the cases that are
asked of Kafka (`tests/conformance/script.py`); and `make docs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from importlib import import_module
from types import MappingProxyType, ModuleType

from coterie.protocol.codec.fields import Int32
from coterie.structs import DataStruct, field

NEVER = 1 << 15
"""Higher than any version."""


class Api(DataStruct, frozen=True):
    """One API. `versions` is what ApiVersions says; of these, `refused` are advertised and then not served."""

    key: int
    name: str
    versions: range
    flexible: int
    """The first version with compact lengths and tagged fields (KIP-482)."""
    by_id: int = NEVER
    """The first version that knows topics by id (KIP-516); for most, the first that does not know their names."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """The parts that are not supported, and why."""
    refused: range = range(0)
    advertised: bool = True
    """False: ApiVersions lists it only if a setting says so. It is served in any case."""

    @property
    def module_name(self) -> str:
        """The name of the API's module: `join_group` for `JoinGroup`."""
        return "".join("_" + c.lower() if c.isupper() else c for c in self.name).lstrip("_")

    @property
    def module(self) -> ModuleType:
        return import_module(f"coterie.protocol.apis.{self.module_name}")

    @property
    def last_by_name(self) -> int:
        """The newest version a client may use that knows topics by name only."""
        return min(self.by_id, self.versions.stop) - 1

    def serves(self, version: int) -> bool:
        """Return whether a version is served; others close the connection, except of ApiVersions (rule C5)."""
        return version in self.versions and version not in self.refused

    def has_flexible_response_header(self, version: int) -> bool:
        """Return whether the answer's header has tagged fields; never for ApiVersions, sent first (KIP-511)."""
        return version >= self.flexible and self.key != API_VERSIONS_KEY


API_VERSIONS_KEY = 18

_NO_SESSIONS = {"fetch sessions": "each fetch names all it wants (KIP-227)"}
_ONE_NODE = {"followers": "the one copy of a log is its leader's"}
_NO_QUOTAS = {"quotas": "there are none, and none can be set"}


def _versions(first: int, last: int) -> range:
    return range(first, last + 1)


APIS = (
    Api(
        0,
        "Produce",
        _versions(0, 13),
        flexible=9,
        by_id=13,
        missing={
            "versions 0-2": "advertised as Kafka does, since librdkafka compresses only then; refused as Kafka does",
        },
        refused=range(3),
    ),
    Api(1, "Fetch", _versions(4, 18), flexible=12, by_id=13, missing={**_ONE_NODE, **_NO_SESSIONS}),
    Api(2, "ListOffsets", _versions(1, 11), flexible=6),
    Api(3, "Metadata", _versions(0, 13), flexible=9, by_id=12),
    Api(8, "OffsetCommit", _versions(2, 10), flexible=8, by_id=10),
    Api(9, "OffsetFetch", _versions(1, 10), flexible=6, by_id=10),
    Api(10, "FindCoordinator", _versions(0, 6), flexible=3, missing={"share groups": "key type 2"}),
    Api(11, "JoinGroup", _versions(0, 9), flexible=6),
    Api(12, "Heartbeat", _versions(0, 4), flexible=4),
    Api(13, "LeaveGroup", _versions(0, 5), flexible=4),
    Api(14, "SyncGroup", _versions(0, 5), flexible=4),
    Api(15, "DescribeGroups", _versions(0, 6), flexible=5),
    Api(16, "ListGroups", _versions(0, 5), flexible=3),
    Api(17, "SaslHandshake", _versions(0, 1), flexible=NEVER),
    Api(18, "ApiVersions", _versions(0, 4), flexible=3),
    Api(19, "CreateTopics", _versions(2, 7), flexible=5),
    Api(20, "DeleteTopics", _versions(1, 6), flexible=4, by_id=6),
    Api(21, "DeleteRecords", _versions(0, 2), flexible=2),
    Api(22, "InitProducerId", _versions(0, 5), flexible=2),
    Api(23, "OffsetForLeaderEpoch", _versions(2, 4), flexible=4),
    Api(24, "AddPartitionsToTxn", _versions(0, 5), flexible=3),
    Api(25, "AddOffsetsToTxn", _versions(0, 4), flexible=3),
    Api(26, "EndTxn", _versions(0, 5), flexible=3),
    Api(27, "WriteTxnMarkers", _versions(1, 2), flexible=1),
    Api(28, "TxnOffsetCommit", _versions(0, 5), flexible=3),
    Api(29, "DescribeAcls", _versions(1, 3), flexible=2),
    Api(30, "CreateAcls", _versions(1, 3), flexible=2),
    Api(31, "DeleteAcls", _versions(1, 3), flexible=2),
    Api(32, "DescribeConfigs", _versions(1, 4), flexible=4),
    Api(33, "AlterConfigs", _versions(0, 2), flexible=2),
    Api(34, "AlterReplicaLogDirs", _versions(1, 2), flexible=2),
    Api(35, "DescribeLogDirs", _versions(1, 5), flexible=2),
    Api(36, "SaslAuthenticate", _versions(0, 2), flexible=2),
    Api(37, "CreatePartitions", _versions(0, 3), flexible=2),
    Api(42, "DeleteGroups", _versions(0, 2), flexible=2),
    Api(43, "ElectLeaders", _versions(0, 2), flexible=2),
    Api(44, "IncrementalAlterConfigs", _versions(0, 1), flexible=1),
    Api(45, "AlterPartitionReassignments", _versions(0, 1), flexible=0),
    Api(46, "ListPartitionReassignments", _versions(0, 0), flexible=0),
    Api(47, "OffsetDelete", _versions(0, 0), flexible=NEVER),
    Api(48, "DescribeClientQuotas", _versions(0, 1), flexible=1, missing=_NO_QUOTAS),
    Api(49, "AlterClientQuotas", _versions(0, 1), flexible=1, missing=_NO_QUOTAS),
    Api(50, "DescribeUserScramCredentials", _versions(0, 0), flexible=0),
    Api(51, "AlterUserScramCredentials", _versions(0, 0), flexible=0),
    Api(
        55,
        "DescribeQuorum",
        _versions(0, 2),
        flexible=0,
        missing={"a metadata log": "the nodes share their state: the epoch and all offsets are 0"},
    ),
    Api(60, "DescribeCluster", _versions(0, 2), flexible=0),
    Api(61, "DescribeProducers", _versions(0, 0), flexible=0),
    Api(65, "DescribeTransactions", _versions(0, 0), flexible=0),
    Api(66, "ListTransactions", _versions(0, 2), flexible=0),
    Api(
        68,
        "ConsumerGroupHeartbeat",
        _versions(0, 1),
        flexible=0,
        missing={"members of both protocols in one group": "a group that has members of one refuses the other"},
    ),
    Api(69, "ConsumerGroupDescribe", _versions(0, 1), flexible=0),
    Api(71, "GetTelemetrySubscriptions", _versions(0, 0), flexible=0, advertised=False),
    Api(72, "PushTelemetry", _versions(0, 0), flexible=0, advertised=False),
    Api(74, "ListConfigResources", _versions(0, 1), flexible=0),
    Api(75, "DescribeTopicPartitions", _versions(0, 0), flexible=0),
)

by_key = MappingProxyType({row.key: row for row in APIS})
_BY_NAME = {row.name: row for row in APIS}

FIRST_FLEXIBLE = MappingProxyType({row.key: row.flexible for row in APIS})
"""The first version of each API whose request header has tagged fields (`frames.read_request_header`)."""


def api(name: str) -> Api:
    return _BY_NAME[name]


READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""Isolation levels of a consumer."""

NOT_ASKED = -(1 << 31)
"""The value of authorized operations if the client did not ask for them."""


class Leader(DataStruct, kw_only=True):
    """The current leader of a partition, for a client that asked another broker (KIP-951)."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(DataStruct, kw_only=True):
    """The address of that leader."""

    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None


class ResourceType(IntEnum):
    """The type of the resource that has the configs."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def _missing_(cls, value: object) -> ResourceType:  # noqa: ARG003  a newer broker may know more
        return cls.UNKNOWN


class ConfigSource(IntEnum):
    """The source of a config's value."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:  # noqa: ARG003  a newer broker may know more
        return cls.UNKNOWN
