"""Joins and syncs as most members send them in a rebalance, from the frame to the coordinator without a detour.

This skips what the plain path (`group_apis.py`) does for every request, and no rule. What is unusual about a request is
left to the plain path, errors of reading and of rights included: other versions, tagged fields, newcomers, static
members. A property test holds both paths equal.
"""

from __future__ import annotations

from collections.abc import Mapping

from coterie.broker.broker_effects import Effects
from coterie.broker.calls import Call, Connection, Route
from coterie.broker.group_service import GroupService
from coterie.broker.handlers.quick_offsets import Quick
from coterie.broker.security.authorizer import StandardAuthorizer
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.apis import join_group, sync_group
from coterie.protocol.frames import usual_body_at

__all__ = ["QuickRejoins"]

_JOIN_VERSIONS = range(join_group.API.flexible, join_group.API.versions[-1] + 1)
_SYNC_VERSION = 5
_SHORTEST = 12
"""Bytes of a header with one byte of a body."""
_CLIENT_ID_AT = 10


class QuickRejoins:
    def __init__(
        self, routes: Mapping[int, Route], groups: GroupService, authorizer: StandardAuthorizer | None
    ) -> None:
        self._groups = groups
        self._quick = groups.coordinator.quick_rejoin
        self._authorizer = authorizer
        self._join_route = routes[join_group.API.key]
        self._sync_route = routes[sync_group.API.key]

    def handlers(self) -> Mapping[bytes, Quick]:
        """Return who handles which requests, by their API key and version as they are in a frame."""
        joins = {bytes((0, join_group.API.key, 0, version)): self._join for version in _JOIN_VERSIONS}
        return {**joins, bytes((0, sync_group.API.key, 0, _SYNC_VERSION)): self._sync}

    def _join(self, connection: Connection, frame: bytes, now_ms: int) -> Effects | None:
        at = usual_body_at(frame) if len(frame) >= _SHORTEST else None
        if at is None:
            return None
        version = frame[3]
        call = Call(connection, self._join_route, version, int.from_bytes(frame[4:8], "big", signed=True))
        client_id = frame[_CLIENT_ID_AT : at - 1].decode("utf-8", "replace")
        request = join_group.read_usual(frame, at, version, call, client_id, f"/{connection.host}")
        if request is None or (self._authorizer is not None and not self._may(connection, request.group_id)):
            return None
        effects = self._quick(request, now_ms)
        if effects is None:
            return None
        connection.call = call
        return self._groups.perform(effects, now_ms) if effects else []

    def _sync(self, connection: Connection, frame: bytes, now_ms: int) -> Effects | None:
        at = usual_body_at(frame) if len(frame) >= _SHORTEST else None
        if at is None:
            return None
        call = Call(connection, self._sync_route, _SYNC_VERSION, int.from_bytes(frame[4:8], "big", signed=True))
        request = sync_group.read_usual(frame, at, call)
        if request is None or (self._authorizer is not None and not self._may(connection, request.group_id)):
            return None
        effects = self._quick(request, now_ms)
        if effects is None:
            return None
        connection.call = call
        return self._groups.perform(effects, now_ms) if effects else []

    def _may(self, connection: Connection, group_id: str) -> bool:
        """Return whether the client has a right to the group. A denial is logged by the plain path."""
        assert self._authorizer is not None
        return self._authorizer.authorize(
            connection.principal, connection.host, AclOperation.READ, AclResourceType.GROUP, group_id
        )
