"""Rule 22: whatever is missing is -1, and no error."""

from __future__ import annotations

from coterie.stories import Story


def test_an_absent_group_a_missing_topic_and_a_missing_partition_are_minus_one(group: Story) -> None:
    """Rule 22."""
    a = group.member("a").fetches(topics=[("t", [0, 1])], expect="t:0=-1 t:1=-1")
    a.fetches(expect="nothing")
    a.commits({"t:0": 5}, gen=-1)
    a.fetches(topics=[("t", [1, 0]), ("u", [0])], expect="t:1=-1 t:0=5 u:0=-1")
    missing = a.answer.partitions[0]
    assert (missing.leader_epoch, missing.metadata, missing.error) == (-1, "", 0)


def test_an_open_transaction_makes_an_offset_unstable_for_whoever_asks_for_stable_ones(group: Story) -> None:
    """Rule 22: at once, and in a fetch of all only where there is also a committed offset."""
    a = group.member("a").commits({"t:0": 1}, gen=-1)
    a.commits({"t:0": 5, "t:1": 6}, gen=-1, producer=7)
    asked = [("t", [0, 1, 2])]
    a.fetches(topics=asked, stable=True, expect="t:0=UNSTABLE_OFFSET_COMMIT t:1=UNSTABLE_OFFSET_COMMIT t:2=-1")
    assert a.answer.partitions[0].offset == -1
    a.fetches(topics=asked, expect="t:0=1 t:1=-1 t:2=-1")
    a.fetches(stable=True, expect="t:0=UNSTABLE_OFFSET_COMMIT")


def test_offsets_can_be_fetched_in_every_state(group: Story) -> None:
    """Section 2."""
    a, b = group.stable("a", "b")
    a.commits({"t:0": 5}, expect="ok")
    a.fetches(expect="t:0=5")
    a.joins()
    b.fetches(expect="t:0=5")
    b.joins()
    b.fetches(expect="t:0=5")
    for member in (a, b):
        member.leaves()
    b.fetches(expect="t:0=5")
