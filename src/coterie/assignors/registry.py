"""Assignors by name: Kafka's four, and those of users by the entry point group `coterie.assignors`.

[project.entry-points."coterie.assignors"]
lag-aware = "my_package.assignors:LagAware"
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from coterie.assignors.lag_aware import LagAware
from coterie.assignors.model import Assignor
from coterie.assignors.range import Range
from coterie.assignors.roundrobin import RoundRobin
from coterie.assignors.sticky import CooperativeSticky, Sticky
from coterie.errors import CoterieError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP = "coterie.assignors"
BUILT_IN: dict[str, type[Assignor]] = {kind.name: kind for kind in (Range, RoundRobin, Sticky, CooperativeSticky)}


SERVER_SIDE = ("uniform", "range")
"""Kafka's assignors of consumer groups, which `coterie.coordinator.consumer.target_assignment` has."""


class UnknownAssignorError(CoterieError, LookupError):
    """No assignor of that name, or one that cannot be used."""


def _entry_points() -> EntryPoints:
    from importlib.metadata import entry_points  # costs a broker 10 ms of its start, and few have any

    return entry_points(group=GROUP)


def assignor_names() -> list[str]:
    return [*BUILT_IN, *sorted({point.name for point in _entry_points()} - BUILT_IN.keys())]


def assignor(name: str) -> Assignor:
    """Return a new assignor. Kafka's names always mean Kafka's assignors: an entry point cannot replace one."""
    if name in BUILT_IN:
        return BUILT_IN[name]()
    for point in _entry_points().select(name=name):
        found = point.load()
        made = found() if isinstance(found, type) else found
        if not isinstance(made, Assignor) or getattr(made, "name", None) != name:
            raise UnknownAssignorError(
                f'entry point "{name}" ({point.value}) is not an assignor of that name: it must be, or be a subclass '
                f'of, coterie.assignors.Assignor, with name = "{name}"'
            )
        return made
    near = get_close_matches(name, assignor_names(), 1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    raise UnknownAssignorError(f'unknown assignor "{name}"; known are {", ".join(assignor_names())}{hint}')


def server_side_assignors(names: Iterable[str]) -> dict[str, Assignor]:
    """Return the assignors of `group.consumer.assignors` that are not Kafka's own, by name.

    `lag-aware` is ours, unless there is an entry point of that name.
    """
    return {name: _server_side(name) for name in names if name not in SERVER_SIDE}


def _server_side(name: str) -> Assignor:
    known = assignor_names()
    if name == LagAware.name and name not in known:
        return LagAware()
    if name not in known:
        there = sorted({*known, LagAware.name} - {*SERVER_SIDE, CooperativeSticky.name})
        raise UnknownAssignorError(
            f'group.consumer.assignors names the unknown assignor "{name}"; known are '
            f"{', '.join((*SERVER_SIDE, *there))}"
        )
    found = assignor(name)
    if found.cooperative:
        raise UnknownAssignorError(
            f'group.consumer.assignors names "{name}", which withholds partitions until their owners have given them '
            "up. The broker does this by itself; use uniform instead"
        )
    return found
