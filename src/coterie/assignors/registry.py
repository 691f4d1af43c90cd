"""Assignors by name: Kafka's four, and those of users by the entry point group `coterie.assignors`.

[project.entry-points."coterie.assignors"]
lag-aware = "my_package.assignors:LagAware"
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib.metadata import entry_points

from coterie.assignors.model import Assignor
from coterie.assignors.range import Range
from coterie.assignors.roundrobin import RoundRobin
from coterie.assignors.sticky import CooperativeSticky, Sticky
from coterie.errors import CoterieError

GROUP = "coterie.assignors"
BUILT_IN: dict[str, type[Assignor]] = {kind.name: kind for kind in (Range, RoundRobin, Sticky, CooperativeSticky)}


class UnknownAssignorError(CoterieError, LookupError):
    """No assignor of that name, or one that cannot be used."""


def assignor_names() -> list[str]:
    return [*BUILT_IN, *sorted({point.name for point in entry_points(group=GROUP)} - BUILT_IN.keys())]


def assignor(name: str) -> Assignor:
    """Return a new assignor. Kafka's names always mean Kafka's assignors: an entry point cannot replace one."""
    if name in BUILT_IN:
        return BUILT_IN[name]()
    for point in entry_points(group=GROUP, name=name):
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
