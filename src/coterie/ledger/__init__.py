"""What happened, told back: facts are folded into rounds with cause, culprit and cost.

Knows facts and bytes, not groups: the same fold reads facts of our broker or of any other source. Read `rounds.py`.
"""

from __future__ import annotations

from coterie.ledger.ownership import Move, Ownership
from coterie.ledger.rounds import Ledger, Outcome, Round, fold

__all__ = ["Ledger", "Move", "Outcome", "Ownership", "Round", "fold"]
