"""Whoever makes topics and deletes groups: one request after the other, each until it is answered for good."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any

from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.apis import create_partitions, create_topics, delete_groups, find_coordinator
from coterie.protocol.messages import DeleteGroup
from coterie.sim.client import ANY, Client

__all__ = ["Admin"]

AGAIN_MS = 500
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


class Admin(Client):
    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self.requests: deque[_Request] = deque()
        self.topics: dict[str, int] = {}
        """As many partitions as it wants each topic to have."""
        self.deleted: set[str] = set()
        """Groups that it has asked to be deleted."""

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
            self._ask(None)

    def _ask(self, _about: object) -> None:
        module, request, _, says = self.requests[0]
        self.world.happened(self.name, says)
        group_id = self.is_deleting
        if group_id is None:
            self.ask(ANY, "", module, request, 30_000, self._done, None)
        else:  # looking for a coordinator is also what makes the topic in which groups are kept
            wanted = find_coordinator.Request(keys=[group_id])
            self.ask(ANY, "", find_coordinator, wanted, 30_000, self._found, None)

    def _found(self, _then: Any, answer: find_coordinator.Response | None, error: KafkaError | None) -> None:
        if error is not None or answer is None or answer.coordinators[0].error:
            self.later(AGAIN_MS, self._ask, None)
            return
        module, request, _, _ = self.requests[0]
        self.ask(answer.coordinators[0].node_id, "", module, request, 30_000, self._done, None)

    def _done(self, _then: Any, answer: Any, error: KafkaError | None) -> None:
        code = self.requests[0][2](answer) if error is None else error.code
        if error is None and code in DONE:
            self.requests.popleft()
            if self.requests:
                self._ask(None)
            return
        self.later(AGAIN_MS, self._ask, None)
