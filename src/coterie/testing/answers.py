"""Answers with an error, for any API and version: valid ones, with the code where Kafka has it.

An answer has its error at the top, or once for each thing that the request lists. `error_answer` builds it from the
descriptions of request and response: where a response lists what the request listed, the names are copied from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin

from coterie.errors import ErrorCode
from coterie.protocol.apis import Api
from coterie.protocol.codec.fields import MessageField, members, number_format, present
from coterie.structs import REQUIRED, default_of, field_names, is_data
from coterie.testing.requests import codec_of, message_of

_LISTED_AS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("Produce", "responses"): ("topics",),
    ("Fetch", "responses"): ("topics",),
    ("FindCoordinator", "coordinators"): ("keys",),
    ("DeleteTopics", "responses"): ("topics", "topic_names"),
    ("CreateAcls", "results"): ("creations",),
    ("DeleteAcls", "filter_results"): ("filters",),
    ("DescribeConfigs", "results"): ("resources",),
    ("AlterConfigs", "responses"): ("resources",),
    ("IncrementalAlterConfigs", "responses"): ("resources",),
    ("CreatePartitions", "results"): ("topics",),
    ("DeleteGroups", "results"): ("groups",),
    ("ElectLeaders", "results"): ("topic_partitions",),
    ("AlterUserScramCredentials", "results"): ("deletions", "upsertions"),
    ("DescribeTransactions", "transaction_states"): ("transactional_ids",),
    ("ConsumerGroupDescribe", "groups"): ("group_ids",),
    ("AlterReplicaLogDirs", "results"): ("dirs",),
}
"""Where the names of the lists differ: what a list of the response has an entry for in the request."""
_NOT_AT_THE_TOP = frozenset({"Fetch"})
"""The error at the top is about the fetch session alone."""
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
ANSWERED_FIRST = frozenset({"Metadata", "ApiVersions", "DescribeCluster"})
"""APIs that change nothing, and whose answers have what a client cannot do without: an error is put into the answer."""
_KEYS = {str: ("key", "group_id", "name", "transactional_id", "topic"), int: ("partition",)}
"""What a plain entry of a list is called in the response."""
_ALIASES = {"user": "name"}


def error_answer(api: Api, version: int, request: Any, error: ErrorCode) -> bytes:
    """Return the body of an answer to a request that says this error, and nothing else."""
    response = message_of(api, "Response")
    at_top = api.name not in _NOT_AT_THE_TOP or error in _SESSION_ERRORS
    answer = _filled(api, response, version, request, error, at_top=at_top)
    return codec_of(api, "Response")[1](answer, version)


def _filled(api: Api, message: type, version: int, asked: Any, error: ErrorCode, *, at_top: bool = True) -> Any:
    """Return a message with the error: in itself if it has a place for it, else in each entry of its lists."""
    of_version = [*present(message, version, tagged=False), *present(message, version, tagged=True)]
    own = {each.name: each for each in of_version}
    has_error = "error" in own and at_top
    values: dict[str, Any] = {}
    for name in field_names(message):
        value = _plain(name, message, asked)
        described = own.get(name)
        if value is None and described is not None and not described.may_be_null(version):
            value = _zero(described.type)
        values[name] = value
    for name, one in own.items():
        listed: Any = listed_type(one)
        if name == "error":
            values[name] = error if has_error else ErrorCode.NONE
        elif listed is not None and is_data(listed) and not has_error:
            entries = _entries(api, name, asked) or ([None] if api.name == "DescribeLogDirs" else [])
            values[name] = [_filled(api, get_args(one.type)[0], version, entry, error) for entry in entries]
    return message(**values)


def _plain(name: str, message: type, asked: Any) -> Any:
    """Return the value of a field that says no error: what the request has under this name, or nothing."""
    described = _described(message, name)
    if described.type is ErrorCode:
        return ErrorCode.NONE
    if type(asked) in _KEYS and name in _KEYS[type(asked)]:
        return asked
    alias = _ALIASES.get(name, name)
    if listed_type(described) is None and hasattr(asked, alias):
        return getattr(asked, alias)
    default = default_of(message, name)
    if default is not REQUIRED:
        return default
    if listed_type(described) is not None:
        return ()
    if described.optional:
        return None
    return _zero(described.type)


def _described(message: type, name: str) -> MessageField:
    return next(one for one in members(message) if one.name == name)


def _zero(kind: Any) -> Any:
    if kind is str:
        return ""
    if kind is bytes:
        return b""
    code = number_format(kind)
    return False if code == "?" else -1 if code in {"i", "q", "h"} else 0 if code else b""


def listed_type(each: MessageField) -> Any:
    """Return what a field lists; None if it is no list."""
    kind = each.type
    if get_origin(kind) is not None and isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Sequence):
        return get_args(kind)[0]
    return None


def _entries(api: Api, name: str, asked: Any) -> list[Any]:
    if asked is None or isinstance(asked, str | int):
        return []
    if (api.name, name) == ("AlterReplicaLogDirs", "results"):
        return [topic for one in asked.dirs for topic in one.topics]
    found: list[Any] = []
    for listed in _LISTED_AS.get((api.name, name), (name,)):
        found += getattr(asked, listed, None) or ()
    return found


def with_error(api: Api, version: int, body: bytes, error: ErrorCode, topics: Sequence[str] | None) -> bytes:
    """Return an answer with an error in it, as `ANSWERED_FIRST` needs; `topics`: in these alone."""
    read, write = codec_of(api, "Response")
    answer = read(body, 0, version)
    if hasattr(answer, "topics"):
        for topic in answer.topics:
            if topics is None or topic.name in topics:
                topic.error, topic.partitions = error, ()
    if not hasattr(answer, "topics") or not answer.topics:
        answer.error = error
    return write(answer, version)


def has_throttle_time(api: Api, version: int) -> bool:
    """Return whether the answers of this version have `throttle_time_ms`."""
    return any(each.name == "throttle_time_ms" for each in present(message_of(api, "Response"), version, tagged=False))


def with_throttle_time(api: Api, version: int, body: bytes, ms: int) -> bytes:
    """Return an answer with `throttle_time_ms`."""
    read, write = codec_of(api, "Response")
    answer = read(body, 0, version)
    answer.throttle_time_ms = ms
    return write(answer, version)
