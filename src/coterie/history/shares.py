"""Who gets what, with the assignors we have: the same for whoever computes it from the same view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

from coterie.assignors import Assignor, Member, Topic, assignor
from coterie.history.design_types import Partition

__all__ = ["shares", "strategy_of"]


def shares(
    strategy: Assignor, subscriptions: Mapping[str, Sequence[str]], topics: Mapping[str, Topic]
) -> dict[str, list[Partition]]:
    """By member. Nobody's past is known here: a sticky assignor has nothing to stick to."""
    members = [Member(name, subscribed) for name, subscribed in sorted(subscriptions.items())]
    found = strategy.assign(members, topics)
    return {
        name: sorted((topic, number) for topic, numbers in mine.items() for number in numbers)
        for name, mine in found.items()
    }


def strategy_of(name: str) -> Assignor:
    """One of ours by its name, or `module:Class`."""
    module, colon, kind = name.partition(":")
    if not colon:
        return assignor(name)
    made: Assignor = getattr(import_module(module), kind)()
    return made
