"""Which requests keep a member from being taken for dead (rule 14)? Asked in three states.

As in the stories, a wait ends well before or well after the moment it is about: a busy machine changes nothing.
"""

from __future__ import annotations

from conformance.cases.family import Family
from conformance.script import Case

__all__ = ["FAMILIES"]

_FAINT = "a join; a join; b join session=2000; b join session=2000; a join; b sync; a sync"
"""Stable; `b` may be silent for two seconds."""

SIGNS_OF_LIFE = {
    "nothing": "z describe v5",
    "a heartbeat": "b heartbeat",
    "a heartbeat with an older generation": "b heartbeat generation=older",
    "a heartbeat with an unknown instance": "b heartbeat instance=north",
    "a commit": "b commit",
    "a commit of nothing": "b commit at=",
    "a commit of an unknown topic": "b commit at=ghost:0:1",
    "a commit with long metadata": "b commit at=t:0:1:long",
    "a commit of a newer generation": "b commit generation=newer",
    "a commit without ids": "z commit generation=-1",
    "a sync": "b sync",
    "a sync of an older generation": "b sync generation=older",
    "an unchanged join": "b join session=2000",
    "an unchanged join with a longer session": "b join session=30000",
    "a refused join": "b join session=1",
    "a fetch": "b fetch",
    "a description": "b describe",
}
_WHILE_STABLE = [
    Case(
        f"does {sign} keep a member?",
        tuple(f"{_FAINT}; wait 1200; {step}; wait 1300; z describe v5; a heartbeat; b heartbeat".split("; ")),
    )
    for sign, step in SIGNS_OF_LIFE.items()
]
_WHILE_PREPARING = [
    Case(
        f"does {sign} keep a member while a round waits for it?",
        tuple(f"{_FAINT}; c join v3; wait 1200; {step}; wait 1300; z describe v5; b heartbeat; a join".split("; ")),
    )
    for sign, step in SIGNS_OF_LIFE.items()
    if " join" not in step
]
_WHILE_COMPLETING = [
    Case(
        f"does {sign} keep a member that has not synced?",
        tuple(
            "a join; a join; b join session=2000; b join session=2000; a join; a heartbeat; wait 1200; "
            f"{step}; wait 1300; z describe v5; b heartbeat; a sync".split("; ")
        ),
    )
    for sign, step in SIGNS_OF_LIFE.items()
    if " sync" not in step and " join" not in step
]

FAMILIES = [Family("signs of life", "timers", (*_WHILE_STABLE, *_WHILE_PREPARING, *_WHILE_COMPLETING))]
