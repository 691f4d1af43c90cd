"""Coterie's assignors in kafka-python and aiokafka consumers.

Each module imports its own library; importing this package imports neither. Read `member_slot.py` first: it has what a
member must remember between two rebalances.
"""

from __future__ import annotations
