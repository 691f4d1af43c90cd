"""Who reads what: from the members' subscriptions to an assignment, pure and stateless.

Kafka's four under Kafka's names, and yours. Knows nothing of groups, brokers or time. Read `model.py` first (the shape
of all of them), then `roundrobin.py` (the simplest), `sticky.py` (which of its three ways is taken), `flow.py` (the
optimum).
"""

from __future__ import annotations

from coterie.assignors.cooperative_sticky import CooperativeSticky
from coterie.assignors.model import Assignment, Assignor, Member, Owned, Topic
from coterie.assignors.range import Range
from coterie.assignors.registry import UnknownAssignorError, assignor, assignor_names
from coterie.assignors.roundrobin import RoundRobin
from coterie.assignors.sticky import Sticky

__all__ = [
    "Assignment",
    "Assignor",
    "CooperativeSticky",
    "Member",
    "Owned",
    "Range",
    "RoundRobin",
    "Sticky",
    "Topic",
    "UnknownAssignorError",
    "assignor",
    "assignor_names",
]
