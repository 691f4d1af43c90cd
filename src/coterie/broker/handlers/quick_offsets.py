"""Commits and fetches of offsets as most clients send them, from the frame to the coordinator without a detour.

This skips what the plain path (`group_apis.py`) does for every request, and no rule. What is unusual about a request is
left to the plain path, errors included: other versions, tagged fields, several topics, metadata, an instance id, a
partition that does not exist, a client without the right, a group that is not a Stable classic one. A property test
holds both paths equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coterie.broker.broker_effects import Effects, Send
from coterie.broker.calls import Call, Connection, Route
from coterie.broker.group_service import GroupService
from coterie.broker.metadata_cache import MetadataCache
from coterie.broker.security.authorizer import StandardAuthorizer
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.apis import offset_commit, offset_fetch
from coterie.protocol.commit_rows import CommitRows, read_usual_commit
from coterie.protocol.frames import response_frame, usual_body_at

__all__ = ["Quick", "QuickOffsets"]

Quick = Callable[[Connection, bytes, int], Effects | None]
"""Handles a request of a connection that has none under way; None: nothing has been done, and the plain path must."""
_COMMIT_VERSIONS = range(offset_commit.API.flexible, offset_commit.BY_ID)
_FETCH_VERSIONS = range(offset_fetch.MANY, offset_fetch.BY_ID)
_SHORTEST = 12
"""Bytes of a header with one byte of a body."""


class QuickOffsets:
    def __init__(
        self,
        routes: Mapping[int, Route],
        groups: GroupService,
        metadata: MetadataCache,
        authorizer: StandardAuthorizer | None,
    ) -> None:
        self._groups = groups
        self._coordinator = groups.coordinator
        self._topics = metadata.topics
        self._authorizer = authorizer
        self._route = routes[offset_commit.API.key]

    def handlers(self) -> Mapping[bytes, Quick]:
        """Return who handles which requests, by their API key and version as they are in a frame."""
        commits = {bytes((0, offset_commit.API.key, 0, version)): self._commit for version in _COMMIT_VERSIONS}
        fetches = {bytes((0, offset_fetch.API.key, 0, version)): self._fetch for version in _FETCH_VERSIONS}
        return {**commits, **fetches}

    def _commit(self, connection: Connection, frame: bytes, now_ms: int) -> Effects | None:
        at = usual_body_at(frame) if len(frame) >= _SHORTEST else None
        usual = None if at is None else read_usual_commit(frame, at)
        if usual is None:
            return None
        group_id, generation_id, member_id, instance_id, name, rows, numbers, lowest, highest = usual
        topic = self._topics.get(name)
        if (
            topic is None
            or lowest < 0
            or highest >= topic.partitions
            or instance_id is not None
            or (self._authorizer is not None and not self._may(connection, AclOperation.READ, group_id, name))
        ):
            return None
        call = Call(connection, self._route, frame[3], int.from_bytes(frame[4:8], "big", signed=True))
        of = CommitRows(topic.name, topic.id, rows, numbers, lowest, highest)
        effects = self._coordinator.quick_commit(group_id, generation_id, member_id, of, call, now_ms)
        if effects is None:
            return None
        connection.call = call
        return self._groups.perform(effects, now_ms) if effects else []

    def _fetch(self, connection: Connection, frame: bytes, _now_ms: int) -> Effects | None:
        at = usual_body_at(frame) if len(frame) >= _SHORTEST else None
        usual = None if at is None else offset_fetch.read_usual(frame, at, frame[3])
        if usual is None:
            return None
        group_id, (name, numbers), require_stable, _, _ = usual
        if self._authorizer is not None and not self._may(connection, AclOperation.DESCRIBE, group_id, name):
            return None
        rows = self._coordinator.quick_fetch(group_id, name, numbers, require_stable=require_stable)
        if rows is None:
            return None
        correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        body = offset_fetch.write_usual(group_id, rows)
        return [Send(connection, response_frame(correlation_id, body, flexible=True))]

    def _may(self, connection: Connection, operation: AclOperation, group_id: str, topic: str) -> bool:
        """Return whether the client has a right to group and topic. A denial is logged by the plain path."""
        authorizer = self._authorizer
        assert authorizer is not None
        principal, host = connection.principal, connection.host
        return authorizer.authorize(
            principal, host, operation, AclResourceType.GROUP, group_id
        ) and authorizer.authorize(principal, host, operation, AclResourceType.TOPIC, topic)
