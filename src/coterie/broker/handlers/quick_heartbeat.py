"""The hot path, written out: a heartbeat as nine of ten clients send it, from its frame to the frame of its answer.

It skips the node's bookkeeping of a request, since there is nothing to wait for, and never a rule. A frame with
anything unusual is left to the plain path, errors included; a property test checks that both answer the same.
"""

from __future__ import annotations

from coterie.broker.calls import Connection
from coterie.broker.security.authorizer import StandardAuthorizer
from coterie.coordinator.runtime import GroupCoordinator
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.apis import heartbeat
from coterie.protocol.frames import response_frame
from coterie.protocol.messages import Heartbeat

__all__ = ["HEARTBEAT", "QuickHeartbeat"]

VERSION = 4
HEARTBEAT = bytes((0, heartbeat.API.key, 0, VERSION))
"""How such a frame begins: API key and version."""

_CORRELATION, _SAID = slice(4, 8), slice(8, None)
_BEFORE, _AFTER = 4, 8
_LONG = 1024
"""What is longer than any heartbeat's frame need be is not kept for comparison."""
_ANSWERS = {error: response_frame(0, heartbeat.write_response(error, VERSION), flexible=True) for error in ErrorCode}
_ENDS = {error: (answer[:_BEFORE], answer[_AFTER:]) for error, answer in _ANSWERS.items()}
"""The answer's bytes before and after the correlation id."""


class QuickHeartbeat:
    """Answers the heartbeats of one connection. A member sends the same again and again: that is not read twice."""

    __slots__ = ("_authorizer", "_connection", "_meant", "_said")

    def __init__(self, connection: Connection | None = None, authorizer: StandardAuthorizer | None = None) -> None:
        """Each heartbeat needs READ on its group if there is an authorizer. The plain path refuses it without."""
        self._connection = connection
        self._authorizer = authorizer
        self._said = b""
        self._meant: Heartbeat | None = None

    def answer(self, coordinator: GroupCoordinator, frame: bytes, now_ms: int) -> bytes | None:
        """The answer to a frame that begins with HEARTBEAT, or None: then nothing has been answered yet."""
        if len(frame) > _LONG:
            return None
        try:
            said = frame[_SAID]
            if said != self._said:
                self._meant = _read(frame)
                self._said = said
            if self._meant is None or (self._authorizer is not None and not self._may(self._meant.group_id)):
                return None
            (reply,) = coordinator.handle(self._meant, now_ms)
        except Exception:  # noqa: BLE001  the plain way will say what is wrong, with the frame or with us
            return None
        before, after = _ENDS[reply.answer]  # type: ignore[union-attr]
        return before + frame[_CORRELATION] + after

    def _may(self, group_id: str) -> bool:
        connection = self._connection
        return (
            connection is not None
            and self._authorizer is not None
            and self._authorizer.authorize(
                connection.principal, connection.host, AclOperation.READ, AclResourceType.GROUP, group_id
            )
        )


def _read(frame: bytes) -> Heartbeat | None:
    at = 11 + (frame[8] << 8 | frame[9])  # behind the client's id, and a byte: no tagged fields
    if frame[8] >= 0x80 or frame[at - 1]:
        return None
    return heartbeat.read_request(frame, at, VERSION, None)
