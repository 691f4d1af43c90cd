"""The admin client: topics, configs, groups, offsets, ACLs and users of a cluster, as typed data.

A call takes many resources at once, and each has its own result: a value, or its `KafkaError`. Requests go to the
controller, the coordinator or the leader, and are retried until `default.api.timeout.ms`. Read
`admin_types.py` first, then `topic_admin.py`, `group_admin.py` and `cluster_admin.py`; `admin.py` puts them together,
`results.py` has the retries.
"""

from __future__ import annotations

from coterie.client.admin.admin import Admin, AsyncAdmin
from coterie.client.admin.admin_types import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    AlterConfigOp,
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
    QuorumInfo,
    QuorumReplica,
    ResourceType,
    TopicCreated,
    TopicDescription,
    TopicListing,
    TopicPartitionReplica,
)
from coterie.client.admin.results import checked
from coterie.client.admin.user_admin import ScramCredentialInfo, ScramDeletion, ScramUpsertion
from coterie.protocol.acls import (
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
)

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
    "AlterConfigOp",
    "AsyncAdmin",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ElectionType",
    "GroupDescription",
    "GroupListing",
    "ListedOffset",
    "LogDirectory",
    "MemberDescription",
    "MemberToRemove",
    "NewTopic",
    "PartitionDescription",
    "PartitionReassignment",
    "PatternType",
    "QuorumInfo",
    "QuorumReplica",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "ScramCredentialInfo",
    "ScramDeletion",
    "ScramUpsertion",
    "TopicCreated",
    "TopicDescription",
    "TopicListing",
    "TopicPartitionReplica",
    "checked",
]
