"""The offsets at which a read begins and ends: the values that options can have, and the cluster's answers for them.

Spark's Kafka source writes offsets as JSON: `{"orders": {"0": 23, "1": -2}}`, with -2 for the earliest and -1 for the
latest offset. Times have the same shape, in milliseconds. `assign` is `{"orders": [0, 1]}`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coterie.client.admin.group_admin import GroupsAdmin
from coterie.client.admin.results import checked
from coterie.client.admin.topic_admin import TopicsAdmin
from coterie.client.network.network_client import NetworkClient
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import NO_SUCH_TOPIC, CoterieError, ErrorCode, KafkaError, MalformedError
from coterie.protocol.apis.list_offsets import EARLIEST, LATEST  # in Spark's JSON they are the same

if TYPE_CHECKING:
    from coterie.spark.options import SourceOptions

__all__ = [
    "EARLIEST",
    "LATEST",
    "NO_OFFSET",
    "AtOffsets",
    "AtTime",
    "AtTimes",
    "Committed",
    "Everywhere",
    "OffsetLimit",
    "OffsetReader",
    "offsets_of",
    "parse_assignment",
    "parse_numbers",
    "times_to_list",
]

NO_OFFSET = -1
"""The answer of ListOffsets for a time that is later than every record."""


@dataclass(frozen=True, slots=True)
class Everywhere:
    """EARLIEST or LATEST, in every partition."""

    which: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; it may be EARLIEST or LATEST."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after this time, in every partition."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record at or after a time, one time for each partition."""

    timestamps: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed offsets of the group; the earliest offset in partitions that it has none for."""


OffsetLimit = Everywhere | AtOffsets | AtTime | AtTimes | Committed


def times_to_list(limit: OffsetLimit, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return what to ask ListOffsets: a time, EARLIEST or LATEST. Partitions with a given offset are not asked for."""
    match limit:
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


def offsets_of(
    limit: OffsetLimit, partitions: Iterable[TopicPartition], listed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return all offsets, given what was listed for `times_to_list`; NO_OFFSET if no record is as late as the time."""
    if isinstance(limit, AtOffsets):
        return {each: listed.get(each, limit.offsets[each]) for each in partitions}
    return {each: listed[each] for each in partitions}


# --- Spark's JSON -----------------------------------------------------------------------------------------------------


def parse_numbers(text: str) -> dict[TopicPartition, int]:
    """Read `{"orders": {"0": 23}}`. MalformedError says what is wrong with the text."""
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _object(_json(text), "topics").items():
        for partition, number in _object(numbers, f'the partitions of "{topic}"').items():
            if isinstance(number, bool) or not isinstance(number, int):
                raise MalformedError(f'"{topic}" partition {partition} has {number!r}: a whole number belongs there')
            found[_partition(topic, partition)] = number
    return found


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Read `{"orders": [0, 1]}`."""
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
        raise MalformedError("the JSON is nested too deeply") from None


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedError(f"{what} must be a JSON object, not {value!r}")
    return value


def _partition(topic: str, partition: str) -> TopicPartition:
    if not partition.isascii() or not partition.isdigit() or int(partition) > 2**31 - 1:
        raise MalformedError(f'"{topic}" has no partition {partition!r}: partitions are whole numbers from 0')
    return TopicPartition(topic, int(partition))


# --- what the cluster has ---------------------------------------------------------------------------------------------


class OffsetReader(TopicsAdmin, GroupsAdmin):
    """Asks the cluster for partitions and offsets, in the event loop that it was created in."""

    def __init__(self, options: SourceOptions, cluster: NetworkClient | None = None) -> None:
        self.options = options
        self._cluster = cluster or NetworkClient(options.client)
        self.is_committed_only = options.client.reads_committed

    @property
    def cluster(self) -> NetworkClient:
        """The connections; `close` closes them."""
        return self._cluster

    async def partitions(self) -> set[TopicPartition]:
        """Return all partitions that the options name and that exist now."""
        options = self.options
        if options.pattern is not None:
            known = await self._cluster.refresh(None)
            names = {name for name, topic in known.topics.items() if self._matches(name, topic.is_internal)}
        else:
            names = set(options.topics) or {each.topic for each in options.assigned}
            known = await self._cluster.refresh(names)
        found = {
            TopicPartition(name, number)
            for name in names
            if (topic := known.topics.get(name)) is not None and not topic.error
            for number in topic.partitions
        }
        return found.intersection(options.assigned) if options.assigned else found

    def _matches(self, name: str, is_internal: bool) -> bool:
        assert self.options.pattern is not None
        if is_internal and self.options.client.exclude_internal_topics:
            return False
        return self.options.pattern.fullmatch(name) is not None

    async def existing_partitions(self) -> set[TopicPartition]:
        """Return the same as `partitions`. A named topic or partition that does not exist is an error."""
        found = await self.partitions()
        missing = set(self.options.topics) - {each.topic for each in found}
        names = [f'topic "{name}"' for name in missing] + [str(each) for each in set(self.options.assigned) - found]
        if names:
            raise KafkaError.of(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"reading {', '.join(sorted(names))}",
                "the cluster does not have it. Create it first, or look for a misspelling in subscribe or assign",
            )
        return found

    async def offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets for times, EARLIEST or LATEST; NO_OFFSET if there is no record as late as the time."""
        found = checked(await self.list_offsets(asked, read_committed=self.is_committed_only))
        return {each: listed.offset for each, listed in found.items()}

    async def known_offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the same as `offsets`, without partitions that do not exist any more."""
        found = await self.list_offsets(asked, read_committed=self.is_committed_only)
        there = {
            each: one for each, one in found.items() if not (isinstance(one, KafkaError) and one.code in NO_SUCH_TOPIC)
        }
        return {each: listed.offset for each, listed in checked(there).items()}

    async def log_ends(self) -> dict[TopicPartition, int]:
        """Return where each of the `partitions` ends now."""
        return await self.known_offsets(dict.fromkeys(await self.partitions(), LATEST))

    async def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets at which a new query begins, by `startingOffsets` and the options like it."""
        limit = self.options.start
        committed: Mapping[TopicPartition, OffsetAndMetadata] = {}
        if isinstance(limit, Committed) and self.options.committed_of is not None:
            committed = await self.committed(self.options.committed_of, partitions)
        found = await self._at(limit, [each for each in partitions if each not in committed], "starting")
        late = [each for each, offset in found.items() if offset == NO_OFFSET]
        if late and self.options.start_if_too_late == "error":
            raise CoterieError(
                f"{', '.join(map(str, sorted(late)))}: no record is as late as the starting time. Give an earlier one, "
                "or startingOffsetsByTimestampStrategy = latest to begin with what comes"
            )
        found |= await self.offsets(dict.fromkeys(late, LATEST))
        return found | {each: offset.offset for each, offset in committed.items()}

    async def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets before which a batch query ends, by `endingOffsets` and the options like it."""
        found = await self._at(self.options.end, partitions, "ending")
        late = [each for each, offset in found.items() if offset == NO_OFFSET]
        return found | await self.offsets(dict.fromkeys(late, LATEST))

    async def _at(
        self, limit: OffsetLimit, partitions: Collection[TopicPartition], which: str
    ) -> dict[TopicPartition, int]:
        match limit:
            case AtOffsets(named) | AtTimes(named):
                _check_names(named.keys(), partitions, which)
        offsets = offsets_of(limit, partitions, await self.offsets(times_to_list(limit, partitions)))
        assert isinstance(limit, AtTime | AtTimes) or NO_OFFSET not in offsets.values()
        return offsets

    async def committed(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of the group, without partitions that it has none for."""
        wanted = sorted(partitions)
        if not wanted:
            return {}
        found = checked(await self.list_group_offsets(group_id, wanted, require_stable=True))
        return {each: offset for each, offset in found.items() if offset is not None}

    async def close(self) -> None:
        await self._cluster.close()


def _check_names(names: Collection[TopicPartition], partitions: Collection[TopicPartition], which: str) -> None:
    """Refuse offsets that are not for exactly the partitions that are read, as Spark does."""
    missing = sorted(set(partitions) - set(names))
    if missing:
        raise CoterieError(
            f"the {which} offsets do not name {', '.join(map(str, missing[:10]))}: name every partition that is read "
            "(-2 for the earliest offset, -1 for the latest)"
        )
    unknown = sorted(set(names) - set(partitions))
    if unknown:
        raise CoterieError(
            f"the {which} offsets name {', '.join(map(str, unknown[:10]))}, which is not read or does not exist: "
            "look for a misspelling, or leave it out"
        )
