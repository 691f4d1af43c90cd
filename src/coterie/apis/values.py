"""Values that several APIs share."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.apis.fields import Int32

__all__ = ["NOT_ASKED", "READ_COMMITTED", "READ_UNCOMMITTED", "Leader", "NodeEndpoint"]

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""Isolation levels of a reader."""

NOT_ASKED = -(1 << 31)
"""Authorized operations of somebody who did not ask for them."""


@dataclass(slots=True, kw_only=True)
class Leader:
    """Who leads a partition now, for a client that asked the wrong broker (KIP-951)."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@dataclass(slots=True, kw_only=True)
class NodeEndpoint:
    """Where to find that leader."""

    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None
