"""`coterie-leaders.json`: what is in it, and that what was written is read."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.broker.leadership import read_leaders_file, write_leaders_file
from coterie.broker.placement import Partition, PartitionState, default_state
from coterie.storage import MemoryFiles, StoredTopic
from coterie.storage.files import replace_file
from coterie.storage.log_errors import DamagedFileError
from coterie.storage.metadata_files import LEADERS

TOPIC = StoredTopic("t", UUID(int=5), 3)


def test_without_a_file_one_node_has_led_everything_from_the_beginning() -> None:
    nodes, states = read_leaders_file(MemoryFiles(), 4, [TOPIC])
    assert (list(nodes), set(states.values())) == ([4], {PartitionState(4, 4, 0)})


def test_only_what_is_not_known_by_rule_is_written() -> None:
    files = MemoryFiles()
    nodes = (1, 2)
    states = {("t", number): default_state(("t", number), nodes) for number in range(3)}
    write_leaders_file(files, nodes, states, [TOPIC])
    assert json.loads(LEADERS.read(files).payload) == {"nodes": [1, 2], "topics": {}}


STATES = st.builds(PartitionState, st.integers(1, 3), st.sampled_from([-1, 1, 2, 3]), st.integers(0, 9))


@given(st.lists(STATES, min_size=3, max_size=3))
def test_what_was_written_is_read(made: list[PartitionState]) -> None:
    files = MemoryFiles()
    states: dict[Partition, PartitionState] = {("t", number): state for number, state in enumerate(made)}
    write_leaders_file(files, (1, 2, 3), states, [TOPIC])
    assert read_leaders_file(files, 1, [TOPIC]) == ([1, 2, 3], states)


def test_a_topic_made_anew_has_nothing_of_the_one_before() -> None:
    files = MemoryFiles()
    write_leaders_file(files, (1, 2), {("t", 0): PartitionState(2, 1, 9)}, [TOPIC])
    again = StoredTopic("t", UUID(int=6), 1)
    assert read_leaders_file(files, 1, [again])[1] == {("t", 0): default_state(("t", 0), (1, 2))}


def test_partitions_that_were_added_since_are_where_the_rule_says() -> None:
    files = MemoryFiles()
    write_leaders_file(files, (1, 2), {("t", 0): PartitionState(2, 1, 9)}, [StoredTopic("t", UUID(int=5), 1)])
    _, states = read_leaders_file(files, 1, [TOPIC])
    assert states == {("t", 0): PartitionState(2, 1, 9)} | {("t", n): default_state(("t", n), (1, 2)) for n in (1, 2)}


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"format": 1}',
        b'{"format": 1, "nodes": [], "topics": {}}',
        b'{"format": 1, "nodes": ["x"], "topics": {}}',
        b'{"format": 1, "nodes": [1], "topics": []}',
        b'{"format": 1, "nodes": [1], "topics": {"AAAAAAAAAAAAAAAAAAAABQ": {"0": [1]}}}',
        b'{"format": 1, "nodes": [1], "topics": {"AAAAAAAAAAAAAAAAAAAABQ": 7}}',
        b"\xff",
    ],
)
def test_a_file_that_makes_no_sense_is_an_error_that_names_it(content: bytes) -> None:
    files = MemoryFiles()
    replace_file(files, LEADERS.path, content)
    with pytest.raises(DamagedFileError, match=r"coterie-leaders\.json is not what we write"):
        read_leaders_file(files, 1, [TOPIC])


def test_a_file_of_an_earlier_release_is_read_and_gets_its_checksum() -> None:
    files = MemoryFiles()
    replace_file(files, LEADERS.path, b'{"format": 1, "nodes": [1, 2], "topics": {}}')
    nodes, _ = read_leaders_file(files, 1, [TOPIC])
    assert nodes == [1, 2] and LEADERS.read(files).version == 2
