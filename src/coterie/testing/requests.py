"""The requests that clients sent, decoded, and what the broker answered.

A request is kept as it was received, and decoded when a test reads it. Only the last ones are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Any
from uuid import UUID

from coterie.errors import CoterieError, ErrorCode, MalformedError
from coterie.protocol.apis import APIS, FIRST_FLEXIBLE, Api, by_key
from coterie.protocol.codec.codec import codec
from coterie.protocol.frames import client_id_of, read_request_header, read_response_header
from coterie.structs import default_of, field_names, is_data

MOST_REQUESTS = 10_000
MOST_BYTES = 32 << 20
"""The most bytes of requests that are kept."""
LARGE_ANSWER = 64 << 10
"""A larger answer is not kept."""

_API_NAMES = {api.name.lower(): api for api in APIS}


def nearest(name: str, known: Sequence[str]) -> str:
    """Return a hint with the name that was probably meant, or all names."""
    by_lower = {one.lower(): one for one in known}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return f"did you mean {by_lower[found[0]]}?" if found else f"it is one of {', '.join(known)}"


def api_named(name: str) -> Api:
    """Return an API by its name in Kafka; case does not matter."""
    found = _API_NAMES.get(str(name).lower())
    if found is None:
        raise CoterieError(f"there is no API {name!r}: {nearest(str(name), [api.name for api in APIS])}")
    return found


def error_named(error: str | ErrorCode) -> ErrorCode:
    """Return an error code by its name in Kafka, such as NOT_COORDINATOR."""
    if isinstance(error, ErrorCode):
        return error
    found = ErrorCode.__members__.get(str(error).upper())
    if found is None:
        raise CoterieError(f"there is no error {error!r}: {nearest(str(error), list(ErrorCode.__members__))}")
    return found


def message_of(api: Api, kind: str) -> type:
    """Return the class of an API's request or response as it is on the wire."""
    found = getattr(api.module, f"_{kind}", None) or getattr(api.module, kind)
    assert isinstance(found, type)
    return found


def codec_of(api: Api, kind: str) -> tuple[Callable[[bytes, int, int], Any], Callable[[Any, int], bytes]]:
    """Return what reads and writes the requests (`Request`) or responses (`Response`) of an API."""
    return _codec_of(api.key, kind)


@cache
def _codec_of(key: int, kind: str) -> tuple[Callable[[bytes, int, int], Any], Callable[[Any, int], bytes]]:
    return codec(by_key[key], message_of(by_key[key], kind))


@dataclass(slots=True, eq=False)
class Request:
    """A request that a client sent to the broker, and the answer to it."""

    api: str
    """The name of the API, such as `OffsetCommit`."""
    version: int
    client_id: str
    """The client id; "" if the client sent none."""
    host: str
    """The address of the client."""
    at_ms: int
    """When it arrived, by the broker's clock."""
    node: int
    """The number of the node that it was sent to."""
    state: str
    """The state of its group at that time; "" if it names no group."""
    fault: str = ""
    """What a fault did to it; "" if none did."""
    _frame: bytes = field(default=b"", repr=False)
    _body_at: int = field(default=0, repr=False)
    _answer: bytes | None = field(default=None, repr=False)
    _names: Mapping[UUID, str] = field(default_factory=dict, repr=False)
    _body: Any = field(default=None, repr=False)

    def __repr__(self) -> str:
        who = self.instance or self.client_id or self.host
        answered = f" -> {self.error}" if self.error else ""
        said = ", ".join(f"{name}={_short(value)}" for name, value in _said(self.body))
        return f"<{self.api} v{self.version} of {who}: {said}{answered}{f' [{self.fault}]' if self.fault else ''}>"

    @property
    def body(self) -> Any:
        """The decoded request, an object with the fields of Kafka's protocol, such as `group_id`."""
        if self._body is None:
            self._body = codec_of(api_named(self.api), "Request")[0](self._frame, self._body_at, self.version)
        return self._body

    @property
    def answer(self) -> Any:
        """The decoded answer; None if there is none yet, or none that the client got, or if it is very large."""
        if self._answer is None:
            return None
        api = api_named(self.api)
        _, at = read_response_header(self._answer, flexible=api.has_flexible_response_header(self.version))
        try:
            return codec_of(api, "Response")[0](self._answer, at, self.version)
        except MalformedError:  # a fault has garbled it
            return None

    @property
    def error(self) -> str:
        """The name of the first error in the answer; NONE if all went well, "" if there is no answer."""
        answer = self.answer
        if answer is None:
            return ""
        return next((code.name for code in errors_of(answer) if code), ErrorCode.NONE.name)

    @property
    def group(self) -> str | None:
        """The group that it is about; the first if it names several."""
        return next(iter(self.groups), None)

    @property
    def groups(self) -> list[str]:
        """The groups that it is about."""
        body = self.body
        found: list[str] = []
        if self.api == "FindCoordinator":
            return list(getattr(body, "keys", ()) or [body.key]) if body.key_type == 0 else []
        for name in ("groups", "group_ids"):
            found += [one if isinstance(one, str) else one.group_id for one in getattr(body, name, None) or ()]
        group_id = getattr(body, "group_id", None)
        return [group_id, *found] if group_id else found

    @property
    def members(self) -> list[str]:
        """The member ids that it names."""
        body = self.body
        listed = [one.member_id for one in getattr(body, "members", None) or ()]
        listed += [one.member_id for one in _group_entries(body) if getattr(one, "member_id", None)]
        return [one for one in (getattr(body, "member_id", ""), *listed) if one]

    @property
    def member(self) -> str:
        """The member id; "" if it has none."""
        return next(iter(self.members), "")

    @property
    def instance(self) -> str | None:
        """The group instance id of a static member."""
        body = self.body
        instances = [getattr(body, "instance_id", None)]
        if self.api == "LeaveGroup":
            instances += [one.instance_id for one in body.members or ()]
        return next((one for one in instances if one), None)

    @property
    def generation(self) -> int | None:
        """The generation, or member epoch; None if it has none."""
        for name in ("generation_id", "member_epoch"):
            found = getattr(self.body, name, None)
            if found is not None:
                return int(found)
        return None

    @property
    def topics(self) -> list[str]:
        """The topics that it names, those that it names by id too."""
        body = self.body
        entries = [*(getattr(body, "topics", None) or ())]
        for one in _group_entries(body):
            entries += getattr(one, "topics", None) or ()
        names = [*(getattr(body, "topic_names", None) or ()), *(getattr(body, "subscribed_topic_names", None) or ())]
        for one in entries:
            name = getattr(one, "name", None) or getattr(one, "topic", None)
            if not name and getattr(one, "topic_id", None) is not None:
                name = self._names.get(one.topic_id)
            if name:
                names.append(name)
        return list(dict.fromkeys(names))

    def is_of(self, who: str) -> bool:
        """Return whether it is of a member: `who` is a client id, a member id or a group instance id."""
        return who == self.client_id or who in self.members or (self.instance is not None and who == self.instance)

    def answered(self, data: bytes) -> None:
        """Note the frame of the answer, without its length."""
        if len(data) <= LARGE_ANSWER:
            self._answer = data

    @property
    def size(self) -> int:
        """The bytes of the request."""
        return len(self._frame)


def _group_entries(body: Any) -> list[Any]:
    return [one for one in getattr(body, "groups", None) or () if not isinstance(one, str)]


def _said(body: Any) -> Iterator[tuple[str, Any]]:
    """Return the fields that differ from their defaults."""
    for name in field_names(body):
        value = getattr(body, name)
        if value != default_of(body, name) and value not in (None, (), []):
            yield name, value


def _short(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if is_data(value) and not isinstance(value, type):
        return f"({', '.join(f'{name}={_short(one)}' for name, one in _said(value))})"
    if isinstance(value, Sequence) and not isinstance(value, str):
        more = f", and {len(value) - 5} more" if len(value) > 5 else ""
        return f"[{', '.join(map(_short, value[:5]))}{more}]"
    return repr(value) if isinstance(value, str) else str(getattr(value, "name", value))


def errors_of(answer: Any) -> Iterator[ErrorCode]:
    """Return all error codes of a response."""
    if isinstance(answer, ErrorCode):
        yield answer
    elif is_data(answer) and not isinstance(answer, type):
        for name in field_names(answer):
            yield from errors_of(getattr(answer, name))
    elif isinstance(answer, Sequence) and not isinstance(answer, str | bytes | memoryview):
        for one in answer:
            yield from errors_of(one)


def read_request(
    frame: bytes, host: str, at_ms: int, node: int, names: Mapping[UUID, str], state_of: Callable[[str], str]
) -> tuple[Request, int] | None:
    """Return a request and its correlation id; None if the frame is no request that the broker serves."""
    try:
        key, version, correlation_id, at = read_request_header(frame, FIRST_FLEXIBLE)
        if not by_key[key].serves(version):
            return None
        request = Request(
            by_key[key].name, version, client_id_of(frame), host, at_ms, node, "", "", frame, at, _names=names
        )
        if request.api in GROUP_APIS:
            request.state = state_of(request.group or "")
    except (MalformedError, UnicodeDecodeError):
        return None
    return request, correlation_id


GROUP_APIS = frozenset(
    {
        "JoinGroup",
        "SyncGroup",
        "Heartbeat",
        "LeaveGroup",
        "OffsetCommit",
        "OffsetFetch",
        "TxnOffsetCommit",
        "ConsumerGroupHeartbeat",
    }
)
"""The APIs that members use in their groups."""


class Recorder:
    """Keeps the last requests of all clients."""

    def __init__(self, most: int = MOST_REQUESTS, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self.requests: deque[Request] = deque()
        self.left_out = 0
        """How many requests are not kept any more."""

    def add(self, request: Request) -> None:
        self.requests.append(request)
        self._bytes += request.size
        while len(self.requests) > self._most or (self._bytes > self._most_bytes and len(self.requests) > 1):
            self._bytes -= self.requests.popleft().size
            self.left_out += 1
