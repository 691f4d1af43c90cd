"""What clients report about rebalances (KIP-714) is evidence of its own grade, and contradicts nothing."""

from __future__ import annotations

from typing import Any

from coterie.cli.why import why
from coterie.diagnosis import Grade
from coterie.diagnosis.merge import merge
from coterie.diagnosis.model import Happening
from coterie.facts import ClientReported
from diagnosis.script import GROUP, Life, histories_of


def report(at: int, member_id: str, client_id: str = "a", **numbers: Any) -> ClientReported:
    return ClientReported(at, GROUP, member_id, None, client_id, "i" * 22, "127.0.0.1", **numbers)


def life_with_reports() -> Life:
    life = Life()
    life.join("a", at=1_000)
    life.add(report(3_000, life.ids["a"], rebalances=1, rebalance_latency_max_ms=7_777, poll_idle_ratio=0.5))
    life.join("b", at=60_000)
    life.add(report(63_000, life.ids["a"], rebalance_latency_max_ms=400))
    return life


def test_a_report_is_an_event_and_says_what_the_client_said() -> None:
    life = life_with_reports()
    history = life.history()
    assert history.grades == {"observed", "reported"}
    first, second = (one for one in history.events if one.what is Happening.CLIENT_REPORTED)
    assert first.evidence.grade is second.evidence.grade is Grade.REPORTED
    assert first.evidence.says == "a: rebalances 1, longest 7777 ms, poll idle ratio 0.50"
    assert second.evidence.says == "a: longest 400 ms", "nothing is said of what was not sent"


def test_the_last_numbers_are_those_of_the_member_and_what_was_not_sent_is_unknown() -> None:
    life = life_with_reports()
    member = life.history().members[life.ids["a"]]
    latency = member.rebalance_latency_max_ms
    assert (latency.value, latency.grade) == (400, Grade.REPORTED)
    assert member.poll_idle_ratio.value == 0.5, "the second report did not say it"
    assert not member.assigned_partitions.is_known
    other = life.history().members[life.ids["b"]]
    assert not other.rebalance_latency_max_ms.is_known
    assert other.to_json()["rebalance_latency_max_ms"]["value"] == "unknown"


def test_a_rebalance_is_as_the_broker_saw_it() -> None:
    """The client measures something else: from its own join until it has its partitions."""
    with_reports, without = life_with_reports(), Life()
    without.join("a", at=1_000)
    without.join("b", at=60_000)
    found, expected = with_reports.history().rebalances, without.history().rebalances
    assert found == expected and not any(one.disagreements for one in found)


def test_reports_belong_to_the_rebalance_before_them() -> None:
    history = life_with_reports().history()
    first, second = history.rebalances
    assert [one.at_ms for one in history.reports_after(first)] == [3_000]
    assert [one.at_ms for one in history.reports_after(second)] == [63_000]
    said = why(history, [], now_ms=100_000)
    assert "reported  script@63000  1970-01-01 00:01:03 UTC, a: longest 400 ms" in said and "7777" not in said


def test_a_member_that_is_not_known_does_not_come_to_be_by_a_report() -> None:
    life = Life()
    life.join("a", at=1_000)
    life.add(report(3_000, "", "stranger", rebalances=1))
    history = life.history()
    assert list(history.members) == [life.ids["a"]]
    assert [one.evidence.says for one in history.events] == ["stranger: rebalances 1"]


def test_two_sources_with_different_reports_do_not_disagree() -> None:
    one, other = Life(), Life()
    for life, latency in ((one, 5), (other, 5_000)):
        life.join("a", at=1_000)
        life.add(report(3_000, life.ids["a"], rebalance_latency_max_ms=latency))
    both = merge([one.history(), other.history()])
    statement = both.members[one.ids["a"]].rebalance_latency_max_ms
    assert len(statement.claims) == 2 and not statement.disagreements
    assert "reported" in both.grades


def test_a_group_of_which_only_a_report_is_known_has_no_rebalances() -> None:
    history = histories_of([report(5, "m", rebalances=3)], Grade.OBSERVED)[GROUP]
    assert not history.rebalances and not history.members
