"""The journal says of `__consumer_offsets` what the judge has to know, no more and no less."""

from __future__ import annotations

import pytest

from clients.journal import Journal
from clients.laws import one_owner_in_a_generation
from coterie.protocol.messages import CommittedOffset, GroupRecord, OffsetRecord, StoredGroup, StoredMember
from coterie.protocol.offsets_topic import Skipped
from coterie.protocol.subscription import Assignment, write_assignment


def member(name: str, *partitions: int, instance: str | None = None) -> StoredMember:
    given = write_assignment(Assignment({"t": list(partitions)}))
    return StoredMember(f"{name}-id", instance, name, "/127.0.0.1", 1, 1, b"", given)


def journal(*rebalances: tuple[int, list[StoredMember]]) -> Journal:
    written = Journal()
    for at_ms, (generation, members) in enumerate(rebalances, start=1):
        written.take(GroupRecord("g", StoredGroup("consumer", generation, "range", members=members)), at_ms)
    return written


def test_who_is_in_no_later_record_is_gone() -> None:
    written = journal((1, [member("a", 0), member("b", 1)]), (2, [member("b", 0, 1)]))
    (gone,) = written.of("g", "MemberGone")
    assert (written.member_ids("g")[gone["member_id"]], gone["at_ms"]) == ("a", 2)
    assert written.generation("g") == 2
    assert written.assignments("g")[-1] == (2, {"b-id": {("t", 0), ("t", 1)}})


def test_a_static_member_under_a_new_id_is_the_same_owner() -> None:
    """KIP-345: the record is rewritten in the same generation."""
    written = journal((1, [member("a", 0, instance="i")]), (1, [member("new", 0, instance="i")]))
    one_owner_in_a_generation(written, "g")


def test_a_generation_that_is_handed_out_twice_is_found() -> None:
    written = journal((1, [member("a", 0), member("b", 1)]), (1, [member("a", 1), member("b", 0)]))
    with pytest.raises(AssertionError, match=r"generation 1: .* belongs to"):
        one_owner_in_a_generation(written, "g")


def test_a_commit_counts_at_its_own_time_and_a_tombstone_is_no_commit() -> None:
    written = Journal()
    written.take(OffsetRecord("g", "t", 0, CommittedOffset(5, commit_timestamp_ms=70)), 71)
    written.take(OffsetRecord("g", "t", 0, None), 72)
    written.take(Skipped(3), 73)
    assert written.committed("g") == {("t", 0): 5}
    assert [one["at_ms"] for one in written.all] == [70]
