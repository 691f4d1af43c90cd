"""An administrator makes topics and deletes groups: one request after the other, each until it is answered for good."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any

from coterie.client.network.network_client import NetworkClient
from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.apis import create_partitions, create_topics, delete_groups
from coterie.protocol.messages import DeleteGroup
from coterie.sim.client import Client

__all__ = ["AdminProcess"]

AGAIN_S = 0.5
DONE = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)

_Request = tuple[ModuleType, Any, Callable[[Any], ErrorCode], str]


class AdminProcess(Client):
    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self.requests: deque[_Request] = deque()
        self.topics: dict[str, int] = {}
        """As many partitions as it wants each topic to have."""
        self.deleted: set[str] = set()
        """Groups that it has asked to be deleted."""
        self._cluster: NetworkClient | None = None

    def create_topic(self, name: str, partitions: int) -> None:
        self.topics[name] = partitions
        new = create_topics.NewTopic(name=name, num_partitions=partitions, replication_factor=1)
        request = create_topics.Request(topics=[new])
        self._enqueue(
            create_topics, request, lambda answer: answer.topics[0].error, f"creates {name} with {partitions}"
        )

    def grow_topic(self, name: str, partitions: int) -> None:
        if partitions > self.topics.get(name, partitions):
            self.topics[name] = partitions
            request = create_partitions.Request(topics=[create_partitions.Topic(name=name, count=partitions)])
            self._enqueue(
                create_partitions, request, lambda answer: answer.results[0].error, f"grows {name} to {partitions}"
            )

    def delete_group(self, group_id: str) -> None:
        self.deleted.add(group_id)
        self._enqueue(
            delete_groups, [DeleteGroup(None, group_id)], lambda answer: answer[0][1], f"deletes group {group_id}"
        )

    @property
    def is_deleting(self) -> str | None:
        """The group that it has asked to be deleted, and has not been answered yet."""
        if self.requests and self.requests[0][0] is delete_groups:
            group_id: str = self.requests[0][1][0].group_id
            return group_id
        return None

    @property
    def is_done(self) -> bool:
        return not self.requests

    def _enqueue(self, module: ModuleType, request: Any, error_of: Callable[[Any], ErrorCode], says: str) -> None:
        self.requests.append((module, request, error_of, says))
        if len(self.requests) == 1:
            self.begin()

    async def live(self) -> None:
        self._cluster = self._cluster or self.cluster()
        while self.requests:
            module, request, error_of, says = self.requests[0]
            self.world.happened(self.name, says)
            try:
                group_id = self.is_deleting
                # looking for a coordinator is also what makes the topic in which groups are kept
                node_id = (await self._cluster.find_coordinator(group_id)).id if group_id is not None else None
                code = error_of(await self._cluster.send(node_id, module, request))
            except KafkaError as error:
                code = error.code or ErrorCode.UNKNOWN_SERVER_ERROR
            if code in DONE:
                self.requests.popleft()
            else:
                await asyncio.sleep(AGAIN_S)
