"""The facts of a broker, beside those of its groups; their `group_id` is empty. `Reporter` turns facts into effects."""

from __future__ import annotations

from traceback import format_exc

from coterie.coordinator.wall_clock import WallClock
from coterie.facts import Emit, Fact, Mistake


class Trouble(Fact):
    """Something is wrong with the machine: a disk that is full, a file that cannot be read."""

    what: str


class ConnectionDropped(Fact):
    """The broker closed a connection."""

    host: str
    why: str


class AuthenticationFailed(Fact):
    """A client could not log in. Neither its password nor its name is here: people mix them up."""

    host: str
    listener: str
    mechanism: str
    why: str


class FilesReloaded(Fact):
    """Files have changed, and were read again: a certificate, which new connections get, or users."""

    what: str


class AuthorizationDenied(Fact):
    """The ACLs do not allow what a client asked for."""

    principal: str
    operation: str
    resource_type: str
    resource_name: str
    host: str
    request: str
    """The name of the API."""


class LeadersChanged(Fact):
    """Nodes have stopped or started, or a partition was moved."""

    why: str
    partitions: int
    """The number of partitions that have another leader."""
    nodes_up: list[int]


class FactsLeftOut(Fact):
    """Facts of one kind were left out of the log, because there were too many within a second."""

    kind: str
    count: int
    within_ms: int
    last: str


class Reporter:
    """Makes effects of facts. A fact is made with the time of its event, and emitted with the wall clock's."""

    def __init__(self, wall: WallClock) -> None:
        self._wall = wall

    def fact(self, fact: Fact) -> Emit:
        fact.at_ms = self._wall.at(fact.at_ms)
        return Emit(fact)

    def trouble(self, what: str, now_ms: int) -> Emit:
        return self.fact(Trouble(now_ms, "", what))

    def mistake(self, doing: str, now_ms: int) -> Emit:
        """Report the exception that is being handled: a bug of the broker, which must not stop it."""
        return self.fact(Mistake(now_ms, "", doing, format_exc()))
