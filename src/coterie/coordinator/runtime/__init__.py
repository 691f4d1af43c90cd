"""All groups of one partition of `__consumer_offsets`, still without I/O.

Turns the effects of groups into appends, timers and replies, and records back into groups. Read `shard.py` first,
which has the timers, too; `coordinator.py` holds the shards of a node and reads a log back.
"""

from __future__ import annotations

from coterie.coordinator.runtime.coordinator import GroupCoordinator, Replay, find_coordinator, partition_of
from coterie.coordinator.runtime.shard import GROUP_TIMERS, Append, AppendBatch, Appended, Shard, Timers

__all__ = [
    "GROUP_TIMERS",
    "Append",
    "AppendBatch",
    "Appended",
    "GroupCoordinator",
    "Replay",
    "Shard",
    "Timers",
    "find_coordinator",
    "partition_of",
]
