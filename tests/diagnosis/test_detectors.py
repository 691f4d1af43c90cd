"""The detectors, each on a life of a group in which it must find something, and on lives in which it must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie import facts
from coterie.diagnosis import Evidence, Finding, Grade, GroupHistory, GroupSample, PartitionLag, Severity
from coterie.diagnosis.broker_log import BrokerLog
from coterie.diagnosis.detectors import DETECTORS, findings_of
from coterie.diagnosis.model import Event, Happening
from coterie.errors import ErrorCode
from coterie.facts import Cause
from coterie.ledger.derived import DerivedCause, MemberGone, RebalanceSeen
from coterie.protocol.subscription import Assignment, write_assignment
from coterie.structs import replace
from diagnosis.script import GROUP, Life

MINUTE = 60_000


def quiet(members: int = 3, **more: int) -> Life:
    """Return a life in which members have joined long ago."""
    life = Life(**more)  # type: ignore[arg-type]
    for index in range(members):
        life.join("abcdefghijkl"[index], at=1_000 + index * 5_000)
    return life


def names(history: GroupHistory) -> list[str]:
    return [one.name for one in findings_of(history)]


def only(history: GroupHistory, name: str) -> Finding:
    found = [one for one in findings_of(history) if one.name == name]
    assert len(found) == 1, findings_of(history)
    return found[0]


def test_a_quiet_night_has_no_findings() -> None:
    life = quiet()
    life.leave("c", at=60 * MINUTE, reason="the consumer is being closed")
    assert names(life.history()) == []


def test_a_crash_is_found_with_its_cost() -> None:
    life = quiet(members=2)
    life.crash("b", at=10 * MINUTE)
    found = only(life.history(), "crash")
    assert found.members == ("b",) and found.severity is Severity.WARNING and found.grade is Grade.OBSERVED
    assert found.rebalances == (3,)
    assert found.cost.dead_ms == 2 * 10_000  # two partitions for the session timeout
    # a's two partitions are unassigned for the rebalance, and those of b from the end of its session
    assert found.cost.unassigned_ms == 4 * 1_000
    assert found.cost.needed_ms == 2 * 1_000 and found.cost.avoidable_ms == 2 * 1_000
    assert names(life.history()) == ["crash"]


def test_three_crashes_of_one_process_are_one_critical_finding() -> None:
    life = quiet()
    for number in range(3):
        life.crash("c", at=(20 + 40 * number) * MINUTE)
        life.join("c", at=(40 + 40 * number) * MINUTE)
    found = only(life.history(), "crash")
    assert found.severity is Severity.CRITICAL and len(found.rebalances) == 3


def test_a_process_that_is_back_before_its_session_ends_has_crashed() -> None:
    life = quiet()
    dead = life.ids["c"]
    life.join("c", at=10 * MINUTE)
    life.add(facts.MemberExpired(10 * MINUTE + 9_000, GROUP, dead, 10_000, False))
    life.rebalance(Cause.SESSION_EXPIRED, dead, 10 * MINUTE + 9_000)
    assert names(life.history()) == ["crash"]


def test_a_member_that_comes_back_after_its_session_stood_still() -> None:
    life = quiet()
    life.crash("c", at=10 * MINUTE)
    life.join("c", at=10 * MINUTE + 5_000)
    found = only(life.history(), "heartbeat-lost")
    assert found.grade is Grade.INFERRED and "probably stood still" in found.summary
    assert names(life.history()) == ["heartbeat-lost"]


def test_a_member_that_comes_back_with_its_id_stood_still_for_sure() -> None:
    life = quiet()
    mine = life.ids["c"]
    life.crash("c", at=10 * MINUTE)
    life.join("c", at=10 * MINUTE + 5_000, member_id=mine)
    assert only(life.history(), "heartbeat-lost").summary.endswith("it stood still.")


def test_a_client_that_says_so_processed_too_slowly() -> None:
    life = quiet()
    life.leave("c", at=10 * MINUTE, reason="consumer poll timeout has expired.")
    found = only(life.history(), "slow-processing")
    assert found.grade is Grade.OBSERVED and found.members == ("c",) and "30.0 s" in found.summary
    assert names(life.history()) == ["slow-processing"]


def test_slow_processing_without_a_reason_is_inferred_from_its_repetition() -> None:
    life = quiet()
    for number in range(4):
        at = (10 + number) * MINUTE
        life.leave("c", at=at)
        life.join("c", at=at + 18_000)
    found = only(life.history(), "slow-processing")
    assert found.grade is Grade.INFERRED and found.severity is Severity.CRITICAL
    assert found.evidence[0].says == "left and came back every 1.0 min with the same client id and host, 4 times"


def test_a_single_restart_is_not_called_slow_processing() -> None:
    life = quiet()
    life.leave("c", at=10 * MINUTE)
    life.join("c", at=10 * MINUTE + 10_000)
    assert names(life.history()) == []


def test_processes_that_share_client_id_and_host_are_not_mixed_up() -> None:
    life = quiet(members=1)
    first, second = "x-" + "1" * 36, "x-" + "2" * 36
    life.join("x", at=MINUTE, member_id=first)
    life.ids["y"] = second
    life.add(facts.MemberJoined(2 * MINUTE, GROUP, second, None, "x", "/h"))
    life.rebalance(Cause.NEW_MEMBER, second, 2 * MINUTE)
    life.leave("x", at=10 * MINUTE)
    life.join("x", at=11 * MINUTE)
    life.leave("x", at=20 * MINUTE)
    life.join("x", at=21 * MINUTE)
    assert names(life.history()) == []


def test_a_flapping_member_is_found() -> None:
    life = quiet()
    for number in range(5):
        life.join("d", at=10 * MINUTE + number * 20_000)
        life.leave("d", at=10 * MINUTE + number * 20_000 + 8_000)
    found = only(life.history(), "flapping-member")
    assert found.members == ("d",) and found.severity is Severity.CRITICAL and len(found.rebalances) == 10
    assert names(life.history()) == ["flapping-member"]


def test_a_rolling_deployment_is_one_finding_for_all_its_rebalances() -> None:
    life = quiet(members=12, partitions=24)
    for index, name in enumerate("abcdefghijkl"):
        life.leave(name, at=10 * MINUTE + index * 30_000)
        life.join(name, at=10 * MINUTE + index * 30_000 + 12_000)
    found = only(life.history(), "rolling-deployment")
    assert len(found.rebalances) == 24 and len(found.members) == 12
    assert found.cost.unassigned_ms and found.cost.avoidable_ms
    assert names(life.history()) == ["rolling-deployment"]


def test_a_deployment_with_new_names_is_found_too() -> None:
    """As pods of Kubernetes have them: a new one joins before an old one leaves."""
    life = quiet(members=4, partitions=8)
    for index, name in enumerate("abcd"):
        life.join(f"new-{name}", at=10 * MINUTE + index * 30_000)
        life.leave(name, at=10 * MINUTE + index * 30_000 + 9_000)
    assert names(life.history()) == ["rolling-deployment"]


def test_static_members_that_are_started_again_are_no_finding() -> None:
    life = Life()
    for index, name in enumerate("abc"):
        life.join(name, at=1_000 + index * 5_000, instance=f"i-{name}")
    for index, name in enumerate("abc"):
        old, new = life.ids[name], f"i-{name}-{index + 100:036}"
        life.ids[name] = new
        life.add(facts.MemberReplaced((10 + index) * MINUTE, GROUP, new, old, f"i-{name}"))
    assert names(life.history()) == []


def test_two_processes_with_one_instance_id_are_found() -> None:
    life = Life()
    life.join("a", at=1_000, instance="i")
    for index in range(4):
        old, new = life.ids["a"], f"i-{index + 100:036}"
        life.ids["a"] = new
        life.add(facts.MemberReplaced(MINUTE + index * 5_000, GROUP, new, old, "i"))
    found = only(life.history(), "duplicate-instance-id")
    assert found.severity is Severity.CRITICAL and found.grade is Grade.INFERRED


def test_one_fenced_request_is_enough_for_two_processes_with_one_instance_id() -> None:
    life = Life()
    life.join("a", at=1_000, instance="i")
    old = life.ids["a"]
    life.add(facts.MemberReplaced(MINUTE, GROUP, f"i-{1:036}", old, "i"))
    line = Evidence(Grade.LOGGED, "server.log:7", MINUTE + 500, "fenced")
    life.builder.add_event(GROUP, Event(MINUTE + 500, Happening.INSTANCE_ID_FENCED, old, line))
    found = only(life.history(), "duplicate-instance-id")
    assert line in found.evidence


def refused(at: int, error: ErrorCode, member: str, holder: str, *, waiting: bool = False) -> facts.InstanceIdFenced:
    return facts.InstanceIdFenced(at, GROUP, member, "i", holder, "Heartbeat", error, waiting)


def test_a_fact_of_a_fenced_member_is_enough_for_two_processes_with_one_instance_id() -> None:
    life = Life()
    life.join("a", at=1_000, instance="i")
    old, new = life.ids["a"], f"i-{1:036}"
    life.add(facts.MemberReplaced(MINUTE, GROUP, new, old, "i"))
    assert names(life.history()) == []
    life.add(refused(MINUTE + 500, ErrorCode.FENCED_INSTANCE_ID, old, new))
    found = only(life.history(), "duplicate-instance-id")
    assert found.grade is Grade.OBSERVED and found.members == ("i",) and found.severity is Severity.CRITICAL
    assert (found.from_ms, found.to_ms) == (MINUTE, MINUTE + 500)
    assert any(f"Heartbeat of {old}: FENCED_INSTANCE_ID, {new} has it" == one.says for one in found.evidence)


def test_a_request_that_waited_when_a_killed_member_came_back_is_no_second_process() -> None:
    life = Life()
    life.join("a", at=1_000, instance="i")
    old, new = life.ids["a"], f"i-{1:036}"
    life.add(facts.MemberReplaced(MINUTE, GROUP, new, old, "i"))
    life.add(refused(MINUTE, ErrorCode.FENCED_INSTANCE_ID, old, new, waiting=True))
    assert names(life.history()) == []


def test_an_instance_id_that_is_not_released_is_a_second_process_if_the_holder_lives_on() -> None:
    life = Life()
    life.join("a", at=1_000, instance="i")
    life.add(refused(MINUTE, ErrorCode.UNRELEASED_INSTANCE_ID, "second", life.ids["a"]))
    assert names(life.history()) == [], "the holder may be dead: its session has not ended"
    life.join("b", at=5 * MINUTE)
    found = only(life.history(), "duplicate-instance-id")
    assert found.members == ("i",) and found.from_ms == found.to_ms == MINUTE


def test_a_killed_member_that_comes_back_before_its_session_ends_is_no_second_process() -> None:
    life = Life()
    life.join("a", at=1_000, instance="i")
    life.add(refused(MINUTE, ErrorCode.UNRELEASED_INSTANCE_ID, "again", life.ids["a"]))
    life.crash("a", at=MINUTE + 9_000)
    life.join("a", at=10 * MINUTE, instance="i")
    assert "duplicate-instance-id" not in names(life.history())


def test_an_autoscaler_that_goes_up_and_down_is_found() -> None:
    life = quiet(members=2, partitions=12)
    number = 0
    for turn in range(3):
        begin = 10 * MINUTE + turn * 2 * MINUTE
        pods = [f"pod-{number + index}" for index in range(3)]
        number += 3
        for index, pod in enumerate(pods):
            life.join(pod, at=begin + index * 2_000)
        for index, pod in enumerate(pods):
            life.leave(pod, at=begin + MINUTE + index * 2_000)
    found = only(life.history(), "autoscaler-storm")
    assert len(found.rebalances) >= 15
    assert names(life.history()) == ["autoscaler-storm"]


def test_rebalances_without_a_change_of_members_are_a_loop() -> None:
    life = quiet()
    for number in range(6):
        life.rebalance(Cause.PROTOCOLS_CHANGED, life.ids["b"], 10 * MINUTE + number * 5_000)
    found = only(life.history(), "rebalance-loop")
    assert found.members == ("b",) and len(found.rebalances) == 6 and found.severity is Severity.CRITICAL


def test_a_cooperative_follow_up_is_no_loop() -> None:
    life = quiet()
    for number in range(6):
        life.leave("c", at=(10 + 30 * number) * MINUTE)
        life.rebalance(Cause.LEADER_REJOINED, life.ids["a"], (10 + 30 * number) * MINUTE + 2_000)
        life.join("c", at=(25 + 30 * number) * MINUTE)
    assert "rebalance-loop" not in names(life.history())


def test_the_member_that_all_waited_for_is_found() -> None:
    life = quiet()
    joined = {life.ids["a"]: 200, life.ids["b"]: 300, life.ids["c"]: 21_000}
    life.rebalance(Cause.LEADER_REJOINED, life.ids["a"], 10 * MINUTE, joined=joined)
    found = only(life.history(), "slow-joiner")
    assert found.members == ("c",) and "21.0 s" in found.summary


def test_the_only_member_of_a_group_is_the_one_that_a_new_one_waited_for() -> None:
    """The log of Kafka does not say who joined when."""
    log = BrokerLog()
    for at, line in enumerate(
        (
            "00:00,000 Preparing to rebalance group g with old generation 0 (reason: Adding new member a-1)",
            "00:00,100 Pending dynamic member with id a-1 joins group g in PreparingRebalance state",
            "00:00,200 Stabilized group g generation 1 with 1 members",
            "01:00,000 Pending dynamic member with id b-2 joins group g in Stable state",
            "01:00,000 Preparing to rebalance group g with old generation 1 (reason: Adding new member b-2)",
            "01:12,000 Stabilized group g generation 2 with 2 members",
        )
    ):
        log.add(f"2026-11-18 09:{line}", f"server.log:{at}")
    found = only(log.histories()["g"], "slow-joiner")
    assert found.members == ("a-1",) and found.grade is Grade.INFERRED and "12.0 s" in found.summary


def test_a_member_that_did_not_join_in_time_is_a_slow_joiner() -> None:
    life = quiet()
    gone = life.ids.pop("c")
    members = list(life.ids.values())
    life.add(facts.RebalanceStarted(10 * MINUTE, GROUP, Cause.LEADER_REJOINED, members[0], None, 3, members))
    life.add(facts.MemberMissedJoin(10 * MINUTE + 30_000, GROUP, gone))
    after = dict.fromkeys(members, 100)
    life.add(facts.JoinPhaseCompleted(10 * MINUTE + 30_000, GROUP, 4, "range", members[0], after))
    life.add(facts.AssignmentStored(10 * MINUTE + 30_100, GROUP, 4, life.assignments(members)))
    assert only(life.history(), "slow-joiner").members == ("c",)


def test_pauses_just_above_the_session_timeout_say_that_it_is_too_short() -> None:
    life = quiet()
    for number in range(2):
        life.crash("c", at=(10 + 20 * number) * MINUTE)
        life.join("c", at=(10 + 20 * number) * MINUTE + 3_000)
    found = only(life.history(), "session-timeout-too-short")
    assert "up to 13.0 s" in found.summary and "20000" in found.advice


def test_a_long_session_timeout_and_a_crash_say_that_it_is_too_long() -> None:
    life = quiet(session_ms=90_000)
    life.crash("c", at=30 * MINUTE)
    assert only(life.history(), "session-timeout-too-long").severity is Severity.INFO


def test_a_skewed_assignment_is_found_among_equal_subscriptions() -> None:
    life = quiet(members=2, partitions=8)
    a, b = life.ids.values()
    shares = facts.AssignmentStored(0, GROUP, 3, {})
    life.add(facts.RebalanceStarted(10 * MINUTE, GROUP, Cause.LEADER_REJOINED, a, None, 2, [a, b]))
    uneven = {
        a: write_assignment(Assignment({"t": [0, 1, 2, 3, 4, 5]})),
        b: write_assignment(Assignment({"t": [6, 7]})),
    }
    life.add(replace(shares, at_ms=10 * MINUTE + 500, assignments=uneven))
    assert "a has 6 partitions and b has 2" in only(life.history(), "skewed-assignment").summary


def test_members_without_partitions_are_found() -> None:
    life = quiet(members=6, partitions=4)
    found = only(life.history(), "idle-members")
    assert set(found.members) == {"e", "f"} and found.severity is Severity.INFO


def test_members_with_different_subscriptions_are_found() -> None:
    life = quiet(members=2)
    life.subscribe("b", ("t", "u"))
    assert "a: t; b: t, u" in only(life.history(), "different-subscriptions").summary


def test_a_new_coordinator_is_found() -> None:
    life = quiet()
    life.add(facts.GroupUnloaded(10 * MINUTE, GROUP))
    assert only(life.history(), "coordinator-moved").severity is Severity.INFO


def sampled(history: GroupHistory, state: str, members: tuple[str, ...], *lags: PartitionLag) -> GroupHistory:
    history.samples.append(GroupSample(history.to_ms or 0, state, None, members, "h:1 (1)", lags))
    return history


def test_a_topic_that_nobody_reads_is_found() -> None:
    life = quiet(members=1)
    mine = life.ids["a"]
    history = sampled(
        life.history(), "Stable", (mine,), PartitionLag("t", 0, 5, 5, mine), PartitionLag("old", 0, 3, 10)
    )
    found = only(history, "unread-topic")
    assert "No member reads old" in found.summary and "7 records" in found.summary


def test_lag_without_members_is_found_and_is_the_worst() -> None:
    life = quiet(members=1)
    life.crash("a", at=10 * MINUTE)
    history = sampled(life.history(), "Empty", (), PartitionLag("t", 0, 5, 105))
    assert names(history)[0] == "lag-without-members"
    assert "100 records wait" in only(history, "lag-without-members").summary


def test_every_detector_has_a_test_that_it_finds_something() -> None:
    text = Path(__file__).read_text()
    assert [name for name in DETECTORS if f'"{name}' not in text] == []


def test_a_member_that_disappears_and_comes_back_is_not_explained_by_records_alone() -> None:
    """The records do not say whether it was slow or stood still: both are possible, so neither is said."""
    life = Life(grade=Grade.DERIVED)
    for index, name in enumerate("abc"):
        life.join(name, at=1_000 + index * 5_000)
    gone = life.ids["c"]
    life.add(RebalanceSeen(10 * MINUTE, GROUP, DerivedCause.MEMBER_GONE, gone, None, 3, [], 4, "range", ""))
    life.add(MemberGone(10 * MINUTE, GROUP, gone, None))
    life.join("c", at=11 * MINUTE, member_id=gone)
    found = findings_of(life.history())
    assert [one.name for one in found] == ["unexplained-absence"]


def test_what_a_builder_keeps_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.diagnosis.from_facts.KEEP_INTERVALS", 100)
    monkeypatch.setattr("coterie.diagnosis.from_facts.KEEP_MEMBERS", 10)
    life = Life(partitions=4)
    life.join("a", at=1_000)
    for number in range(200):
        life.join(f"b{number}", at=(10 + 2 * number) * MINUTE)
        life.leave(f"b{number}", at=(11 + 2 * number) * MINUTE)
    history = life.history()
    assert len(history.members) <= 10 and len(history.intervals) <= 110
    owned = {one.partition for one in history.intervals if one.ended_ms is None}
    assert owned == {("t", number) for number in range(4)}
