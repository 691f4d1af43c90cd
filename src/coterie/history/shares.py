"""Who gets what, with the assignors we have: the same for whoever computes it from the same view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coterie.assignors import Assignor, Member, Topic
from coterie.history.words import Partition

__all__ = ["shares"]


def shares(
    assignor: Assignor, subscriptions: Mapping[str, Sequence[str]], topics: Mapping[str, Topic]
) -> dict[str, list[Partition]]:
    """By member. Nobody's past is known here: a sticky assignor has nothing to stick to."""
    members = [Member(name, subscribed) for name, subscribed in sorted(subscriptions.items())]
    found = assignor.assign(members, topics)
    return {
        name: sorted((topic, number) for topic, numbers in mine.items() for number in numbers)
        for name, mine in found.items()
    }
