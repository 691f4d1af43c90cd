"""Fold facts into rebalances, each with its cause, the member behind it, and its cost.

It reads the facts of a Coterie broker, or those that `derived.py` derives from any cluster's `__consumer_offsets`. Read
`rebalances.py` first. `ownership.py` says who owned which partition when, and `written_facts.py` how facts are stored.
"""

from __future__ import annotations

from coterie.ledger.ownership import Interval, Move, Ownership, intervals_of, rejoins_of
from coterie.ledger.rebalances import Bookmark, Ledger, Rebalance, RebalanceOutcome, TypeChange, fold
from coterie.ledger.written_facts import plain, read_fact, write_fact

__all__ = [
    "Bookmark",
    "Interval",
    "Ledger",
    "Move",
    "Ownership",
    "Rebalance",
    "RebalanceOutcome",
    "TypeChange",
    "fold",
    "intervals_of",
    "plain",
    "read_fact",
    "rejoins_of",
    "write_fact",
]
