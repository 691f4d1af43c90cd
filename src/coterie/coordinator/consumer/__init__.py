"""The rules of one consumer group of KIP-848, pure: a rule takes group, event and time, and returns effects.

Read `states.py` first (the tables), then `group.py` (what a group is), `group_change.py` (how records are written), and
`heartbeat.py`, the one request of a member. `rules.py` says which function handles what.
"""

from coterie.coordinator.consumer.conversion import DowngradeWritten, become_consumer, downgraded, upgrade_failed
from coterie.coordinator.consumer.group import ConsumerGroup, ConsumerGroupWritten
from coterie.coordinator.consumer.heartbeat import heartbeat_refusal
from coterie.coordinator.consumer.lifecycle import consumer_group_loaded, restore_consumer_group, unload_consumer_group
from coterie.coordinator.consumer.quick_heartbeat import CaughtUp, quick_heartbeat, says_nothing_new
from coterie.coordinator.consumer.states import GroupState, MemberState
from coterie.coordinator.consumer.topic_image import TopicsImage

__all__ = [
    "CaughtUp",
    "ConsumerGroup",
    "ConsumerGroupWritten",
    "DowngradeWritten",
    "GroupState",
    "MemberState",
    "TopicsImage",
    "become_consumer",
    "consumer_group_loaded",
    "downgraded",
    "heartbeat_refusal",
    "quick_heartbeat",
    "restore_consumer_group",
    "says_nothing_new",
    "unload_consumer_group",
    "upgrade_failed",
]
