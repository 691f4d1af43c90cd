"""What there is to read: topics, partitions, offsets, and where a group is. The driver asks the cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from coterie.client.admin.group_admin import GroupsAdmin
from coterie.client.admin.results import checked
from coterie.client.admin.topic_admin import TopicsAdmin
from coterie.client.network.cluster import Cluster
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import NO_SUCH_TOPIC, CoterieError, ErrorCode, KafkaError
from coterie.spark.offset_limits import LATEST, NO_OFFSET, AtTime, AtTimes, Committed, Place, named, questions, settled
from coterie.spark.options import SourceOptions

__all__ = ["OffsetReader"]


class OffsetReader(TopicsAdmin, GroupsAdmin):
    """In the event loop it was made in."""

    def __init__(self, options: SourceOptions, cluster: Cluster | None = None) -> None:
        self.options = options
        self._cluster = cluster or Cluster(options.client)
        self._is_committed_only = options.client.reads_committed

    async def partitions(self) -> set[TopicPartition]:
        """All that the options mean and that are there now."""
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
        """The same, where a topic or partition that is named and not there is an error."""
        found = await self.partitions()
        missing = set(self.options.topics) - {each.topic for each in found}
        nowhere = [f'topic "{name}"' for name in missing] + [str(each) for each in set(self.options.assigned) - found]
        if nowhere:
            raise KafkaError.of(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"reading {', '.join(sorted(nowhere))}",
                "the cluster does not have it. Create it first, or look for a misspelling in subscribe or assign",
            )
        return found

    async def offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """For times, EARLIEST and LATEST: NO_OFFSET where there is no record so late."""
        found = checked(await self.list_offsets(asked, read_committed=self._is_committed_only))
        return {each: listed.offset for each, listed in found.items()}

    async def known_offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The same without those that are gone."""
        found = await self.list_offsets(asked, read_committed=self._is_committed_only)
        there = {
            each: one for each, one in found.items() if not (isinstance(one, KafkaError) and one.code in NO_SUCH_TOPIC)
        }
        return {each: listed.offset for each, listed in checked(there).items()}

    async def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where `startingOffsets` and its sisters begin."""
        place = self.options.start
        committed: Mapping[TopicPartition, OffsetAndMetadata] = {}
        if isinstance(place, Committed) and self.options.committed_of is not None:
            committed = await self.committed(self.options.committed_of, partitions)
        found = await self._at(place, [each for each in partitions if each not in committed], "starting")
        late = [each for each, offset in found.items() if offset == NO_OFFSET]
        if late and self.options.start_if_too_late == "error":
            raise CoterieError(
                f"{', '.join(map(str, sorted(late)))}: no record is as late as the starting time. Give an earlier one, "
                "or startingOffsetsByTimestampStrategy = latest to begin with what comes"
            )
        found |= await self.offsets(dict.fromkeys(late, LATEST))
        return found | {each: offset.offset for each, offset in committed.items()}

    async def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where `endingOffsets` and its sisters end."""
        found = await self._at(self.options.end, partitions, "ending")
        late = [each for each, offset in found.items() if offset == NO_OFFSET]
        return found | await self.offsets(dict.fromkeys(late, LATEST))

    async def _at(self, place: Place, partitions: Collection[TopicPartition], which: str) -> dict[TopicPartition, int]:
        names = named(place)
        if names is not None and set(partitions) != set(names):
            _refuse_names(names, partitions, which)
        found = await self.offsets(questions(place, partitions))
        offsets = settled(place, partitions, found)
        assert isinstance(place, AtTime | AtTimes) or NO_OFFSET not in offsets.values()
        return offsets

    async def committed(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Without those that the group has no offset for."""
        wanted = sorted(partitions)
        if not wanted:
            return {}
        found = checked(await self.list_group_offsets(group_id, wanted, require_stable=True))
        return {each: offset for each, offset in found.items() if offset is not None}

    async def close(self) -> None:
        await self._cluster.close()


def _refuse_names(names: Collection[TopicPartition], partitions: Collection[TopicPartition], which: str) -> None:
    """As in Spark: offsets that are given one by one are given for all, or a forgotten one would be read by chance."""
    lacking = sorted(set(partitions) - set(names))
    if lacking:
        raise CoterieError(
            f"the {which} offsets say nothing of {', '.join(map(str, lacking[:10]))}: name every partition that is "
            "read (-2 for the earliest offset, -1 for the latest)"
        )
    strange = sorted(set(names) - set(partitions))
    raise CoterieError(
        f"the {which} offsets name {', '.join(map(str, strange[:10]))}, which is not read or does not exist: "
        "look for a misspelling, or leave it out"
    )
