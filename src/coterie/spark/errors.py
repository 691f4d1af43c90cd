"""What makes a query fail on purpose: each says what happened, what the rule is, and what to do."""

from __future__ import annotations

from coterie.errors import CoterieError

__all__ = ["DataLossError", "FencedQueryError"]


class DataLossError(CoterieError):
    """Records that were to be read are gone, and `failOnDataLoss` is true."""


class FencedQueryError(CoterieError):
    """The group took partitions away while a batch of them ran: somebody else may have read the same."""
