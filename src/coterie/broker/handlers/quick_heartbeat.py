"""The hot path, written out: a heartbeat as nine of ten clients send it, from its frame to the frame of its answer.

It skips the node's bookkeeping of a request, since there is nothing to wait for, and never a rule. A frame with
anything unusual is left to the plain path, errors included; a property test checks that both answer the same. So is a
heartbeat of a consumer group that changes anything (`coordinator/consumer/quick_heartbeat.py`).
"""

from __future__ import annotations

from coterie.broker.calls import Connection
from coterie.broker.handlers.consumer_group_apis import to_coordinator
from coterie.broker.security.authorizer import StandardAuthorizer
from coterie.coordinator.consumer import says_nothing_new
from coterie.coordinator.runtime import GroupCoordinator
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.apis import consumer_group_heartbeat, heartbeat
from coterie.protocol.frames import response_frame, usual_body_at
from coterie.protocol.messages import ConsumerGroupHeartbeat, Heartbeat

__all__ = ["HEARTBEAT", "QuickHeartbeat"]

VERSION = 4
_KEY, _CONSUMER_KEY = heartbeat.API.key, consumer_group_heartbeat.API.key
HEARTBEAT = (
    bytes((0, _KEY, 0, VERSION)),
    *(bytes((0, _CONSUMER_KEY, 0, version)) for version in consumer_group_heartbeat.API.versions),
)
"""The first bytes of such a frame: API key and version."""

_CORRELATION, _SAID = slice(4, 8), slice(8, None)
_BEFORE, _AFTER = 4, 8
_VERSION_AT = 3
_LONG = 1024
"""A frame that is longer than any heartbeat needs to be is not kept for comparison."""
_ANSWERS = {error: response_frame(0, heartbeat.write_response(error, VERSION), flexible=True) for error in ErrorCode}
_ENDS = {error: (answer[:_BEFORE], answer[_AFTER:]) for error, answer in _ANSWERS.items()}
"""The answer's bytes before and after the correlation id."""


class QuickHeartbeat:
    """Answers the heartbeats of one connection. A member sends the same again and again: that is not read twice."""

    __slots__ = (
        "_authorizer",
        "_connection",
        "_ends",
        "_interval_ms",
        "_meant",
        "_said",
        "_unchanged",
        "_unchanged_said",
        "_version",
    )

    def __init__(self, connection: Connection | None = None, authorizer: StandardAuthorizer | None = None) -> None:
        """Each heartbeat needs READ on its group if there is an authorizer. The plain path refuses it without."""
        self._connection = connection
        self._authorizer = authorizer
        self._said = b""
        self._meant: Heartbeat | None = None
        # the same for consumer groups, and the last answer: its interval, its bytes around the correlation id
        self._unchanged_said, self._version = b"", -1
        self._unchanged: ConsumerGroupHeartbeat | None = None
        self._interval_ms: int | None = None
        self._ends = (b"", b"")

    def answer(self, coordinator: GroupCoordinator, frame: bytes, now_ms: int) -> bytes | None:
        """The answer to a frame that begins with HEARTBEAT, or None: then nothing has been answered yet."""
        if len(frame) > _LONG:
            return None
        if frame[1] == _CONSUMER_KEY:
            return self._answer_unchanged(coordinator, frame, now_ms)
        try:
            said = frame[_SAID]
            if said != self._said:
                self._meant = _read(frame)
                self._said = said
            if self._meant is None or (self._authorizer is not None and not self._may(self._meant.group_id)):
                return None
            if self._meant.instance_id is not None and not coordinator.holds_instance(self._meant):
                return None  # it is refused, which is also a fact
            (reply,) = coordinator.handle(self._meant, now_ms)
        except Exception:  # noqa: BLE001  the plain way will say what is wrong, with the frame or with us
            return None
        before, after = _ENDS[reply.answer]  # type: ignore[union-attr]
        return before + frame[_CORRELATION] + after

    def _answer_unchanged(self, coordinator: GroupCoordinator, frame: bytes, now_ms: int) -> bytes | None:
        try:
            said = frame[_SAID]
            if said != self._unchanged_said or frame[_VERSION_AT] != self._version:
                self._unchanged_said, self._version = said, frame[_VERSION_AT]
                self._unchanged, self._interval_ms = None, None  # so it stays if the frame cannot be read
                self._unchanged = self._read_unchanged(frame)
            unchanged = self._unchanged
            if unchanged is None or (self._authorizer is not None and not self._may(unchanged.group_id)):
                return None
            interval_ms = coordinator.quick_heartbeat(unchanged, now_ms)
        except Exception:  # noqa: BLE001  as above
            return None
        if interval_ms is None:
            if self._connection is not None:  # the plain path need not read it again, and keeps it
                self._connection.heartbeat = frame, unchanged
                self._unchanged, self._unchanged_said = None, b""
            return None
        if interval_ms != self._interval_ms:
            self._interval_ms, self._ends = interval_ms, _unchanged_ends(unchanged, interval_ms, self._version)
        before, after = self._ends
        return before + frame[_CORRELATION] + after

    def _read_unchanged(self, frame: bytes) -> ConsumerGroupHeartbeat | None:
        version = frame[_VERSION_AT]
        if not consumer_group_heartbeat.may_say_nothing_new(frame, version):
            return None  # it may be news, which is not read twice
        at = usual_body_at(frame)
        if at is None or self._connection is None:
            return None
        said = consumer_group_heartbeat.read_request(frame, at, version)
        request = to_coordinator(said, None, frame, self._connection.host, version)
        return request if says_nothing_new(request) else None

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
    at = usual_body_at(frame)
    return None if at is None else heartbeat.read_request(frame, at, VERSION, None)


def _unchanged_ends(request: ConsumerGroupHeartbeat, interval_ms: int, version: int) -> tuple[bytes, bytes]:
    """Return the bytes of the answer to a heartbeat that changes nothing, before and after the correlation id."""
    response = consumer_group_heartbeat.Response(
        member_id=request.member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=interval_ms
    )
    answer = response_frame(0, consumer_group_heartbeat.write_response(response, version), flexible=True)
    return answer[:_BEFORE], answer[_AFTER:]
