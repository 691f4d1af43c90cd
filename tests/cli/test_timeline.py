"""`coterie groups timeline`: each owner has a letter of its own."""

from __future__ import annotations

from coterie.cli.why import timeline
from coterie.diagnosis.model import GroupHistory, MemberSpan
from coterie.ledger.ownership import Interval


def test_members_of_one_name_at_the_same_time_have_different_letters() -> None:
    history = GroupHistory("g", from_ms=0, to_ms=100)
    owners: dict[str, tuple[int, int, int | None]] = {"x-1": (0, 0, 100), "x-2": (1, 0, 40), "x-3": (1, 50, None)}
    for member_id, (partition, began_ms, ended_ms) in owners.items():
        history.members[member_id] = MemberSpan(member_id, client_id="x", host="/h")
        history.intervals.append(Interval("g", ("t", partition), member_id, began_ms, ended_ms))
    lines = timeline(history, 40, 10)
    (first,) = (line for line in lines if line.startswith("t-0"))
    (second,) = (line for line in lines if line.startswith("t-1"))
    assert set(first.split()[1]) == {"A"} and set(second.split()[1]) == {"B", "."}
    assert "A = x  B = x (2)" in lines
