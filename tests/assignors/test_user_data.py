"""The user data of the sticky assignors, versions 0 and 1: Kafka's bytes, and bytes that are nobody's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.assignors import Member, Sticky, Topic
from coterie.assignors.sticky import read_generation, read_owned, write_generation, write_owned
from coterie.protocol.messages import NO_GENERATION

KAFKAS = "000000020002743000000001000000000002743200000002000000010000000300000005"

int32 = st.integers(-(2**31), 2**31 - 1)
partition_ids = st.integers(0, 2**31 - 1)
owned = st.dictionaries(st.text(min_size=1, max_size=20), st.lists(partition_ids, max_size=8), max_size=6)


def plain(data: bytes) -> tuple[dict[str, list[int]], int]:
    partitions, generation = read_owned(data)
    return {topic: list(ids) for topic, ids in partitions.items()}, generation


def test_kafkas_bytes_are_read_and_written() -> None:
    assert plain(bytes.fromhex(KAFKAS)) == ({"t0": [0], "t2": [1, 3]}, 5)
    assert write_owned({"t0": [0], "t2": [1, 3]}, 5).hex() == KAFKAS


def test_a_negative_id_is_read_as_one_that_no_topic_has() -> None:
    """So that it is dropped like any other beyond the topic's end."""
    data = write_owned({"t": [-1, 0]}, 5)
    assert plain(data) == ({"t": [2**32 - 1, 0]}, 5)
    assert Sticky().assign([Member("m", ["t"], user_data=data)], {"t": Topic(2)}) == {"m": {"t": [0, 1]}}


def test_version_0_has_no_generation() -> None:
    assert plain(bytes.fromhex(KAFKAS)[:-4]) == ({"t0": [0], "t2": [1, 3]}, NO_GENERATION)


@given(owned, int32)
def test_what_is_written_is_read(partitions: dict[str, list[int]], generation: int) -> None:
    assert plain(write_owned(partitions, generation)) == (partitions, generation)


@given(st.binary(max_size=60))
def test_no_bytes_are_an_error(data: bytes) -> None:
    """Kafka: a history that cannot be read is none. It must not stop the group."""
    read_owned(data)
    read_generation(data)


@given(owned, int32, st.data())
def test_a_torn_history_is_none(partitions: dict[str, list[int]], generation: int, data: st.DataObject) -> None:
    whole = write_owned(partitions, generation)
    cut = data.draw(st.integers(0, len(whole) - 5))
    assert plain(whole[:cut])[1] == NO_GENERATION


@pytest.mark.parametrize("text", ["7fffffff", "ffffffff", "00000001000174" + "7fffffff", "00000001000174" + "ffffffff"])
def test_an_absurd_length_allocates_nothing(text: str) -> None:
    assert plain(bytes.fromhex(text)) == ({}, NO_GENERATION)


def test_a_topic_that_comes_twice_is_added_up() -> None:
    data = bytes.fromhex("00000002" + "000174" + "0000000100000001" + "000174" + "0000000100000002" + "00000003")
    assert plain(data) == ({"t": [1, 2]}, 3)


@pytest.mark.parametrize(("data", "generation"), [(None, -1), (b"", -1), (b"\0\0\0", -1), (b"\0\0\0\x07", 7)])
def test_the_cooperative_generation(data: bytes | None, generation: int) -> None:
    assert read_generation(data) == generation


def test_the_cooperative_generation_is_an_int32() -> None:
    assert write_generation(7) == b"\0\0\0\x07"
