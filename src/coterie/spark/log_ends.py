"""Where partitions end, asked again and again. An idle query asks all the time, and mostly nothing has changed.

So a request is written once for the same partitions, and a response is read only if it is not the one before, byte for
byte. What a look costs then is the work of the broker. The more work it is, the rarer are the looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import cast

from coterie.client.admin.results import by_topic
from coterie.client.network.metadata import NO_LEADER, Metadata
from coterie.client.network.network_client import NetworkClient
from coterie.client.types import TopicPartition
from coterie.errors import KafkaError
from coterie.protocol.api import READ_COMMITTED, READ_UNCOMMITTED
from coterie.protocol.apis import list_offsets
from coterie.spark.offsets import LATEST, OffsetReader

__all__ = ["LogEnds"]

PAUSE = 10
"""A look that found nothing new is followed by a pause of so many times its length."""
LONGEST_PAUSE_S = 0.5


class LogEnds:
    """The ends of partitions as they were at the last look."""

    def __init__(self, reader: OffsetReader) -> None:
        self._reader = reader
        self._for: tuple[Collection[TopicPartition], Metadata] | None = None
        """The partitions and the metadata that the requests were written for."""
        self._leaders: dict[TopicPartition, int] = {}
        self._asked: dict[int, _Asked] = {}
        self._next_look_at = 0.0
        self.known: Mapping[TopicPartition, int] = {}

    async def pause(self) -> None:
        """Wait until it is time for the next look. A query whose last look found something does not wait."""
        await asyncio.sleep(max(0.0, self._next_look_at - asyncio.get_running_loop().time()))

    async def look(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where they end now, without those that do not exist; the same object if nothing has changed."""
        clock = asyncio.get_running_loop().time
        began = clock()
        found = await self._ask(partitions)
        if found is None:
            found = await self._reader.known_offsets(dict.fromkeys(partitions, LATEST))
        if found is not self.known and found != self.known:
            self.known = found
            self._next_look_at = 0.0
        else:
            self._next_look_at = clock() + min(PAUSE * (clock() - began), LONGEST_PAUSE_S)
        return self.known

    async def _ask(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        """Ask all leaders, once. None if one of them did not answer, or not for all of its partitions."""
        self._prepare(partitions)
        if NO_LEADER in self._asked:
            return None
        before = [asked.response for asked in self._asked.values()]
        try:
            await asyncio.gather(*(asked.send(self._reader.cluster) for asked in self._asked.values()))
        except KafkaError:
            return None
        responses = [asked.response for asked in self._asked.values()]
        if before and all(old is new for old, new in zip(before, responses, strict=True)):
            return self.known
        listed = [(topic.name, each) for one in responses if one for topic in one.topics for each in topic.partitions]
        if len(listed) < len(self._leaders) or any(each.error for _, each in listed):
            self._asked, self._for = {}, None  # an error is not remembered as what was there before
            return None
        return {TopicPartition(name, each.partition): each.offset for name, each in listed}

    def _prepare(self, partitions: Collection[TopicPartition]) -> None:
        """Write the requests, unless partitions and leaders are the same as before."""
        metadata = self._reader.cluster.metadata
        if self._for is not None and self._for[0] is partitions and self._for[1] is metadata:
            return
        leaders = {each: metadata.leader(*each) for each in partitions}
        if self._for is None or leaders != self._leaders:
            its: dict[int, list[TopicPartition]] = {}
            for each, node in leaders.items():
                its.setdefault(node, []).append(each)
            level = READ_COMMITTED if self._reader.is_committed_only else READ_UNCOMMITTED
            timeout_ms = self._reader.options.client.request_timeout_ms
            self._asked = {node: _Asked(node, some, level, timeout_ms) for node, some in its.items()}
            self._leaders = leaders
        self._for = partitions, metadata


class _Asked:
    """A request to one leader, and its last response. It stands in for the module of the API when it is sent."""

    API = list_offsets.API

    def __init__(self, node: int, partitions: Collection[TopicPartition], level: int, timeout_ms: int) -> None:
        topics = [
            list_offsets.Topic(
                name=name,
                partitions=[list_offsets.Partition(partition=each.partition, timestamp=LATEST) for each in its],
            )
            for name, its in by_topic(partitions)
        ]
        self._node = node
        self._request = list_offsets.Request(isolation_level=level, topics=topics, timeout_ms=timeout_ms)
        self._written: tuple[int, bytes] | None = None
        self._read = b""
        self.response: list_offsets.Response | None = None

    async def send(self, cluster: NetworkClient) -> None:
        await cluster.send(self._node, cast(ModuleType, self), self._request)

    def write_request(self, request: list_offsets.Request, version: int) -> bytes:
        if self._written is None or self._written[0] != version:
            self._written = version, list_offsets.write_request(request, version)
        return self._written[1]

    def read_response(self, frame: bytes, at: int, version: int) -> list_offsets.Response:
        body = frame[at:]
        if self.response is None or body != self._read:
            self._read, self.response = body, list_offsets.read_response(frame, at, version)
        return self.response
