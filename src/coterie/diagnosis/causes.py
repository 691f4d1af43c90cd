"""Causes of a rebalance that say the same: a weak source sees less of it than a strong one."""

from __future__ import annotations

from coterie.diagnosis.evidence import Claim
from coterie.facts import Cause
from coterie.ledger.derived import DerivedCause

_GONE = frozenset(
    {
        Cause.MEMBER_LEFT,
        Cause.SESSION_EXPIRED,
        Cause.SYNC_TIMEOUT,
        Cause.REVOCATION_TIMEOUT,
        DerivedCause.MEMBER_GONE,
    }
)
"""The causes that a source which compares lists of members sees as "member disappeared"."""

_CHANGED = frozenset({Cause.SUBSCRIPTION_CHANGED, Cause.PROTOCOLS_CHANGED, Cause.REGEX_RESOLVED})
"""Causes that the two protocols, and versions of the broker, name differently."""


def causes_agree(strong: Claim[str], weak: Claim[str]) -> bool:
    """Return whether two sources can mean the same rebalance."""
    one, other = strong.value, weak.value
    if one == other or DerivedCause.UNKNOWN in (one, other):
        return True
    if DerivedCause.MEMBER_GONE in (one, other):
        return one in _GONE and other in _GONE
    return one in _CHANGED and other in _CHANGED
