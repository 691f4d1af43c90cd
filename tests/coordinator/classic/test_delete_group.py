"""Rule 24: DeleteGroups."""

from __future__ import annotations

from coterie.coordinator.classic import ClassicGroupState
from coterie.errors import ErrorCode
from coterie.facts import GroupDied
from coterie.stories import PARKED, Story


def test_only_an_empty_group_can_be_deleted(group: Story) -> None:
    """Section 2."""
    admin = group.member("admin").deletes_group(expect="GROUP_ID_NOT_FOUND")
    (a,) = group.stable("a")
    admin.deletes_group(expect="NON_EMPTY_GROUP")
    a.commits({"t:0": 5})
    a.leaves()
    admin.deletes_group(expect="ok")
    group.expect(state=ClassicGroupState.DEAD)
    group.emitted(GroupDied, why="deleted")
    a.fetches(expect="nothing")
    admin.deletes_group(expect="GROUP_ID_NOT_FOUND")
    group.crash()
    group.expect(state=ClassicGroupState.DEAD)


def test_pending_ids_and_open_transactions_do_not_prevent_it(group: Story) -> None:
    """Rule 24."""
    a = group.member("a").joins(expect="MEMBER_ID_REQUIRED")
    a.commits({"t:0": 5}, gen=-1, producer=7, expect="ok")
    group.member("admin").deletes_group(expect="ok")
    a.joins(expect="UNKNOWN_MEMBER_ID")
    assert set(group.world.timers._armed) == {(0, "expiry"), (0, "late")}  # the shard's own
    group.crash()
    group.expect(state=ClassicGroupState.DEAD)


def test_a_join_behind_a_deletion_waits_for_the_disk_and_then_founds_a_new_group(group: Story) -> None:
    """Rule 24 and the order of the log: tombstones first, then the new group's birth."""
    (a,) = group.stable("a")
    a.commits({"t:0": 5})
    a.leaves()
    group.hold_writes()
    admin = group.member("admin").deletes_group(expect=PARKED)
    b = group.member("b").joins(expect=PARKED)
    group.end_writes()
    assert group.steps[-1].hears == "admin: ok, b: MEMBER_ID_REQUIRED"
    group.expect(state=ClassicGroupState.EMPTY, generation=0)
    b.fetches(expect="nothing")
    group.crash()
    group.expect(state=ClassicGroupState.EMPTY, generation=0)
    assert admin.answer is ErrorCode.NONE


def test_a_deletion_that_cannot_be_written_did_not_happen(group: Story) -> None:
    """Rule 11's mapping."""
    a = group.member("a").commits({"t:0": 5}, gen=-1)
    group.hold_writes()
    admin = group.member("admin").deletes_group(expect=PARKED)
    group.end_writes(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert admin.answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    group.expect(state=ClassicGroupState.EMPTY)
    a.fetches(expect="t:0=5")


def test_a_commit_on_its_way_to_the_log_does_not_survive_the_group(group: Story) -> None:
    """Rule 24: what was acknowledged before the deletion is deleted with it, after a crash as well."""
    group.member("a").commits({"t:0": 5}, gen=-1)
    group.hold_writes()
    group.member("a").commits({"t:1": 6}, gen=-1)
    group.member("admin").deletes_group()
    group.end_writes()
    group.expect(state=ClassicGroupState.DEAD)
    group.crash()
    group.expect(state=ClassicGroupState.DEAD)
    group.member("a").fetches(expect="nothing")
