"""A member crashes: what it had not committed is billed by another one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import billing
from shop import BOTH, Gate, Shop


def test_what_a_member_had_not_committed_is_billed_by_another(shop: Shop, gate: Gate) -> None:
    a, b = shop.start("a", on_bill=gate), shop.start("b")
    partition = int(shop.group.wait_running(members=2).assignment["a"][0][-1])
    shop.order("1", partition=partition)
    gate.wait_reached()
    with shop.broker.faults.cut_off("a"):
        shop.broker.clock.silence("a")
        shop.group.wait_assigned({"b": BOTH})
        shop.group.wait_committed("orders", partition, 1)
    assert a.book.attempts == b.book.attempts == ["1"]
    assert b.book.bills == {"1": 100}
    gate.open()
    shop.group.wait_running(members=2)


@pytest.mark.parametrize("library", ["confluent-kafka"])
def test_a_process_that_is_killed_before_its_commit(shop: Shop) -> None:
    shop.order("1", "2")
    with shop.broker.faults.on("OffsetCommit", member="killed", nth=2).hold() as second:
        command = [sys.executable, "-m", "billing", shop.library, "killed"]
        process = subprocess.Popen(command, cwd=Path(billing.__file__).parents[1])  # noqa: S603
        second.wait_hit()
        process.kill()
        process.wait()
    shop.broker.clock.silence("killed")
    assert shop.group.committed == {"orders-0": 1}
    b = shop.start("b")
    shop.group.wait_committed("orders", 0, 2)
    assert b.book.attempts == ["2"]
