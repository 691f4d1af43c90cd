"""Requests that are wrong in one way and in two: which error is named says which check comes first.

A fault is one argument of a step; two faults of different arguments make a pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from conformance.cases.family import Family
from conformance.cases.states import STATES
from conformance.script import Case

__all__ = ["FAMILIES"]

_STATES = (
    "no group",
    "an id was given out",
    "Empty",
    "a simple group",
    "Preparing",
    "Completing",
    "Stable",
    "Stable, static",
    "Completing, static",
)
_ID = {"unknown id": "member=ghost", "no id": "member=none", "another's id": "member=b"}
_INSTANCE = {"unknown instance": "instance=north", "another's instance": "instance=west", "own": "instance=east"}
_GENERATION = {"older": "generation=older", "newer": "generation=newer", "no generation": "generation=-1"}
_NO_GROUP_ID = {"no group id": "group=none"}

# One to a group, since the group may be another one afterwards.
ALONE: Mapping[str, Mapping[str, str]] = {
    "a join": {
        **_ID,
        **_INSTANCE,
        **_NO_GROUP_ID,
        "short session": "session=99",
        "long session": "session=1800001",
        "no protocols": "protocols=",
        "no type": "type=none",
        "other type": "type=connect",
        "other protocol": "protocols=sticky",
        "negative rebalance timeout": "rebalance=-1",
    },
    "z leave": {
        **_NO_GROUP_ID,
        **{
            members: f"members={members}"
            for members in (
                "ghost", "none", "a", "none@north", "none@west", "none@", "ghost@east", "a@west", "a@east", "a@north",
                "a,a", "a,ghost,b", "none@east,a", "none@west,none@north,ghost", "",
            )
        },
    },
}  # fmt: skip
# Many to a group, since it stays as it is.
TOGETHER: Mapping[str, Mapping[str, str]] = {
    "a sync": {
        **_ID,
        **_INSTANCE,
        **_NO_GROUP_ID,
        **_GENERATION,
        "null type": "type=null",
        "other type": "type=connect",
        "null protocol": "protocol=null",
        "other protocol": "protocol=sticky",
    },
    "b sync v3": {**_ID, **_INSTANCE, **_NO_GROUP_ID, **_GENERATION},
    "a heartbeat": {**_ID, **_INSTANCE, **_NO_GROUP_ID, **_GENERATION},
    "a commit v9": {
        **_ID,
        **_INSTANCE,
        **_GENERATION,
        "unknown topic": "at=ghost:0:1",
        "unknown partition": "at=t:7:1",
        "negative partition": "at=t:-1:1",
        "long metadata": "at=t:0:1:long",
        "one of each": "at=ghost:0:1,t:0:2:long,t:1:3,t:7:4",
        "nothing": "at=",
    },
    "a commit v10": {
        **_ID,
        **_GENERATION,
        "unknown topic": "at=ghost:0:1",
        "no topic id": "at=nothing:0:1",
        "unknown partition": "at=t:7:1",
        "one of each": "at=ghost:0:1,t:0:2:long,t:1:3,t:7:4",
    },
    "a commit v7": {**_ID, **_INSTANCE, **_GENERATION},
    "a commit v4": {
        **_ID,
        **_GENERATION,
        "retention": "retention=60000",
        "no retention": "retention=0",
        "negative retention": "retention=-2",
        "long metadata": "at=t:0:1:long",
    },
    "z fetch v9": {
        "unknown topic": "topics=ghost:0",
        "unknown partition": "topics=t:0:7",
        "negative partition": "topics=t:-1",
        "twice": "topics=t:0:0,t:0",
        "nothing": "topics=",
        "two groups": "groups=g,h",
        "the same group twice": "groups=g,g",
        "no group": "groups=",
        "stable": "stable=yes",
    },
    "z fetch v10": {
        "unknown topic": "topics=ghost:0:1",
        "no topic id": "topics=nothing:0",
        "unknown and known": "topics=ghost:0,t:0,u:0",
        "unknown partition": "topics=t:0:7",
        "nothing": "topics=",
        "two groups": "groups=h,g",
        "stable": "stable=yes",
    },
    "z forget": {
        **_NO_GROUP_ID,
        "unknown topic": "topics=ghost:0",
        "unknown partition": "topics=t:7",
        "all kinds": "topics=ghost:0,t:0:7,u:0",
        "twice": "topics=t:1:1",
        "nothing": "topics=",
    },
    "z describe": {
        "two groups": "groups=h,g",
        "twice": "groups=g,g",
        "none": "groups=",
        "operations": "operations=yes",
    },
    "z describe v5": {"operations": "operations=yes"},
    "z describe v3": {"operations": "operations=yes"},
    "z list": {
        "states": "states=Stable,Empty",
        "other case": "states=stAble,preparingrebalance",
        "older name": "states=AwaitingSync",
        "unknown state": "states=Happy",
        "types": "types=classic",
        "other types": "types=consumer",
        "type in other case": "types=CLASSIC",
        "unknown type": "types=ghost",
    },
    "z delete": {"other group": "groups=h", "none": "groups="},
}  # fmt: skip
AT_ONCE = 12


def _faulty(step: str, faults: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The name of what is wrong, and the step."""
    for names in (*((name,) for name in faults), *combinations(faults, 2)):
        said = [faults[name] for name in names]
        if len({fault.partition("=")[0] for fault in said}) == len(said):
            yield " and ".join(names), " ".join([step, *said])


def _alone(step: str, faults: Mapping[str, str]) -> Iterator[Case]:
    for state in _STATES:
        for name, asked in _faulty(step, faults):
            steps = (asked, "z describe v5", "b heartbeat")
            yield Case(f"{step}, {name} | {state}", steps, state if STATES[state] else "")


def _together(step: str, faults: Mapping[str, str]) -> Iterator[Case]:
    asked = [text for _, text in _faulty(step, faults)]
    for state in _STATES:
        for number, steps in enumerate(_chunks(asked), 1):
            name = f"{step} wrong in one or two ways, {number} | {state}"
            looking = ("z fetch v9 topics=all", "z describe v5")
            yield Case(name, (*steps, *looking), state if STATES[state] else "")


def _chunks(steps: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(steps), AT_ONCE):
        yield steps[at : at + AT_ONCE]


def _what(step: str) -> str:
    return step.split()[1]


_CASES = [
    *((_what(step), case) for step, faults in ALONE.items() for case in _alone(step, faults)),
    *((_what(step), case) for step, faults in TOGETHER.items() for case in _together(step, faults)),
]
FAMILIES = [
    Family(f"{what} wrong in one or two ways", "plain", tuple(case for of, case in _CASES if of == what))
    for what in dict.fromkeys(what for what, _ in _CASES)
]
