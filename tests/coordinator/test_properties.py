"""Random lives of groups: everything `checks.py` says, after every event, on any disk and any clock."""

from __future__ import annotations

from hypothesis import settings

from coordinator.machine import GroupMachine
from coterie.errors import ErrorCode

TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(max_examples=max(settings().max_examples, 400))


def test_a_marker_that_is_not_written_leaves_the_transaction_to_the_next_one() -> None:
    machine = GroupMachine()
    machine.begin(2**31 - 1, 0, 1024 * 1024, (), newcomer=False, holds=False)
    machine.commit_without_membership("g", [("t", 0, 0)], producer_id=2)
    machine.disk_slows_or_speeds_up(holds=True)
    machine.end_transaction(2, committed=False)
    machine.transaction_is_overtaken("h", 2, 0)
    machine.write_ends(ErrorCode.NOT_ENOUGH_REPLICAS, all_of_them=False)
    while machine.world.writes_under_way:
        machine.write_ends(ErrorCode.NONE, all_of_them=False)
        machine.the_log_tells_the_same()
    assert machine.world.shard.groups["g"].offsets["t"][0].offset == 0
