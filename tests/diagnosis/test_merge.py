"""Claims of several sources: the strongest wins, none is lost, contradictions are shown, the order is irrelevant."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.diagnosis import Bound, Claim, Evidence, ExplainedRebalance, Grade, GroupHistory, Statement, merged, said
from coterie.diagnosis.broker_log import read_logs
from coterie.diagnosis.evidence import STRENGTH, near
from coterie.diagnosis.from_facts import HistoryBuilder
from coterie.diagnosis.merge import merge, merge_all
from coterie.diagnosis.model import causes_agree
from coterie.diagnosis.records import OffsetsTopic
from coterie.facts import AssignmentStored, Cause
from coterie.ledger.derived import DerivedCause, MemberGone, RebalanceSeen
from diagnosis.script import Life
from web.page_groups import bad_group, small_group

RECORDED = Path(__file__).with_name("recorded")

grades = st.sampled_from(list(Grade))
causes = st.sampled_from([str(one) for one in (*Cause, *DerivedCause)])
evidence = st.builds(Evidence, grades, st.sampled_from(["a", "b", "c"]), st.one_of(st.none(), st.integers(0, 9)))
cause_claims = st.builds(Claim, causes, evidence)
number_claims = st.builds(Claim, st.integers(0, 10_000), evidence, st.sampled_from(list(Bound)))
cause_statements = st.lists(cause_claims, max_size=3).map(lambda some: merged([Statement((one,)) for one in some]))


@given(st.lists(cause_statements, min_size=1, max_size=5), st.randoms())
def test_claims_are_merged_in_any_order_and_any_number_of_times(some: list[Statement[str]], rng: object) -> None:
    once = merged(some)
    shuffled = list(some)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert merged(shuffled) == once == merged([once, *some])
    half = len(some) // 2
    assert merged([merged(some[:half]), merged(some[half:])]) == once
    assert set(once.claims) == {claim for one in some for claim in one.claims}


@given(st.lists(cause_claims, min_size=1, max_size=6))
def test_the_strongest_claim_is_the_value_and_a_contradiction_is_told(claims: list[Claim[str]]) -> None:
    statement = merged([Statement((one,), causes_agree) for one in claims])
    strongest = min(STRENGTH[one.evidence.grade] for one in claims)
    assert statement.grade is not None and STRENGTH[statement.grade] == strongest
    for claim in claims:
        is_told = claim in statement.disagreements
        agrees = claim.evidence in statement.evidence
        assert is_told or agrees
        if claim.value == statement.value:
            assert agrees


@given(st.lists(number_claims, min_size=1, max_size=6))
def test_limits_disagree_only_if_they_exclude_each_other(claims: list[Claim[int]]) -> None:
    statement = merged([Statement((one,), near(100)) for one in claims])
    best = statement.best
    assert best is not None
    for claim in statement.disagreements:
        assert abs(claim.value - best.value) > 100
        assert {claim.bound, best.bound} not in ({Bound.AT_LEAST}, {Bound.AT_MOST})


def test_an_unknown_value_is_the_word_unknown_and_never_zero() -> None:
    shown = ExplainedRebalance("g", 1).to_json()
    statements = ExplainedRebalance("g", 1).statements
    assert {shown[name]["value"] for name in statements} == {"unknown"}
    assert shown["took_ms"]["value"] == "unknown"


@pytest.mark.parametrize(
    ("strong", "weak", "agree"),
    [
        (Cause.SESSION_EXPIRED, DerivedCause.MEMBER_GONE, True),
        (Cause.MEMBER_LEFT, DerivedCause.MEMBER_GONE, True),
        (Cause.NEW_MEMBER, DerivedCause.MEMBER_GONE, False),
        (Cause.NEW_MEMBER, DerivedCause.UNKNOWN, True),
        (Cause.PROTOCOLS_CHANGED, Cause.SUBSCRIPTION_CHANGED, True),
        (Cause.NEW_MEMBER, Cause.MEMBER_LEFT, False),
    ],
)
def test_a_weak_source_sees_less_of_the_same_cause(strong: str, weak: str, agree: bool) -> None:
    at = Evidence(Grade.LOGGED, "")
    assert causes_agree(Claim(str(strong), at), Claim(str(weak), at)) is agree


def rebalance(number: int, ended_ms: int, grade: Grade, cause: str) -> ExplainedRebalance:
    one = ExplainedRebalance("g", number)
    at = Evidence(grade, str(grade), ended_ms)
    one.ended_ms = said(ended_ms, at, agrees=one.ended_ms.agrees)
    one.cause = said(cause, at, agrees=one.cause.agrees)
    return one


def source(grade: Grade, *rebalances: ExplainedRebalance) -> GroupHistory:
    return GroupHistory("g", rebalances=list(rebalances), grades=frozenset({str(grade)}))


def test_the_same_number_at_the_same_time_is_the_same_rebalance() -> None:
    logged = source(Grade.LOGGED, rebalance(5, 10_000, Grade.LOGGED, Cause.MEMBER_LEFT))
    derived = source(Grade.DERIVED, rebalance(5, 10_300, Grade.DERIVED, DerivedCause.MEMBER_GONE))
    (one,) = merge([derived, logged]).rebalances
    assert one.cause.value == Cause.MEMBER_LEFT and len(one.cause.evidence) == 2 and not one.disagreements


def test_a_deleted_group_begins_with_the_same_numbers_again() -> None:
    logged = source(
        Grade.LOGGED,
        rebalance(1, 10_000, Grade.LOGGED, Cause.NEW_MEMBER),
        rebalance(1, 90_000, Grade.LOGGED, Cause.NEW_MEMBER),
    )
    derived = source(Grade.DERIVED, rebalance(1, 90_200, Grade.DERIVED, Cause.NEW_MEMBER))
    found = merge([logged, derived]).rebalances
    assert [(one.ended_ms.value, len(one.cause.evidence)) for one in found] == [(10_000, 1), (90_000, 2)]


def test_sources_that_contradict_each_other_say_so() -> None:
    logged = source(Grade.LOGGED, rebalance(5, 10_000, Grade.LOGGED, Cause.NEW_MEMBER))
    derived = source(Grade.DERIVED, rebalance(5, 10_300, Grade.DERIVED, DerivedCause.MEMBER_GONE))
    (one,) = merge([derived, logged]).rebalances
    assert one.cause.value == Cause.NEW_MEMBER
    (claim,) = one.disagreements["cause"]
    assert claim.value == DerivedCause.MEMBER_GONE
    assert one.to_json()["cause"]["disagreements"][0]["grade"] == "derived"


def test_members_that_leave_right_after_each_other_are_dropped_in_their_own_rebalances() -> None:
    found = []
    for grade in (Grade.OBSERVED, Grade.DERIVED):
        life = Life(took_ms=200, grade=grade)
        for index, name in enumerate("abc"):
            life.join(name, at=1_000 + index * 5_000)
        for name, at in (("b", 60_000), ("c", 60_500)):
            gone = life.ids[name]
            if grade is Grade.OBSERVED:
                life.leave(name, at)
                continue
            del life.ids[name]
            generation, rest = life.generation, list(life.ids.values())
            cause = DerivedCause.MEMBER_GONE
            life.add(RebalanceSeen(at + 200, "g", cause, gone, None, generation, rest, generation + 1, "range", ""))
            life.add(MemberGone(at + 200, "g", gone, None))
            life.add(AssignmentStored(at + 200, "g", generation + 1, life.assignments(rest)))
            life.generation += 1
        found.append(life.builder.histories()["g"])
    merged_history = merge(found)
    assert [len(one.dropped.value or ()) for one in merged_history.rebalances] == [0, 0, 0, 1, 1]
    assert not [one.disagreements for one in merged_history.rebalances if one.disagreements]


# --- what a real Kafka 4.3.1 wrote ------------------------------------------------------------------------------------


def recorded_records() -> OffsetsTopic:
    found = json.loads((RECORDED / "kafka-4.3.1-records.json").read_text())
    topic = OffsetsTopic({UUID(id_): name for id_, name in found["topics"].items()})
    for partition, offset, at_ms, key, value in found["records"]:
        topic.add(partition, offset, at_ms, bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    return topic


def recorded_log() -> dict[str, GroupHistory]:
    file = RECORDED / "kafka-4.3.1.log"
    return read_logs([(file.name, iter(file.read_text().splitlines()))]).histories()


def test_log_and_records_of_one_run_of_kafka_never_contradict_each_other() -> None:
    histories = merge_all([recorded_log(), recorded_records().histories()])
    assert set(histories) == {"g-classic", "g-consumer"}
    for history in histories.values():
        assert history.rebalances
        for one in history.rebalances:
            assert not one.disagreements, (one.number, one.disagreements)
            assert {"logged", "derived"} == {str(each.grade) for each in one.cause.evidence}
        for stay in history.stays:
            assert not stay.departure.disagreements


def test_merged_sources_know_more_than_each_of_them() -> None:
    log, records = recorded_log()["g-classic"], recorded_records().histories()["g-classic"]
    both = merge([log, records])
    crash = both.rebalances[3]
    assert (crash.cause.value, crash.cause.grade) == (Cause.SESSION_EXPIRED, Grade.LOGGED)
    assert both.name_of(crash.member.value or "") == "g-classic-confluent-0"
    assert crash.took == (165, Bound.EXACT) and records.rebalances[3].took == (None, Bound.EXACT)
    assert len(crash.moves.value or ()) == 3 and log.rebalances[3].moves.value is None
    assert crash.unassigned_ms.bound is Bound.AT_MOST and crash.unassigned_ms.grade is Grade.INFERRED


def test_merging_real_sources_in_another_order_gives_the_same() -> None:
    log, records = recorded_log()["g-classic"], recorded_records().histories()["g-classic"]
    assert merge([log, records]).to_json() == merge([records, log]).to_json() == merge([records, log, log]).to_json()


def test_a_reason_that_is_inferred_does_not_contradict_what_the_client_said() -> None:
    sent = Evidence(Grade.OBSERVED, "a"), "need to revoke partitions and re-join"
    logged = Evidence(Grade.LOGGED, "b"), "the consumer is being closed"
    inferred = Evidence(Grade.INFERRED, "c"), "probably the follow-up of a cooperative rebalance"
    agrees = ExplainedRebalance("g", 1).reason.agrees
    reasons = [said(text, where, agrees=agrees) for where, text in (sent, logged, inferred)]
    assert [one.value for one in merged(reasons).disagreements] == [logged[1]]


def test_histories_that_are_asked_for_again_and_again_are_those_asked_for_once() -> None:
    """Only the groups that have changed are made again."""
    builder, asked_once = HistoryBuilder(Grade.OBSERVED), HistoryBuilder(Grade.OBSERVED)
    for fact in sorted([*small_group(), *bad_group()], key=lambda one: one.at_ms):
        builder.add(fact, "a")
        asked_once.add(fact, "a")
        builder.histories()
    found, wanted = builder.histories(), asked_once.histories()
    assert {name: one.to_json() for name, one in found.items()} == {name: one.to_json() for name, one in wanted.items()}
    assert len(found) == 2 and all(one.intervals for one in found.values())
