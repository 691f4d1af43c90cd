"""When a coordinator counts as unreachable. The clock is the test's own."""

from __future__ import annotations

from coterie.client.consumer.engine import CoordinatorReach


def test_a_coordinator_that_does_not_answer_is_told_once_after_ten_seconds() -> None:
    reach = CoordinatorReach()
    reach.asked(1_000)
    assert reach.due_ms == 11_000
    reach.failed("connection refused", 1_500)
    reach.asked(2_000)
    assert reach.look(10_999) is None
    assert reach.look(11_000) == (10_000, "connection refused")
    assert reach.look(30_000) is None and reach.due_ms is None, "once"
    reach.failed("connection refused", 31_000)
    assert reach.look(60_000) is None
    assert reach.answered(61_000) == 60_000, "and how long it was is told when it is back"
    assert reach.answered(62_000) is None
    reach.asked(70_000)
    assert reach.look(80_000) == (10_000, ""), "the next time is told again"


def test_a_coordinator_that_answers_in_time_is_not_spoken_of() -> None:
    reach = CoordinatorReach()
    for now_ms in range(0, 60_000, 3_000):
        reach.asked(now_ms)
        assert reach.answered(now_ms + 2_999) is None
    assert reach.due_ms is None and reach.look(100_000) is None


def test_a_join_that_waits_for_other_members_is_no_silence() -> None:
    """The lookup succeeds; the join is not counted as asked, and may wait for minutes."""
    reach = CoordinatorReach()
    reach.asked(0)
    reach.found()
    assert reach.due_ms is None and reach.look(300_000) is None
    assert reach.answered(300_000) is None


def test_a_coordinator_that_is_found_again_and_again_and_never_answers_is_unreachable() -> None:
    """The other nodes go on naming a node that is dead."""
    reach = CoordinatorReach()
    reach.asked(0)
    reach.found()
    for now_ms in range(100, 9_900, 200):
        reach.failed("connection refused", now_ms)
        reach.asked(now_ms)
        reach.found()
    reach.failed("connection refused", 9_900)
    assert reach.due_ms == 10_000
    assert reach.look(10_000) == (10_000, "connection refused")
    reach.found()
    assert reach.answered(12_000) == 12_000
