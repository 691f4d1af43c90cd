"""What a group has committed is the same whether a commit is applied as a whole or record by record."""

from __future__ import annotations

import subprocess
import sys
from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from coterie.coordinator.offsets.stored_offsets import StoredOffsets
from coterie.protocol.commit_rows import OffsetRows, read_commit_rows
from coterie.protocol.messages import CommittedOffset

commits = st.lists(
    st.tuples(st.sampled_from(["t", "u"]), st.lists(st.integers(0, 3), min_size=1, max_size=4), st.booleans()),
    max_size=8,
)


def committed(topic: str, partitions: list[int], first: int) -> OffsetRows:
    rows = b"".join(pack(">iqixx", partition, first + at, -1) for at, partition in enumerate(partitions))
    found = read_commit_rows(rows, 0, len(partitions), topic, None, flexible=False)
    assert found is not None
    return OffsetRows("g", found[0], 7)


def flat(stored: dict[str, dict[int, CommittedOffset]]) -> list[tuple[str, list[tuple[int, int, int]]]]:
    return [(topic, [(at, one.offset, one.position) for at, one in of.items()]) for topic, of in stored.items()]


@given(commits=commits)
def test_commits_count_in_their_order_whenever_somebody_looks(commits: list[tuple[str, list[int], bool]]) -> None:
    """Rule 22: of two commits for a partition the later one counts; also of two within a commit."""
    stored, one_by_one = StoredOffsets(), StoredOffsets()
    for number, (topic, partitions, looks) in enumerate(commits):
        rows = committed(topic, partitions, 100 * number)
        stored.apply_commit(rows, 100 * number)
        for at, record in enumerate(rows):
            one_by_one.apply(record, 100 * number + at)
        model = one_by_one.by_topic()
        last = stored.last_commit(topic)
        if last is not None:
            assert [(p.partition, p.offset) for p in last] == [(p, model[topic][p].offset) for p in last.numbers]
        if looks:
            assert flat(stored.by_topic()) == flat(model)
            assert stored.last_commit(topic) is None
    assert flat(stored.by_topic()) == flat(one_by_one.by_topic())


def test_the_same_partitions_again_take_the_place_of_the_last() -> None:
    stored = StoredOffsets()
    for first in (0, 100):
        stored.apply_commit(committed("t", [2, 1], first), first)
    last = stored.last_commit("t")
    assert last is not None and [p.offset for p in last] == [100, 101]
    stored.apply_commit(committed("t", [1], 200), 200)
    assert flat(stored.by_topic()) == [("t", [(2, 100, 100), (1, 200, 200)])]


def test_the_part_that_all_groups_have_can_be_imported_first() -> None:
    """It is below the packages of both types of groups."""
    done = subprocess.run([sys.executable, "-c", "import coterie.coordinator.offsets.offsets_group"], check=False)
    assert done.returncode == 0
