"""Kafka's small text files, in Kafka's own words."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.storage.leader_epochs import LeaderEpochs
from coterie.storage.metadata_files import (
    StoredTopic,
    Topics,
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    decode_topics,
    encode_epochs,
    encode_offsets,
    encode_partition_metadata,
    encode_properties,
    encode_topics,
    id_text,
    is_legal_name,
    parse_id,
)

names = st.text("abcXYZ019._-", min_size=1, max_size=20)


def test_a_topic_id_is_written_as_kafka_writes_it() -> None:
    """`Uuid.toString` of Kafka for the id of its metadata topic, 0...01."""
    assert id_text(UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert parse_id("AAAAAAAAAAAAAAAAAAAAAQ") == UUID(int=1)
    for wrong in ("", "AAAA", "not base64 at all!", "A" * 40):
        with pytest.raises(MalformedError, match="16 bytes"):
            parse_id(wrong)


def test_files_have_kafkas_text() -> None:
    assert encode_epochs([(0, 0), (3, 120)]) == b"0\n2\n0 0\n3 120\n"
    assert encode_offsets({("b", 0): 7, ("a", 1): 5}) == b"0\n2\na 1 5\nb 0 7\n"
    first_lines = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
    assert encode_partition_metadata(UUID(int=1)).startswith(first_lines)
    assert encode_properties({"version": "1", "cluster.id": "x"}) == b"cluster.id=x\nversion=1\n"


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2**60))))
def test_epochs_are_read_again(epochs: list[tuple[int, int]]) -> None:
    assert decode_epochs(encode_epochs(epochs)) == epochs


@given(st.dictionaries(st.tuples(names, st.integers(0, 99)), st.integers(0, 2**60)))
def test_offsets_are_read_again(offsets: dict[tuple[str, int], int]) -> None:
    assert decode_offsets(encode_offsets(offsets), "file") == offsets


@given(st.uuids())
def test_ids_are_read_again(topic_id: UUID) -> None:
    assert parse_id(id_text(topic_id)) == topic_id
    assert decode_partition_metadata(encode_partition_metadata(topic_id)) == topic_id


def test_properties_may_have_comments() -> None:
    """Java writes the date into a comment."""
    assert decode_properties(b"#\n#Sat Nov 15 22:57:12 UTC 2025\nnode.id=1\n\nversion = 1\n") == {
        "node.id": "1",
        "version": "1",
    }


@pytest.mark.parametrize(
    "data", [b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0 0 0\n", b"0\n1\nx 0\n", b"0\n", b"\xff\n0\n", b"0\n1\n0 0\n1 1\n"]
)
def test_a_checkpoint_that_does_not_add_up_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_epochs(data)


@pytest.mark.parametrize("data", [b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", b"version: 0", b"nonsense", b"\xff"])
def test_partition_metadata_that_does_not_add_up_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_partition_metadata(data)


# --- leader epochs


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=20), st.integers(-1, 22))
def test_the_end_of_an_epoch_is_where_the_next_begins(steps: list[tuple[int, int]], asked: int) -> None:
    """KIP-320, against the plain list of which record was written in which epoch."""
    epochs = LeaderEpochs()
    written: list[int] = []
    for epoch, count in steps:
        if epochs.assign(epoch, len(written)):
            written += [epoch] * count
    found, end = epochs.end_of(asked, len(written))
    known = [epoch for epoch in written if epoch <= asked]
    if asked < 0 or asked > epochs.latest:
        assert (found, end) == (-1, -1)
    elif known:
        assert end == len(known) and found in {known[-1], epochs.latest}
    assert epochs.entries == sorted(epochs.entries)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(0, 25), st.integers(0, 25))
def test_cutting_epochs_keeps_what_is_between(counts: list[int], start: int, end: int) -> None:
    epochs = LeaderEpochs()
    written: list[int] = []
    for epoch, count in enumerate(counts):
        epochs.assign(epoch, len(written))
        written += [epoch] * count
    epochs.cut_end(end)
    epochs.cut_start(start)
    for offset in range(start, min(end, len(written))):
        below = [epoch for epoch, first in epochs.entries if first <= offset]
        assert below[-1] == written[offset]
    assert all(start <= first for _, first in epochs.entries)


# --- our own file


@given(
    st.lists(st.builds(StoredTopic, names, st.uuids(), st.integers(1, 50), st.dictionaries(names, names)), max_size=5)
)
def test_topics_are_read_again(topics: list[StoredTopic]) -> None:
    by_id = {topic.id: topic for topic in topics if is_legal_name(topic.name)}
    by_name = {topic.name: topic for topic in by_id.values()}
    deleted = {UUID(int=1): "gone"}
    assert decode_topics(encode_topics(by_name.values(), deleted)) == Topics(by_name, deleted)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"format": 1, "topics": [], "deleted": []}',
        b'{"format": 1, "topics": [{}]}',
        b'{"format": 1, "topics": [{"name": "../up", "id": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": 1, "configs": {}}]}',
        b'{"format": 1, "topics": [{"name": "t", "id": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": 0, "configs": {}}]}',
        b'{"format": 1, "topics": [{"name": "t", "id": "short", "partitions": 1, "configs": {}}]}',
    ],
)
def test_a_topics_file_that_does_not_add_up_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_topics(data)


def test_a_wrong_character_in_a_partitions_metadata_is_noticed() -> None:
    """Kafka reads the first two lines; the third is ours."""
    data = encode_partition_metadata(UUID(int=7))
    assert data.splitlines()[:2] == [b"version: 0", b"topic_id: AAAAAAAAAAAAAAAAAAAABw"]
    assert decode_partition_metadata(data) == UUID(int=7)
    assert decode_partition_metadata(b"\n".join(data.splitlines()[:2])) == UUID(int=7), "of an earlier release"
    for at in (*range(data.index(b"AAAA"), data.index(b"\ncrc")), *range(len(data) - 8, len(data))):
        with pytest.raises(MalformedError):
            decode_partition_metadata(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\n"])
def test_names_that_kafka_does_not_allow(name: str) -> None:
    assert not is_legal_name(name)
