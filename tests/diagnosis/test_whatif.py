"""What static members or a cooperative assignor would have saved in a deployment, simulated from the same events."""

from __future__ import annotations

from coterie.diagnosis.detectors import findings_of
from coterie.diagnosis.whatif import savings, with_savings
from diagnosis.script import Life

MINUTE = 60_000


def test_static_members_would_have_saved_all_of_a_deployment() -> None:
    life = Life(partitions=6)
    for index, name in enumerate("abc"):
        life.join(name, at=1_000 + index * 5_000)
    for index, name in enumerate("abc"):
        life.leave(name, at=10 * MINUTE + index * 20_000)
        life.join(name, at=10 * MINUTE + index * 20_000 + 8_000)
    history = life.history()
    (finding,) = findings_of(history)
    was, cooperative, static = savings(history, finding)
    assert was.rebalances == 6 and static.rebalances == 0 and static.unassigned_ms == 0
    assert was.unassigned_ms > 0 and cooperative.unassigned_ms > 0
    assert cooperative.rebalances > was.rebalances  # partitions that move need a second one
    assert "static members: 0 and 0.0" in with_savings(history, finding).advice


def test_other_findings_stay_as_they_are() -> None:
    life = Life()
    life.join("a", at=1_000)
    life.join("b", at=9_000)
    life.crash("b", at=10 * MINUTE)
    history = life.history()
    (finding,) = findings_of(history)
    assert with_savings(history, finding) is finding
