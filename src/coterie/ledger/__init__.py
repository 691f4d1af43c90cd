"""What happened, told back: facts are folded into rebalances with cause, culprit and cost.

Knows facts and bytes, not groups: the same fold reads facts of our broker or of any other source. Read `rebalances.py`;
`intervals.py` tells who held what when, `written_facts.py` how facts are kept.
"""

from __future__ import annotations

from coterie.ledger.bookmarks import Bookmark
from coterie.ledger.intervals import Interval, intervals_of
from coterie.ledger.ownership import Move, Ownership
from coterie.ledger.rebalances import Ledger, Outcome, Rebalance, fold
from coterie.ledger.written_facts import field_names, plain, read_fact, write_fact

__all__ = [
    "Bookmark",
    "Interval",
    "Ledger",
    "Move",
    "Outcome",
    "Ownership",
    "Rebalance",
    "field_names",
    "fold",
    "intervals_of",
    "plain",
    "read_fact",
    "write_fact",
]
