"""Where in a topic a read begins or ends, as Spark's Kafka source writes it; pure.

Spark's JSON: `{"orders": {"0": 23, "1": -2}}`, with -2 for the earliest and -1 for the latest offset; the same shape
with milliseconds for times; `{"orders": [0, 1]}` for `assign`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coterie.client.types import TopicPartition
from coterie.errors import MalformedError
from coterie.protocol.apis.list_offsets import EARLIEST, LATEST  # in Spark's JSON they are the same

__all__ = [
    "EARLIEST",
    "LATEST",
    "NO_OFFSET",
    "AtOffsets",
    "AtTime",
    "AtTimes",
    "Committed",
    "Everywhere",
    "Place",
    "named",
    "parse_assignment",
    "parse_numbers",
    "questions",
    "settled",
]

NO_OFFSET = -1
"""What ListOffsets answers for a time that no record has reached."""


@dataclass(frozen=True, slots=True)
class Everywhere:
    """EARLIEST or LATEST, in every partition."""

    which: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Of each partition its own; EARLIEST and LATEST among them."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after this time, in every partition."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    timestamps: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Committed:
    """Where the group is; in partitions it has no offset for, at the earliest, so that nothing is passed over."""


Place = Everywhere | AtOffsets | AtTime | AtTimes | Committed


def named(place: Place) -> Collection[TopicPartition] | None:
    """The partitions a place names one by one; None if it is for all there are."""
    match place:
        case AtOffsets(offsets):
            return offsets.keys()
        case AtTimes(timestamps):
            return timestamps.keys()
    return None


def questions(place: Place, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """What ListOffsets is to be asked: a time, EARLIEST or LATEST. Partitions whose offset is given are not asked."""
    match place:
        case Everywhere(which):
            return dict.fromkeys(partitions, which)
        case AtTime(timestamp_ms):
            return dict.fromkeys(partitions, timestamp_ms)
        case AtTimes(timestamps):
            return {each: timestamps[each] for each in partitions}
        case AtOffsets(offsets):
            return {each: offsets[each] for each in partitions if offsets[each] < 0}
        case Committed():
            return dict.fromkeys(partitions, EARLIEST)


def settled(
    place: Place, partitions: Iterable[TopicPartition], found: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offsets, once `questions` are answered; NO_OFFSET where a time has not been reached."""
    if isinstance(place, AtOffsets):
        return {each: found.get(each, place.offsets[each]) for each in partitions}
    return {each: found[each] for each in partitions}


def parse_numbers(text: str) -> dict[TopicPartition, int]:
    """`{"orders": {"0": 23}}`; MalformedError says what is wrong with it."""
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _object(_json(text), "topics").items():
        for partition, number in _object(numbers, f'the partitions of "{topic}"').items():
            if isinstance(number, bool) or not isinstance(number, int):
                raise MalformedError(f'"{topic}" partition {partition} has {number!r}: a whole number belongs there')
            found[_partition(topic, partition)] = number
    return found


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """`{"orders": [0, 1]}`."""
    found: dict[TopicPartition, None] = {}
    for topic, partitions in _object(_json(text), "topics").items():
        if not isinstance(partitions, list):
            raise MalformedError(f'"{topic}" has {partitions!r}: a list of partitions belongs there, as in [0, 1]')
        for partition in partitions:
            if isinstance(partition, bool) or not isinstance(partition, int):
                raise MalformedError(f'"{topic}" has partition {partition!r}: a whole number belongs there')
            found[_partition(topic, str(partition))] = None
    return tuple(found)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise MalformedError(f"it is not JSON: {error}") from None
    except RecursionError:
        raise MalformedError("it is JSON nested without end") from None


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedError(f"{what} are to be a JSON object, and it has {value!r}")
    return value


def _partition(topic: str, partition: str) -> TopicPartition:
    if not partition.isascii() or not partition.isdigit() or int(partition) > 2**31 - 1:
        raise MalformedError(f'"{topic}" has no partition {partition!r}: partitions are whole numbers from 0')
    return TopicPartition(topic, int(partition))
