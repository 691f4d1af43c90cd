"""What an operator does with a cluster, as typed data: topics, configs, groups, offsets.

Many things are asked for at once, and each has its own result: a value, or the `KafkaError` it met. Requests go to
whoever must answer them (controller, coordinator, leader) and are tried again until `default.api.timeout.ms`. Read
`admin_types.py` first, then `topic_admin.py` and `group_admin.py`; `admin.py` puts them together, `results.py` has the
retries.
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
)
from coterie.client.admin.results import checked

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Admin",
    "AlterConfigOp",
    "AsyncAdmin",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "GroupDescription",
    "GroupListing",
    "ListedOffset",
    "LogDirectory",
    "MemberDescription",
    "MemberToRemove",
    "NewTopic",
    "PartitionDescription",
    "ResourceType",
    "TopicCreated",
    "TopicDescription",
    "TopicListing",
    "checked",
]
