"""What can happen to a broker, beside what happens to its groups. `group_id` is empty."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.facts import Fact

__all__ = ["ConnectionDropped", "FactsLeftOut", "LeadersChanged", "TransactionRefused", "Trouble"]


@dataclass(slots=True)
class Trouble(Fact):
    """Something is wrong with the machine: a disk that is full, a file that cannot be read."""

    what: str


@dataclass(slots=True)
class ConnectionDropped(Fact):
    """We closed it."""

    host: str
    why: str


@dataclass(slots=True)
class TransactionRefused(Fact):
    """Most clients show the error's code alone, which does not say why: so it is said here."""

    client_id: str
    transactional_id: str
    why: str


@dataclass(slots=True)
class LeadersChanged(Fact):
    """Nodes have stopped or started, or something was moved."""

    why: str
    partitions: int
    """So many have another leader."""
    nodes_up: list[int]


@dataclass(slots=True)
class FactsLeftOut(Fact):
    """There were more of a kind in a second than anybody reads: how many were not told, and the last of them."""

    kind: str
    count: int
    within_ms: int
    last: str
