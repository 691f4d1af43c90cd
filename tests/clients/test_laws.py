"""The judge must be able to find somebody guilty: each law broken once, in a story told by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from clients.harness import LoggedFacts
from clients.laws import Witness, judge, longest_gap_ms
from coterie.protocol.subscription import Assignment, write_assignment

PRODUCED = {("t", 0): ["a", "b"], ("t", 1): ["c"]}


def given(*partitions: int) -> str:
    return write_assignment(Assignment({"t": list(partitions)})).hex()


def joined(member: str) -> dict[str, Any]:
    return {"fact": "MemberJoined", "at_ms": 1, "member_id": f"{member}-id", "client_id": member}


def stored(at_ms: int, *offsets: tuple[str, int, int] | tuple[str, int, int, str]) -> dict[str, Any]:
    return {"fact": "OffsetsStored", "at_ms": at_ms, "member_id": "", "offsets": offsets}


def told(event: str, at_ms: int, **details: Any) -> dict[str, Any]:
    return {"event": event, "at_ms": at_ms, **details}


A_OWNS_ALL = {"fact": "AssignmentStored", "at_ms": 5, "generation_id": 1, "assignments": {"a-id": given(0, 1)}}
SHARED = {
    "fact": "AssignmentStored",
    "at_ms": 50,
    "generation_id": 2,
    "assignments": {"a-id": given(0), "b-id": given(1)},
}
FACTS: Sequence[Mapping[str, Any]] = [
    joined("a"),
    joined("b"),
    A_OWNS_ALL,
    stored(20, ("t", 0, 1)),
    SHARED,
    stored(70, ("t", 0, 2)),
    stored(80, ("t", 1, 1)),
]
GONE: Mapping[str, Any] = {"fact": "MemberExpired", "at_ms": 45, "member_id": "a-id"}
A = [
    told("assigned", 6, partitions=[["t", 0], ["t", 1]]),
    told("consumed", 19, records=[["t", 0, 0, "a"]]),
    told("revoked", 40, partitions=[["t", 0], ["t", 1]]),
    told("assigned", 52, partitions=[["t", 0]]),
    told("consumed", 60, records=[["t", 0, 1, "b"]]),
]
B = [told("assigned", 53, partitions=[["t", 1]]), told("consumed", 75, records=[["t", 1, 0, "c"]])]


def verdict(
    directory: Path,
    facts: Sequence[Mapping[str, Any]] = FACTS,
    a: Sequence[Mapping[str, Any]] = A,
    b: Sequence[Mapping[str, Any]] = B,
    a_ended_ms: int | None = None,
    produced: Mapping[tuple[str, int], list[str]] = PRODUCED,
) -> None:
    path = directory / "broker.err"
    path.write_text("".join(json.dumps({"group_id": "g", **fact}) + "\n" for fact in facts))
    judge("g", LoggedFacts(path), [Witness("a", a, a_ended_ms), Witness("b", b)], produced)


def test_a_group_that_keeps_the_laws_is_cleared(tmp_path: Path) -> None:
    verdict(tmp_path)


def test_a_record_nobody_processed_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="never processed"):
        verdict(tmp_path, b=B[:1])


def test_a_record_read_as_something_else_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="not what was produced"):
        verdict(tmp_path, b=[B[0], told("consumed", 75, records=[["t", 1, 0, "x"]])])


def test_two_owners_in_one_generation_are_found(tmp_path: Path) -> None:
    both = {**SHARED, "assignments": {"a-id": given(0, 1), "b-id": given(1)}}
    with pytest.raises(AssertionError, match=r"generation 2: .* belongs to"):
        verdict(tmp_path, facts=[*FACTS[:4], both, *FACTS[5:]])


def test_two_holders_at_one_time_are_found(tmp_path: Path) -> None:
    keeps = [event for event in A if event["event"] != "revoked"]
    with pytest.raises(AssertionError, match="two holders"):
        verdict(tmp_path, a=keeps)


@pytest.mark.parametrize("excuse", ["killed", "expired"])
def test_who_is_gone_holds_nothing(tmp_path: Path, excuse: str) -> None:
    keeps = [event for event in A if event["event"] != "revoked"]
    if excuse == "killed":
        verdict(tmp_path, a=keeps, a_ended_ms=45)
    else:
        verdict(tmp_path, facts=[*FACTS[:4], GONE, *FACTS[4:]], a=keeps)


def test_a_commit_that_goes_back_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="committed at 2, then at 1"):
        verdict(tmp_path, facts=[*FACTS, stored(90, ("t", 0, 1))])


def test_a_commit_ahead_of_the_processing_is_found(tmp_path: Path) -> None:
    """By the member's own words: when it asked for the commit it had told of one event, and the record is the next."""
    early = [*FACTS[:3], stored(18, ("t", 0, 1, "a 1")), *FACTS[4:]]
    with pytest.raises(AssertionError, match="committed at 1 when 0 had not been processed"):
        verdict(tmp_path, facts=early)
    verdict(tmp_path, facts=[*FACTS[:3], stored(18, ("t", 0, 1, "a 2")), *FACTS[4:]])


def test_a_commit_of_what_nobody_had_processed_is_found_without_a_note(tmp_path: Path) -> None:
    """A member reads what is in front of it, commits, and then reads what it had passed over."""
    back = [B[0], told("consumed", 75, records=[["t", 1, 1, "d"]]), told("consumed", 76, records=[["t", 1, 0, "c"]])]
    produced = {**PRODUCED, ("t", 1): ["c", "d"]}
    with pytest.raises(AssertionError, match="committed at 2 when 0 had not been processed"):
        verdict(tmp_path, facts=[*FACTS, stored(90, ("t", 1, 2))], b=back, produced=produced)


def test_the_clock_of_the_broker_is_not_compared_with_the_members(tmp_path: Path) -> None:
    """A broker whose clock is an hour behind, or ahead: its facts count in their order."""
    for hour in (-3_600_000, 3_600_000):
        facts = [{**fact, "at_ms": fact["at_ms"] + hour} for fact in FACTS]
        verdict(tmp_path, facts=facts)
        keeps = [event for event in A if event["event"] != "revoked"]
        gone = {**GONE, "at_ms": GONE["at_ms"] + hour}
        verdict(tmp_path, facts=[*facts[:4], gone, *facts[4:]], a=keeps)
        with pytest.raises(AssertionError, match="two holders"):
            verdict(tmp_path, facts=[*facts, gone], a=keeps)


def test_a_story_in_which_nothing_happens_clears_nobody(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        verdict(tmp_path, facts=[])


def test_who_came_back_answers_for_what_it_holds_then(tmp_path: Path) -> None:
    """A member that was given up and joined again is no longer excused."""
    keeps = [event for event in A if event["event"] != "revoked"]
    with pytest.raises(AssertionError, match="two holders"):
        verdict(tmp_path, facts=[*FACTS[:2], GONE, *FACTS[2:]], a=keeps)


def test_a_gap_is_measured_between_records_and_at_both_ends() -> None:
    read = [told("consumed", at_ms, records=[["t", 0, at_ms, "x"]]) for at_ms in (90, 110, 150, 160)]
    a = Witness("a", [*read, told("consumed", 130, records=[["t", 1, 0, "x"]])])
    assert longest_gap_ms(a.read_at_ms(("t", 0)), 100, 165) == 40
    assert longest_gap_ms(a.read_at_ms(("t", 0)), 100, 300) == 140
    assert longest_gap_ms(a.read_at_ms(("t", 0)), 20, 100) == 70
    assert longest_gap_ms(a.read_at_ms(("t", 2)), 100, 200) == 100
