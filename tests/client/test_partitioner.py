from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.client.producer.record_appender import StickyPartitioner, draw_partition, partition_for_key
from coterie.protocol.records import murmur2

VECTORS = [json.loads(line) for line in (Path(__file__).parent / "data" / "murmur2.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("key", "hashed", "of_1", "of_7", "of_50"), VECTORS, ids=[row[0][:24] for row in VECTORS])
def test_a_key_goes_where_javas_producer_sends_it(key: str, hashed: int, of_1: int, of_7: int, of_50: int) -> None:
    """`data/murmur2.jsonl` is what kafka-clients 4.3.1 answered."""
    data = bytes.fromhex(key)
    assert murmur2(data) == hashed & 0xFFFFFFFF
    assert [partition_for_key(data, count) for count in (1, 7, 50)] == [of_1, of_7, of_50]


@given(key=st.binary(max_size=64), partitions=st.integers(1, 1000))
def test_every_key_has_a_partition_that_exists(key: bytes, partitions: int) -> None:
    assert 0 <= partition_for_key(key, partitions) < partitions


def test_the_sticky_partition_changes_between_batches() -> None:
    """KIP-480: all of a batch goes to one partition; KIP-794: enough bytes for a batch, then another."""
    draws = iter([2, 0, 1])
    sticky = StickyPartitioner(100, lambda: next(draws))
    sticky.note(60, batch_is_full=False)
    assert sticky.partition == 2
    sticky.note(39, batch_is_full=True)
    assert sticky.partition == 2, "99 bytes are no batch of 100"
    sticky.note(1, batch_is_full=False)
    assert sticky.partition == 2, "the batch is not full yet"
    sticky.note(0, batch_is_full=True)
    assert sticky.partition == 0


def test_the_sticky_partition_changes_after_twice_the_size_in_any_case() -> None:
    """KIP-794: keyed records may keep a batch from ever being full at the right moment."""
    draws = iter([2, 0])
    sticky = StickyPartitioner(100, lambda: next(draws))
    sticky.note(199, batch_is_full=False)
    assert sticky.partition == 2
    sticky.note(1, batch_is_full=False)
    assert sticky.partition == 0


def test_equal_queues_are_drawn_equally() -> None:
    assert Counter(draw_partition(rng, [0, 1, 5]) for rng in range(9)) == {0: 3, 1: 3, 5: 3}
    assert Counter(draw_partition(rng, [0, 1, 5], {0: 2, 1: 2, 5: 2}) for rng in range(9)) == {0: 3, 1: 3, 5: 3}


def test_short_queues_are_drawn_more_often() -> None:
    """KIP-794's own example: queues of 0, 3 and 1 batches are drawn 4 : 1 : 3."""
    drawn = [draw_partition(rng, [0, 1, 2], {0: 0, 1: 3, 2: 1}) for rng in range(8)]
    assert drawn == [0, 0, 0, 0, 1, 2, 2, 2]


@given(
    rng=st.integers(0, 2**31 - 1),
    queued=st.dictionaries(st.integers(0, 20), st.integers(0, 50), min_size=1),
)
def test_what_is_drawn_is_available(rng: int, queued: dict[int, int]) -> None:
    assert draw_partition(rng, sorted(queued), queued) in queued
