"""The broker is killed in every state, and asked in many ways afterwards (C4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conformance.cases.family import Family
from conformance.cases.states import STATES
from conformance.script import Case

__all__ = ["FAMILIES"]

_AFTERWARDS: Mapping[str, Sequence[str]] = {
    "all is looked at": ("z describe v5", "z list", "z fetch v9 topics=all", "a heartbeat", "b heartbeat"),
    "the leader joins": ("a join", "b heartbeat", "z describe v5", "b join", "a sync", "b sync", "z describe v5"),
    "the follower joins": ("b join", "a heartbeat", "z describe v5"),
    "they sync": ("b sync", "a sync", "z describe v5"),
    "who was waiting joins": ("c join", "z describe v5", "a heartbeat"),
    "a new one joins": ("d join", "d join", "a heartbeat", "a join", "b join", "z describe v5"),
    "one leaves": ("b leave", "a heartbeat", "z describe v5"),
    "one commits": ("a commit at=t:1:8", "z commit generation=-1 at=u:0:9", "z fetch v9 topics=all"),
    "it is deleted": ("z forget", "z delete", "z describe v5", "d join", "z describe v5"),
}
_IN_EVERY_STATE = [
    Case(f"restarted, and {name} | {state}", (*before, "restart", *after))
    for state, before in STATES.items()
    if before
    for name, after in _AFTERWARDS.items()
]

FAMILIES = [Family("killed in every state", "killed", tuple(_IN_EVERY_STATE))]
