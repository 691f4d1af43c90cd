"""Where a read begins and ends, as Spark's JSON says it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from coterie.client.types import TopicPartition
from coterie.spark.offsets import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    AtOffsets,
    AtTime,
    AtTimes,
    Committed,
    Everywhere,
    offsets_of,
    parse_assignment,
    parse_numbers,
    times_to_list,
)

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)

numbers = st.dictionaries(
    st.builds(TopicPartition, st.text(min_size=1), st.integers(0, 2**31 - 1)), st.integers(-2, 2**63 - 1)
)


@given(numbers)
def test_what_spark_writes_is_read(offsets: dict[TopicPartition, int]) -> None:
    written: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        written.setdefault(topic, {})[str(partition)] = offset
    assert parse_numbers(json.dumps(written)) == offsets


def test_a_partition_named_twice_is_assigned_once() -> None:
    assert parse_assignment('{"t": [1, 0, 1]}') == (TWO, ONE)


def test_only_what_is_not_known_is_asked() -> None:
    assert times_to_list(Everywhere(LATEST), [ONE, TWO]) == {ONE: LATEST, TWO: LATEST}
    assert times_to_list(AtTime(5), [ONE]) == {ONE: 5}
    assert times_to_list(AtTimes({ONE: 5, TWO: 6}), [TWO]) == {TWO: 6}
    assert times_to_list(AtOffsets({ONE: 5, TWO: EARLIEST}), [ONE, TWO]) == {TWO: EARLIEST}
    assert times_to_list(Committed(), [ONE]) == {ONE: EARLIEST}


def test_answers_fill_what_was_asked_and_leave_what_was_given() -> None:
    assert offsets_of(AtOffsets({ONE: 5, TWO: EARLIEST}), [ONE, TWO], {TWO: 3}) == {ONE: 5, TWO: 3}
    assert offsets_of(AtTime(5), [ONE, TWO], {ONE: 7, TWO: NO_OFFSET}) == {ONE: 7, TWO: NO_OFFSET}
