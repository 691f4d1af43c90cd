"""The transaction coordinator, without I/O (KIP-98, KIP-360, KIP-890).

Read `states.py` first, which has the tables, then `transaction.py` (one transactional id), then a file per request:
`init_producer_id.py`, `add_partitions_to_txn.py`, `end_txn.py`. `lifecycle.py` has what happens besides requests, and
`coordinator.py` has the ids of a node. `events.py` has the requests and effects.
"""

from __future__ import annotations

from coterie.coordinator.transactions.coordinator import TransactionCoordinator, TransactionReplay, partition_of
from coterie.coordinator.transactions.events import NEW_TRANSACTIONS

__all__ = ["NEW_TRANSACTIONS", "TransactionCoordinator", "TransactionReplay", "partition_of"]
