"""One member of a group of KIP-848 (`group.protocol=consumer`), without I/O. The broker assigns the partitions.

Read `states.py` first (the states of a member, and its reaction to each error), then `heartbeat.py`, the one request
that joins, reports, acknowledges and leaves, and `reconciliation.py`: how the member gets from the partitions it owns
to those that it is assigned. Looking up the coordinator, commits, the subscription and the calls of the listener are
shared with the classic protocol.
"""

from __future__ import annotations

from coterie.client.member.consumer_protocol.membership import ConsumerMembership

__all__ = ["ConsumerMembership"]
