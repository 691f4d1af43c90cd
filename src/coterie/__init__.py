"""Kafka's consumer groups in Python: broker, clients and tools."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coterie.version import __version__

if TYPE_CHECKING:
    from coterie.assignors.registry import UnknownAssignorError
    from coterie.broker.broker import Broker
    from coterie.client.admin import (
        EARLIEST,
        LATEST,
        MAX_TIMESTAMP,
        Admin,
        AlterConfigOp,
        AsyncAdmin,
        ClusterDescription,
        ConfigChange,
        ConfigEntry,
        ConfigResource,
        ConfigSource,
        GroupDescription,
        GroupListing,
        ListedOffset,
        LogDirectory,
        MemberDescription,
        MemberToRemove,
        NewTopic,
        PartitionDescription,
        ResourceType,
        TopicCreated,
        TopicDescription,
        TopicListing,
        checked,
    )
    from coterie.client.consumer.consumer import AsyncConsumer, Consumer
    from coterie.client.consumer.engine import WakeupError
    from coterie.client.consumer.fetch_errors import (
        CorruptRecordError,
        LogTruncationError,
        NoOffsetForPartitionError,
        OffsetOutOfRangeError,
    )
    from coterie.client.consumer.fetcher import NotAssignedError
    from coterie.client.consumer.rebalance_listener import ConsumerRebalanceListener
    from coterie.client.member.user_errors import AssignorError, ListenerError
    from coterie.client.network.metadata import Node
    from coterie.client.producer.delivery import AsyncDelivery, Delivery, RecordMetadata
    from coterie.client.producer.producer import AsyncProducer, Producer
    from coterie.client.types import (
        GroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        Record,
        Records,
        TopicPartition,
    )
    from coterie.errors import (
        AuthorizationError,
        ClientClosedError,
        CommitFailedError,
        ConcurrentUseError,
        ConnectionLostError,
        CoterieError,
        ErrorCode,
        FencedInstanceError,
        IllegalArgumentError,
        IllegalStateError,
        InvalidTopicError,
        KafkaError,
        MalformedError,
        RebalanceInProgressError,
        RequestTimedOutError,
        UnsupportedVersionError,
    )
    from coterie.settings.client_settings import AdminSettings, ConsumerSettings, ProducerSettings
    from coterie.settings.config_def import SettingsError

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Admin",
    "AdminSettings",
    "AlterConfigOp",
    "AssignorError",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncProducer",
    "AuthorizationError",
    "Broker",
    "ClientClosedError",
    "ClusterDescription",
    "CommitFailedError",
    "ConcurrentUseError",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConnectionLostError",
    "Consumer",
    "ConsumerRebalanceListener",
    "ConsumerSettings",
    "CorruptRecordError",
    "CoterieError",
    "Delivery",
    "ErrorCode",
    "FencedInstanceError",
    "GroupDescription",
    "GroupListing",
    "GroupMetadata",
    "IllegalArgumentError",
    "IllegalStateError",
    "InvalidTopicError",
    "KafkaError",
    "ListedOffset",
    "ListenerError",
    "LogDirectory",
    "LogTruncationError",
    "MalformedError",
    "MemberDescription",
    "MemberToRemove",
    "NewTopic",
    "NoOffsetForPartitionError",
    "Node",
    "NotAssignedError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "PartitionDescription",
    "Producer",
    "ProducerSettings",
    "RebalanceInProgressError",
    "Record",
    "RecordMetadata",
    "Records",
    "RequestTimedOutError",
    "ResourceType",
    "SettingsError",
    "TopicCreated",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "UnknownAssignorError",
    "UnsupportedVersionError",
    "WakeupError",
    "__version__",
    "checked",
]

_NAMES_BY_MODULE = {
    "coterie.assignors.registry": "UnknownAssignorError",
    "coterie.broker.broker": "Broker",
    "coterie.client.admin": (
        "EARLIEST LATEST MAX_TIMESTAMP Admin AlterConfigOp AsyncAdmin ClusterDescription ConfigChange ConfigEntry "
        "ConfigResource ConfigSource GroupDescription GroupListing ListedOffset LogDirectory MemberDescription "
        "MemberToRemove NewTopic PartitionDescription ResourceType TopicCreated TopicDescription TopicListing checked"
    ),
    "coterie.client.consumer.consumer": "AsyncConsumer Consumer",
    "coterie.client.consumer.engine": "WakeupError",
    "coterie.client.producer.delivery": "AsyncDelivery Delivery RecordMetadata",
    "coterie.client.consumer.fetch_errors": (
        "CorruptRecordError LogTruncationError NoOffsetForPartitionError OffsetOutOfRangeError"
    ),
    "coterie.client.consumer.fetcher": "NotAssignedError",
    "coterie.client.consumer.rebalance_listener": "ConsumerRebalanceListener",
    "coterie.client.member.user_errors": "AssignorError ListenerError",
    "coterie.client.network.metadata": "Node",
    "coterie.client.producer.producer": "AsyncProducer Producer",
    "coterie.settings.client_settings": "AdminSettings ConsumerSettings ProducerSettings",
    "coterie.client.types": "GroupMetadata OffsetAndMetadata OffsetAndTimestamp Record Records TopicPartition",
    "coterie.errors": (
        "AuthorizationError ClientClosedError CommitFailedError ConcurrentUseError ConnectionLostError CoterieError "
        "ErrorCode FencedInstanceError IllegalArgumentError IllegalStateError InvalidTopicError KafkaError "
        "MalformedError RebalanceInProgressError RequestTimedOutError UnsupportedVersionError"
    ),
    "coterie.settings.config_def": "SettingsError",
}
_HOMES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import coterie` costs nothing."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'coterie' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, also those that are not loaded yet."""
    return sorted(__all__)
