"""Assignors: from the members' subscriptions to an assignment, without I/O or state.

The package has Kafka's four assignors under Kafka's names and `lag-aware` for brokers, and finds those of users. It
knows nothing of groups, brokers or time. Read `model.py` first (the base class), then `roundrobin.py` (the simplest),
`sticky.py` (which of its three algorithms is used) and `min_cost_flow.py` (the optimum for unequal subscriptions).
"""

from __future__ import annotations

from coterie.assignors.lag_aware import LagAware
from coterie.assignors.model import Assignment, Assignor, Member, Owned, Topic
from coterie.assignors.range import Range
from coterie.assignors.registry import UnknownAssignorError, assignor, assignor_names, server_side_assignors
from coterie.assignors.roundrobin import RoundRobin
from coterie.assignors.sticky import CooperativeSticky, Sticky

__all__ = [
    "Assignment",
    "Assignor",
    "CooperativeSticky",
    "LagAware",
    "Member",
    "Owned",
    "Range",
    "RoundRobin",
    "Sticky",
    "Topic",
    "UnknownAssignorError",
    "assignor",
    "assignor_names",
    "server_side_assignors",
]
