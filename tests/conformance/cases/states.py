"""Every request in every state and every version.

A state is a case of its own, which others come after. `a` leads, `b` follows, `c` waits, `d` is new, `z` only looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conformance.cases.family import Family
from conformance.script import REQUESTS, Case

__all__ = ["FAMILIES", "STATES"]

_ALONE = ("a join", "a join")
_TOGETHER = (*_ALONE, "b join", "b join", "a join")
_STABLE = (*_TOGETHER, "b sync", "a sync", "a commit at=t:0:5,u:0:7:note:3")
_EAST_AND_WEST = ("a join instance=east", "b join instance=west", "a join instance=east")

STATES: Mapping[str, Sequence[str]] = {
    "no group": (),
    "an id was given out": ("a join",),
    "Empty": (*_ALONE, "a sync", "a commit", "a leave"),
    "a simple group": ("z commit generation=-1",),
    "Preparing": (*_STABLE, "c join", "c join"),
    "Preparing, from Completing": (*_TOGETHER, "b sync", "c join", "c join"),
    "Completing, one member": _ALONE,
    "Completing": (*_TOGETHER, "b sync"),
    "Stable": _STABLE,
    "Stable, other type": ("a join type=connect", "a join type=connect", "a sync type=connect", "a commit"),
    "Stable, static": (*_EAST_AND_WEST, "b sync instance=west", "a sync instance=east"),
    "Completing, static": _EAST_AND_WEST,
}
SETUPS = Family("setups", "plain", tuple(Case(name, tuple(steps)) for name, steps in STATES.items() if steps))

_LOOK = ("z describe v5",)
_LOOK_AND_BEAT = ("z describe v5", "a heartbeat", "b heartbeat")

# What changes the group is asked once, in a group of its own, in each version.
CHANGING: Mapping[str, Sequence[str]] = {
    "d join": _LOOK_AND_BEAT,
    "a join": _LOOK_AND_BEAT,
    "b join": _LOOK_AND_BEAT,
    "b join protocols=range:tu": _LOOK_AND_BEAT,
    "a sync": _LOOK_AND_BEAT,
    "b sync": _LOOK_AND_BEAT,
    "b leave": _LOOK_AND_BEAT,
    "a leave": _LOOK_AND_BEAT,
    "z delete": ("z describe v6", "z fetch v9 topics=all"),
}
# What does not is asked in one version after the other.
LOOKING: Mapping[str, Sequence[str]] = {
    "a heartbeat": _LOOK,
    "b heartbeat": _LOOK,
    "a commit at=t:0:%d,u:0:1": ("z fetch v9 topics=all", *_LOOK),
    "z commit generation=-1 at=t:1:%d": ("z fetch v9 topics=all", *_LOOK),
    "z fetch topics=t:0:1,u:0": (),
    "z fetch topics=all": (),
    "z forget topics=t:0:1": ("z fetch v9 topics=all", *_LOOK),
    "z describe": (),
    "z list": (),
}


def _with_version(step: str, version: int) -> str:
    who, what, *rest = step.split()
    return " ".join([who, what, f"v{version}", *rest])


def _changing() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for step, then in CHANGING.items():
        what = step.split()[1]
        for version in REQUESTS[what].versions:
            for state, before in STATES.items():
                asked = _with_version(step, version)
                name = f"{asked} | {state}"
                found.setdefault(what, []).append(Case(name, (asked, *then), state if before else ""))
    return found


def _looking() -> list[Case]:
    found = []
    for step, then in LOOKING.items():
        what = step.split()[1]
        versions = [version for version in REQUESTS[what].versions if version > 1 or "all" not in step]
        for state, before in STATES.items():
            asked = [_with_version(step, version).replace("%d", str(100 + version)) for version in versions]
            found.append(Case(f"{step} in every version | {state}", (*asked, *then), state if before else ""))
    return found


FAMILIES = [
    SETUPS,
    *(Family(f"{what} in every state", "plain", tuple(cases)) for what, cases in _changing().items()),
    Family("looking in every state", "plain", tuple(_looking())),
]
