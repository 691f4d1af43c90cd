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
        AccessControlEntry,
        AccessControlEntryFilter,
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        AclResourceType,
        Admin,
        AlterConfigOp,
        AsyncAdmin,
        ClusterDescription,
        ConfigChange,
        ConfigEntry,
        ConfigResource,
        ConfigSource,
        ElectionType,
        GroupDescription,
        GroupListing,
        ListedOffset,
        LogDirectory,
        MemberDescription,
        MemberToRemove,
        NewTopic,
        PartitionDescription,
        PartitionReassignment,
        PatternType,
        ProducerState,
        QuorumInfo,
        QuorumReplica,
        ResourcePattern,
        ResourcePatternFilter,
        ResourceType,
        ScramCredentialInfo,
        ScramDeletion,
        ScramUpsertion,
        TopicCreated,
        TopicDescription,
        TopicListing,
        TopicPartitionReplica,
        TransactionDescription,
        TransactionListing,
        checked,
    )
    from coterie.client.consumer.async_consumer import AsyncConsumer
    from coterie.client.consumer.consumer import Consumer
    from coterie.client.consumer.engine import WakeupError
    from coterie.client.consumer.fetch_requests import (
        CorruptRecordError,
        LogTruncationError,
        NoOffsetForPartitionError,
        OffsetOutOfRangeError,
    )
    from coterie.client.consumer.fetcher import NotAssignedError
    from coterie.client.consumer.rebalance_listener import ConsumerRebalanceListener
    from coterie.client.member.states import AssignorError, ListenerError
    from coterie.client.network.metadata import Node
    from coterie.client.producer.delivery import AsyncDelivery, Delivery, RecordMetadata
    from coterie.client.producer.producer import AsyncProducer, Producer
    from coterie.client.types import (
        GroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        Record,
        Records,
        SubscriptionPattern,
        TopicPartition,
    )
    from coterie.errors import (
        ApplicationRecoverableError,
        AuthenticationError,
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
        InvalidConfigurationError,
        InvalidTopicError,
        KafkaError,
        MalformedError,
        ProducerFencedError,
        RebalanceInProgressError,
        RequestTimedOutError,
        SaslAuthenticationError,
        SslAuthenticationError,
        TransactionAbortableError,
        TransactionAbortedError,
        TransactionFatalError,
        UnsupportedVersionError,
    )
    from coterie.settings.client_settings import AdminSettings
    from coterie.settings.config_def import SettingsError
    from coterie.settings.consumer_settings import ConsumerSettings
    from coterie.settings.producer_settings import ProducerSettings

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AccessControlEntry",
    "AccessControlEntryFilter",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "AclResourceType",
    "Admin",
    "AdminSettings",
    "AlterConfigOp",
    "ApplicationRecoverableError",
    "AssignorError",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncProducer",
    "AuthenticationError",
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
    "ElectionType",
    "ErrorCode",
    "FencedInstanceError",
    "GroupDescription",
    "GroupListing",
    "GroupMetadata",
    "IllegalArgumentError",
    "IllegalStateError",
    "InvalidConfigurationError",
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
    "PartitionReassignment",
    "PatternType",
    "Producer",
    "ProducerFencedError",
    "ProducerSettings",
    "ProducerState",
    "QuorumInfo",
    "QuorumReplica",
    "RebalanceInProgressError",
    "Record",
    "RecordMetadata",
    "Records",
    "RequestTimedOutError",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "SaslAuthenticationError",
    "ScramCredentialInfo",
    "ScramDeletion",
    "ScramUpsertion",
    "SettingsError",
    "SslAuthenticationError",
    "SubscriptionPattern",
    "TopicCreated",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "TopicPartitionReplica",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionDescription",
    "TransactionFatalError",
    "TransactionListing",
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
        "AccessControlEntry AccessControlEntryFilter AclBinding AclBindingFilter AclOperation AclPermissionType "
        "AclResourceType PatternType ResourcePattern ResourcePatternFilter "
        "EARLIEST LATEST MAX_TIMESTAMP Admin AlterConfigOp AsyncAdmin ClusterDescription ConfigChange ConfigEntry "
        "ConfigResource ConfigSource ElectionType GroupDescription GroupListing ListedOffset LogDirectory "
        "MemberDescription MemberToRemove NewTopic PartitionDescription PartitionReassignment QuorumInfo "
        "ProducerState QuorumReplica ResourceType ScramCredentialInfo ScramDeletion ScramUpsertion TopicCreated "
        "TopicDescription TopicListing TopicPartitionReplica TransactionDescription TransactionListing checked"
    ),
    "coterie.client.consumer.async_consumer": "AsyncConsumer",
    "coterie.client.consumer.consumer": "Consumer",
    "coterie.client.consumer.engine": "WakeupError",
    "coterie.client.producer.delivery": "AsyncDelivery Delivery RecordMetadata",
    "coterie.client.consumer.fetch_requests": (
        "CorruptRecordError LogTruncationError NoOffsetForPartitionError OffsetOutOfRangeError"
    ),
    "coterie.client.consumer.fetcher": "NotAssignedError",
    "coterie.client.consumer.rebalance_listener": "ConsumerRebalanceListener",
    "coterie.client.member.states": "AssignorError ListenerError",
    "coterie.client.network.metadata": "Node",
    "coterie.client.producer.producer": "AsyncProducer Producer",
    "coterie.settings.client_settings": "AdminSettings",
    "coterie.settings.consumer_settings": "ConsumerSettings",
    "coterie.settings.producer_settings": "ProducerSettings",
    "coterie.client.types": "GroupMetadata OffsetAndMetadata OffsetAndTimestamp Record Records SubscriptionPattern "
    "TopicPartition",
    "coterie.errors": (
        "ApplicationRecoverableError AuthenticationError AuthorizationError ClientClosedError CommitFailedError "
        "ConcurrentUseError ConnectionLostError CoterieError ErrorCode FencedInstanceError IllegalArgumentError "
        "IllegalStateError InvalidConfigurationError InvalidTopicError KafkaError MalformedError ProducerFencedError "
        "RebalanceInProgressError RequestTimedOutError SaslAuthenticationError SslAuthenticationError "
        "TransactionAbortableError TransactionAbortedError TransactionFatalError UnsupportedVersionError"
    ),
    "coterie.settings.config_def": "SettingsError",
}
_HOMES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import coterie` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'coterie' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    """Return the public names, also those that are not loaded yet."""
    return sorted(__all__)
