"""Random groups, from a seed: members, topics, what they own, and what happens to them."""

from __future__ import annotations

from random import Random  # noqa: TID251  a seed in, a case out

from coterie.assignors import Assignment, Member, Owned, Topic
from coterie.assignors.cases import Case
from coterie.structs import replace

__all__ = ["after_an_event", "holding", "random_case", "shuffled"]

RACKS = ("rack-a", "rack-b", "rack-c")


def random_case(
    seed: int, members: int = 6, topics: int = 6, partitions: int = 6, *, equal: bool = False, racks: bool = False
) -> Case:
    """Nobody owns anything, everyone owns something at random, or about half of the partitions are owned."""
    rng = Random(seed)
    names = [f"t{number}" for number in range(rng.randint(1, topics))]
    sizes = {name: rng.randint(1, partitions) for name in names}
    density = 1.0 if equal else rng.choice((0.2, 0.5, 0.8))
    group = [
        Member(
            f"m{number:02}",
            [name for name in names if rng.random() <= density],
            rack=rng.choice((*RACKS, "rack-x", None)) if racks else None,
            generation=5,
        )
        for number in range(rng.randint(1, members))
    ]
    share = rng.choice((0.0, 0.6, 1.0))
    owned: dict[str, dict[str, list[int]]] = {member.id: {} for member in group}
    for name, size in sizes.items():
        readers = [member.id for member in group if name in member.topics]
        favourites = readers[: max(1, len(readers) * rng.randint(1, 2) // 2)]
        for partition in range(size):
            if favourites and rng.random() < share:
                owned[rng.choice(favourites)].setdefault(name, []).append(partition)
    return Case(
        f"seed {seed}",
        {name: Topic(size, _places(rng, size) if racks else None) for name, size in sizes.items()},
        [replace(member, owned=owned[member.id]) for member in group],
    )


def _places(rng: Random, size: int) -> list[list[str]]:
    return [rng.sample(RACKS, rng.randint(0, len(RACKS))) for _ in range(size)]


def after_an_event(seed: int, case: Case) -> Case:
    """Somebody leaves, somebody comes, somebody changes its mind, a topic grows."""
    rng = Random(seed)
    members, topics = list(case.members), dict(case.topics)
    kind = rng.choice(("leave", "join", "resubscribe", "grow"))
    names = list(topics)
    wanted = rng.sample(names, rng.randint(1, len(names)))
    if kind == "leave" and len(members) > 1:
        del members[rng.randrange(len(members))]
    elif kind == "resubscribe":
        at = rng.randrange(len(members))
        owned = {topic: ids for topic, ids in members[at].owned.items() if topic in wanted}  # given up before joining
        members[at] = replace(members[at], topics=wanted, owned=owned)
    elif kind == "grow":
        name = rng.choice(names)
        topics[name] = replace(topics[name], partitions=topics[name].partitions + rng.randint(1, 5))
    else:
        members.append(Member(f"n{seed}", wanted, generation=-1))
    return Case(case.id, topics, members)


def holding(case: Case, assignment: Assignment, generation: int = 6) -> Case:
    """The same group in the next rebalance, everyone with what it was given."""
    members = [
        replace(member, owned=assignment[member.id], generation=generation, user_data=None) for member in case.members
    ]
    return Case(case.id, case.topics, members)


def shuffled(seed: int, case: Case) -> Case:
    """The same group, told in another order."""
    rng = Random(seed)
    members = [
        replace(member, topics=rng.sample(member.topics, len(member.topics)), owned=_mixed(rng, member.owned))
        for member in case.members
    ]
    topics = list(case.topics.items())
    rng.shuffle(members)
    rng.shuffle(topics)
    return Case(case.id, dict(topics), members)


def _mixed(rng: Random, owned: Owned) -> dict[str, list[int]]:
    pairs = list(owned.items())
    rng.shuffle(pairs)
    return {topic: rng.sample(ids, len(ids)) for topic, ids in pairs}
