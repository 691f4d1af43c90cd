"""1 450 answers of Apache Kafka 4.3.1's own assignors, compared as vectors/README.md says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assignors.oracle import check_valid, optimum, worth
from assignors.random_cases import holding
from coterie.assignors import Assignment, Member, assignor
from coterie.assignors.cases import Case, owned_in, read_case, run
from coterie.protocol.subscription import Assignment as WireAssignment
from coterie.protocol.subscription import read_assignment, read_subscription, write_assignment

NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")

KAFKA_HANDS_OUT_WHAT_IS_NOT_THERE = {"sticky-0404", "cooperative-sticky-0370", "cooperative-sticky-0429"}
"""A claim beyond a topic's end counts in Kafka as owned; we drop it, and so everyone else's share differs."""

KAFKA_MOVES_FOR_NOTHING = {"cooperative-sticky-0157", "cooperative-sticky-0329", "cooperative-sticky-0426"}
"""With racks Kafka revokes where no rack match is gained; this is also what keeps it from coming to rest."""


def vectors(name: str) -> list[dict[str, Any]]:
    lines = (Path(__file__).parent / "vectors" / f"assignors-{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def as_sets(pairs: dict[str, list[list[Any]]]) -> dict[str, set[tuple[str, int]]]:
    return {member: {(topic, p) for topic, ids in runs for p in ids} for member, runs in pairs.items()}


def answer_as_sets(assignment: Assignment) -> dict[str, set[tuple[str, int]]]:
    return {member: {(t, p) for t, ids in shares.items() for p in ids} for member, shares in assignment.items()}


def equal_subscriptions(vector: dict[str, Any]) -> bool:
    return len({frozenset(member["topics"]) for member in vector["members"]}) == 1


def clean(case: Case) -> Case:
    """The same case with what its members own in one place, and only what exists once."""
    owned = owned_in(case)
    return holding(case, {member.id: dict(owned[member.id]) for member in case.members})


def test_there_are_as_many_vectors_as_were_recorded() -> None:
    assert [len(vectors(name)) for name in NAMES] == [300, 250, 450, 450]


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_range_and_roundrobin_answer_as_kafka_does(name: str) -> None:
    for vector in vectors(name):
        case = read_case(vector)
        assignment = assignor(name).assign(case.members, case.topics)
        assert answer_as_sets(assignment) == as_sets(vector["expect"]), vector["id"]


def test_roundrobin_even_answers_in_kafkas_order() -> None:
    for vector in vectors("roundrobin"):
        case = read_case(vector)
        assignment = assignor("roundrobin").assign(case.members, case.topics)
        flat = {member: [(t, p) for t, ids in shares.items() for p in ids] for member, shares in assignment.items()}
        assert flat == {m: [(t, p) for t, ids in runs for p in ids] for m, runs in vector["expect"].items()}


COMPARE: dict[str, Callable[[dict[str, set[tuple[str, int]]]], Any]] = {
    "list": lambda sets: sets,
    "set": lambda sets: sets,
    "sizes": lambda sets: sorted(map(len, sets.values())),
    "hash": len,
}


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_with_equal_subscriptions_sticky_answers_as_kafka_does(name: str) -> None:
    compared = 0
    for vector in vectors(name):
        if equal_subscriptions(vector) and "error" not in vector:
            case = read_case(vector)
            ours = answer_as_sets(assignor(name).assign(case.members, case.topics))
            if vector["id"] not in KAFKA_HANDS_OUT_WHAT_IS_NOT_THERE | KAFKA_MOVES_FOR_NOTHING:
                look = COMPARE[vector["determined"]]
                assert look(ours) == look(as_sets(vector["expect"])), vector["id"]
                compared += 1
    assert compared >= 230


def test_where_kafka_moves_for_nothing_we_stay_and_lose_nothing() -> None:
    for vector in vectors("cooperative-sticky"):
        if vector["id"] in KAFKA_MOVES_FOR_NOTHING:
            case = read_case(vector)
            ours, kafkas = assignor("cooperative-sticky").assign(case.members, case.topics), as_sets(vector["expect"])
            given = sum(len(sets) for sets in answer_as_sets(ours).values())
            assert given > sum(map(len, kafkas.values()))  # Kafka withholds what it moves
            final, rebalances = run(assignor("cooperative-sticky"), case)
            assert rebalances == (2 if "dirty" in vector["kind"] else 1)
            check_valid(case, final)


def test_a_claim_beyond_a_topics_end_is_dropped() -> None:
    """Where Kafka throws (3 vectors), or hands out what does not exist."""
    seen = 0
    for name in ("sticky", "cooperative-sticky"):
        for vector in vectors(name):
            if "error" in vector or vector["id"] in KAFKA_HANDS_OUT_WHAT_IS_NOT_THERE:
                case = read_case(vector)
                check_valid(case, run(assignor(name), case)[0])
                seen += 1
    assert seen == 6


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_with_unequal_subscriptions_balance_moves_and_racks_are_optimal(name: str) -> None:
    """So they are at least as good as Kafka's, which has the optimal balance in fewer cases."""
    seen = 0
    for vector in vectors(name):
        if not equal_subscriptions(vector) and "dirty" not in vector["kind"]:
            case = clean(read_case(vector))
            final, rebalances = run(assignor(name), case)
            check_valid(case, final)
            assert worth(case, final) == optimum(case), vector["id"]
            assert rebalances <= 2
            seen += 1
    assert seen > 120


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_every_answer_is_valid_whatever_the_members_claim(name: str) -> None:
    for vector in vectors(name):
        case = read_case(vector)
        final, rebalances = run(assignor(name), case)
        check_valid(case, final)
        assert rebalances <= 2


@pytest.mark.parametrize("name", NAMES)
def test_members_read_from_kafkas_bytes_get_the_same_answer(name: str) -> None:
    seen = 0
    for vector in vectors(name):
        written = vector.get("subscription_hex", {})
        if written and "error" not in vector:
            case = read_case(vector)
            members = [
                Member.of(member.id, read_subscription(bytes.fromhex(written[member.id])), member.instance_id)
                for member in case.members
            ]
            assert answer_as_sets(assignor(name).assign(members, case.topics)) == answer_as_sets(
                assignor(name).assign(case.members, case.topics)
            ), vector["id"]
            seen += 1
    assert seen >= 10


@pytest.mark.parametrize("name", NAMES)
def test_our_answer_written_down_is_what_kafkas_members_were_told(name: str) -> None:
    for vector in vectors(name):
        told = vector.get("assignment_hex", {})
        if told and equal_subscriptions(vector) and vector["determined"] in {"list", "set"}:
            case = read_case(vector)
            for member_id, shares in assignor(name).assign(case.members, case.topics).items():
                kafkas = read_assignment(bytes.fromhex(told[member_id])).partitions
                ours = read_assignment(write_assignment(WireAssignment(shares))).partitions
                assert {t: sorted(p) for t, p in ours.items()} == {t: sorted(p) for t, p in kafkas.items()}, vector[
                    "id"
                ]
