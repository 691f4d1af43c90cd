"""`coterie-leaders.json`: what is in it, and that what was written is read."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.broker.leadership import read_places, write_places
from coterie.broker.placement import Partition, Place, default_place
from coterie.storage import MemoryFiles, StoredTopic
from coterie.storage.files import replace_file
from coterie.storage.log_errors import DamagedFileError
from coterie.storage.metadata_files import LEADERS

TOPIC = StoredTopic("t", UUID(int=5), 3)


def test_without_a_file_one_node_has_led_everything_from_the_beginning() -> None:
    nodes, places = read_places(MemoryFiles(), 4, [TOPIC])
    assert (list(nodes), set(places.values())) == ([4], {Place(4, 4, 0)})


def test_only_what_is_not_known_by_rule_is_written() -> None:
    files = MemoryFiles()
    nodes = (1, 2)
    places = {("t", number): default_place(("t", number), nodes) for number in range(3)}
    write_places(files, nodes, places, [TOPIC])
    assert json.loads(LEADERS.read(files).payload) == {"nodes": [1, 2], "topics": {}}


PLACES = st.builds(Place, st.integers(1, 3), st.sampled_from([-1, 1, 2, 3]), st.integers(0, 9))


@given(st.lists(PLACES, min_size=3, max_size=3))
def test_what_was_written_is_read(made: list[Place]) -> None:
    files = MemoryFiles()
    places: dict[Partition, Place] = {("t", number): place for number, place in enumerate(made)}
    write_places(files, (1, 2, 3), places, [TOPIC])
    assert read_places(files, 1, [TOPIC]) == ([1, 2, 3], places)


def test_a_topic_made_anew_has_nothing_of_the_one_before() -> None:
    files = MemoryFiles()
    write_places(files, (1, 2), {("t", 0): Place(2, 1, 9)}, [TOPIC])
    again = StoredTopic("t", UUID(int=6), 1)
    assert read_places(files, 1, [again])[1] == {("t", 0): default_place(("t", 0), (1, 2))}


def test_partitions_that_were_added_since_are_where_the_rule_says() -> None:
    files = MemoryFiles()
    write_places(files, (1, 2), {("t", 0): Place(2, 1, 9)}, [StoredTopic("t", UUID(int=5), 1)])
    _, places = read_places(files, 1, [TOPIC])
    assert places == {("t", 0): Place(2, 1, 9)} | {("t", n): default_place(("t", n), (1, 2)) for n in (1, 2)}


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
        read_places(files, 1, [TOPIC])


def test_a_file_of_an_earlier_release_is_read_and_gets_its_checksum() -> None:
    files = MemoryFiles()
    replace_file(files, LEADERS.path, b'{"format": 1, "nodes": [1, 2], "topics": {}}')
    nodes, _ = read_places(files, 1, [TOPIC])
    assert nodes == [1, 2] and LEADERS.read(files).version == 2
