"""ILLEGAL_SASL_STATE in the form of each request that comes in place of SaslAuthenticate (S7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coterie.errors import ErrorCode
from coterie.protocol.apis import (
    Api,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from coterie.protocol.messages import (
    DescribedGroup,
    FetchedOffset,
    JoinedGroup,
    LeftGroup,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    SyncedGroup,
)
from coterie.structs import REQUIRED, default_of, field_names

__all__ = ["illegal_sasl_state"]

ILLEGAL = ErrorCode.ILLEGAL_SASL_STATE
MESSAGE = "Request is not valid given the current SASL state."

Form = Callable[[bytes, int, int], Any]
"""Takes frame, position and version; returns the response that the API's module writes."""


def illegal_sasl_state(api: Api, frame: bytes, at: int, version: int) -> bytes | None:
    """Return the body of the response; None if the API has no form for it.

    Raises:
        MalformedError: The request cannot be read, and the form needs what it names.
    """
    if api.key == list_groups.API.key:
        return list_groups.write_response((), version, ILLEGAL)
    form = _GROUP_FORMS.get(api.key)
    response = _plain_form(api) if form is None else form(frame, at, version)
    return None if response is None else bytes(api.module.write_response(response, version))


def _find_coordinator(frame: bytes, at: int, version: int) -> find_coordinator.Response:
    keys = find_coordinator.read_request(frame, at, version).keys
    found = [find_coordinator.Coordinator(key=key, error=ILLEGAL, message=MESSAGE) for key in keys]
    return find_coordinator.Response(coordinators=found)


def _offset_commit(frame: bytes, at: int, version: int) -> OffsetsCommitted:
    partitions = offset_commit.read_request(frame, at, version, None).partitions
    return OffsetsCommitted(partitions, [ILLEGAL] * len(partitions))


def _offset_fetch(frame: bytes, at: int, version: int) -> list[OffsetsFetched]:
    """Name no topics, but for version 1, which has the group's error in each partition."""
    names_topics = version < offset_fetch.HAS_GROUP_ERROR
    return [
        OffsetsFetched(
            request.group_id,
            ILLEGAL,
            [FetchedOffset(name, each) for name, numbers in request.topics or () for each in numbers if names_topics],
        )
        for request in offset_fetch.read_request(frame, at, version, None)
    ]


def _describe_groups(frame: bytes, at: int, version: int) -> list[DescribedGroup]:
    requests = describe_groups.read_request(frame, at, version, None)
    return [DescribedGroup(request.group_id, "", error=ILLEGAL) for request in requests]


def _delete_groups(frame: bytes, at: int, version: int) -> list[tuple[str, ErrorCode]]:
    return [(request.group_id, ILLEGAL) for request in delete_groups.read_request(frame, at, version, None)]


_GROUP_FORMS: Mapping[int, Form] = {
    find_coordinator.API.key: _find_coordinator,
    join_group.API.key: lambda *_: JoinedGroup(ILLEGAL, ""),
    sync_group.API.key: lambda *_: SyncedGroup(ILLEGAL),
    heartbeat.API.key: lambda *_: ILLEGAL,
    leave_group.API.key: lambda *_: LeftGroup(ILLEGAL),
    offset_commit.API.key: _offset_commit,
    offset_fetch.API.key: _offset_fetch,
    offset_delete.API.key: lambda *_: OffsetsDeleted(ILLEGAL),
    describe_groups.API.key: _describe_groups,
    delete_groups.API.key: _delete_groups,
}


def _plain_form(api: Api) -> object:
    """Return the response with the error at its top, if there is room for one, and empty values."""
    response = getattr(api.module, "Response", None)
    if response is None:
        return None
    names = field_names(response)
    needed = [name for name in names if default_of(response, name) is REQUIRED]
    values: dict[str, Any] = {name: _empty(str(response.__annotations__[name])) for name in needed}
    if "error" in names:
        values["error"] = ILLEGAL
    filled: object = response(**values)
    return filled


def _empty(annotation: str) -> object:
    """Return the empty value of a field."""
    return () if annotation.startswith("Sequence") else "" if annotation.startswith("str") else 0
