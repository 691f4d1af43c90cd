"""Explain rebalances from any source, with evidence, and find what is wrong with a group.

Read `model.py` first, and `evidence.py` for what a statement is.
"""

from __future__ import annotations

from coterie.diagnosis.evidence import Bound, Claim, Evidence, Grade, Statement, merged, said, unknown
from coterie.diagnosis.model import (
    Cost,
    Departure,
    Event,
    ExplainedRebalance,
    Finding,
    GroupHistory,
    GroupSample,
    Happening,
    MemberSpan,
    PartitionLag,
    Severity,
    worst_first,
)

__all__ = [
    "Bound",
    "Claim",
    "Cost",
    "Departure",
    "Event",
    "Evidence",
    "ExplainedRebalance",
    "Finding",
    "Grade",
    "GroupHistory",
    "GroupSample",
    "Happening",
    "MemberSpan",
    "PartitionLag",
    "Severity",
    "Statement",
    "merged",
    "said",
    "unknown",
    "worst_first",
]
