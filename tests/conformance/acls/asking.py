"""Asks all cells of one broker, and brings the answers into a form that two brokers can have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any
from uuid import UUID

from conformance.acls.cells import (
    COMMITTED,
    DOOMED,
    NEW,
    OPEN,
    PRINCIPALS,
    REQUESTS,
    TOPICS,
    UNKNOWN_ID,
    Id,
    Request,
    bindings,
)
from coterie.errors import ErrorCode
from coterie.protocol.api import NOT_ASKED
from logs import batch

UNKNOWN = UUID("12345678-1234-1234-1234-123456789abc")
Answers = dict[str, dict[str, str]]
"""By the name of the request and of the user."""
CLOSED = "closed"


class Broker(ABC):
    """A broker with an authorizer, of whose answers a recording or a comparison is made."""

    host: str
    """The address that it sees its clients at."""

    def __init__(self) -> None:
        self.ids: dict[str, UUID] = {UNKNOWN_ID: UNKNOWN}
        self._producers: dict[str, tuple[int, int]] = {}

    @abstractmethod
    def ask(self, user: str, api: str, version: int, values: Mapping[str, Any]) -> Any:
        """Return kio's answer; `ConnectionError` if the connection was closed instead."""

    def wait(self, what: str, is_there: Callable[[], bool]) -> None:
        assert is_there(), what

    # --- before the first request -------------------------------------------------------------------------------------

    def prepare(self) -> None:
        for name, partitions in TOPICS.items():
            self._create(name, partitions)
        self._find_coordinator()
        self.restore((*DOOMED, *COMMITTED))
        for name in ("t", "o"):
            self._produce(name)
        creations = [
            {
                "resource_type": one.pattern.resource_type,
                "resource_name": one.pattern.name,
                "resource_pattern_type": one.pattern.pattern_type,
                "principal": one.entry.principal,
                "host": one.entry.host,
                "operation": one.entry.operation,
                "permission_type": one.entry.permission_type,
            }
            for user in PRINCIPALS
            for one in bindings(user, self.host)
        ]
        answer = self.ask("admin", "create_acls", 3, {"creations": tuple(creations)})
        assert not any(result.error_code for result in answer.results), answer
        self.wait("the ACLs", lambda: self._count_acls() == len(creations))
        self._find_transaction_coordinator()
        for transactional_id in OPEN:
            self._begin(transactional_id)

    def _count_acls(self) -> int:
        everything = {
            "resource_type_filter": 1,
            "resource_name_filter": None,
            "pattern_type_filter": 1,
            "principal_filter": None,
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
        }
        answer = self.ask("admin", "describe_acls", 3, everything)
        return sum(len(resource.acls) for resource in answer.resources)

    def _find_coordinator(self) -> None:
        def is_found() -> bool:
            answer = self.ask("admin", "find_coordinator", 6, {"key_type": 0, "coordinator_keys": ("g",)})
            return not answer.coordinators[0].error_code and self._has_committed("first")

        self.wait("a coordinator", is_found)

    def _find_transaction_coordinator(self) -> None:
        ids = ("x", "y", *OPEN)

        def is_found() -> bool:
            answer = self.ask("admin", "find_coordinator", 4, {"key_type": 1, "coordinator_keys": ids})
            return not any(one.error_code for one in answer.coordinators) and all(map(self._init, ids))

        self.wait("a transaction coordinator", is_found)

    def _init(self, transactional_id: str | None) -> bool:
        values = {
            "transactional_id": transactional_id,
            "transaction_timeout": 900_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = self.ask("admin", "init_producer_id", 4, values)
        self._producers[transactional_id or ""] = answer.producer_id, answer.producer_epoch
        return not answer.error_code

    def _begin(self, transactional_id: str) -> None:
        """Begin a transaction with `t` and `o`."""
        producer_id, epoch = self._producers[transactional_id]
        values = {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": producer_id,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": tuple({"name": name, "partitions": (1,)} for name in ("t", "o")),
        }
        answer = self.ask("admin", "add_partitions_to_txn", 3, values)
        results = [one for topic in answer.results_by_topic_v3_and_below for one in topic.results_by_partition]
        assert not any(one.partition_error_code for one in results), answer

    def _produce(self, topic: str) -> None:
        partition = {"index": 0, "records": bytes(batch(b"a"))}
        values = {
            "transactional_id": None,
            "acks": 1,
            "timeout": 5_000,
            "topic_data": ({"name": topic, "partition_data": (partition,)},),
        }
        answer = self.ask("admin", "produce", 9, values)
        assert not answer.responses[0].partition_responses[0].error_code, answer

    # --- between requests ---------------------------------------------------------------------------------------------

    def restore(self, what: tuple[str, ...]) -> None:
        """Bring back what a request may have changed."""
        for name in what:
            if name in NEW:
                self.ask("admin", "delete_topics", 4, {"topic_names": (name,), "timeout": 5_000})
                self.wait(f"end of {name}", partial(self._is_gone, name))
            elif name in DOOMED:
                self._create(name, 1)
            elif name in COMMITTED:
                self.wait(f"a commit of {name}", partial(self._has_committed, name))
            elif name == "ACLs":
                self._delete_acl_of_zed()

    def _topics(self) -> set[str]:
        values = {"topics": None, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        found = {topic.name: topic.topic_id for topic in self.ask("admin", "metadata", 12, values).topics}
        self.ids |= found
        return set(found)

    def _is_there(self, topic: str) -> bool:
        return topic in self._topics()

    def _is_gone(self, topic: str) -> bool:
        return topic not in self._topics()

    def _create(self, name: str, partitions: int) -> None:
        topic = {
            "name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": (), "configs": (),
        }  # fmt: skip
        values = {"topics": (topic,), "timeout": 5_000, "validate_only": False}
        (made,) = self.ask("admin", "create_topics", 7, values).topics
        assert made.error_code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}, made
        self.wait(name, lambda: name in self._topics() and made.topic_id in {None, self.ids[name]})

    def _has_committed(self, group: str) -> bool:
        partition = {
            "partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": "",
        }  # fmt: skip
        values = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": tuple({"name": name, "partitions": (partition,)} for name in ("t", "o")),
        }
        answer = self.ask("admin", "offset_commit", 9, values)
        return not any(one.error_code for topic in answer.topics for one in topic.partitions)

    def _delete_acl_of_zed(self) -> None:
        wanted = {
            "resource_type_filter": 1,
            "resource_name_filter": None,
            "pattern_type_filter": 1,
            "principal_filter": "User:zed",
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
        }
        self.ask("admin", "delete_acls", 3, {"filters": (wanted,)})
        self.wait("no ACL of zed", lambda: not self.ask("admin", "describe_acls", 3, wanted).resources)

    # --- the cells ----------------------------------------------------------------------------------------------------

    def ask_all(self, only: str = "") -> Answers:
        answers: Answers = {}
        for request in REQUESTS:
            if only in request.name:
                answers[request.name] = {user: self.answer(request, user) for user in PRINCIPALS}
        return answers

    def answer(self, request: Request, user: str) -> str:
        try:
            answer = self.ask(user, request.api, request.version, _with_ids(request.values, self.ids))
            text = written(answer, {topic_id: name for name, topic_id in self.ids.items()})
            self._wait_for_created(request, answer)
        except ConnectionError:
            text = CLOSED
        if request.restores:
            self.restore(tuple(request.restores))
        return text

    def _wait_for_created(self, request: Request, answer: Any) -> None:
        """Kafka says that a topic is missing, and creates it then."""
        if request.values.get("allow_auto_topic_creation"):
            for topic in answer.topics:
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self.wait(topic.name, partial(self._is_there, topic.name))


def _with_ids(values: Any, ids: Mapping[str, UUID]) -> Any:
    if isinstance(values, Id):
        return ids[values.topic]
    if isinstance(values, Mapping):
        return {name: _with_ids(value, ids) for name, value in values.items()}
    return tuple(_with_ids(value, ids) for value in values) if isinstance(values, tuple) else values


# --- answers as text --------------------------------------------------------------------------------------------------

DENIALS = frozenset({29, 30, 31, 53})
_LEFT_OUT = {"throttle_time", "brokers", "cluster_id", "controller_id", "is_internal", "leader_epoch", "node_endpoints",
             "aborted_transactions", "diverging_epoch", "current_leader", "snapshot_id", "preferred_read_replica",
             "session_id",
    "current_voters",
    "observers",
    "nodes",
    "active_producers", "record_errors"}  # fmt: skip
"""Fields that have nothing to do with rights, or whose values are a broker's own."""
_ERRORS = {"error_code": "", "partition_error_code": "", "topic_config_error_code": "configs="}
"""The fields of errors, and what is written before them."""
_SORTED_BY = ("name", "topic", "topic_id", "resource_name", "group_type", "user", "transactional_id")
"""Lists of things that have one of these fields have no order of their own."""
_NUMBERS = {
    "base_offset", "log_append_time", "log_start_offset", "offset", "timestamp", "high_watermark",
    "last_stable_offset", "end_offset", "low_watermark", "producer_id", "producer_epoch", "committed_offset",
    "generation_id", "node_id", "port", "committed_leader_epoch", "transaction_start_time",
}  # fmt: skip
"""Of these it is only compared whether they are negative."""
_TEXTS = {"member_id", "host", "leader"}
"""Of these it is only compared whether they are empty."""
_GROUPS = {"g", "h", "ga", "ha"}
"""The groups of a listing that are compared; others come and go."""


def written(entity: Any, names: Mapping[UUID, str]) -> str:
    """Return an answer as text: what a client may know, without offsets, ids and addresses."""
    values = {field.name: getattr(entity, field.name) for field in fields(entity) if field.name not in _LEFT_OUT}
    is_denied = int(values.get("error_code") or 0) in DENIALS
    parts = [_field(name, value, names, is_denied=is_denied) for name, value in values.items()]
    return f"{{{' '.join(filter(None, parts))}}}"


def _field(name: str, value: Any, names: Mapping[UUID, str], *, is_denied: bool) -> str:
    if name in _ERRORS:
        return f"{_ERRORS[name]}{ErrorCode(value).name}" if value else ""
    if name in {"error_message", "batch_index_error_message"}:
        return f"{name}={_message(value)}" if is_denied else ""
    if isinstance(value, UUID):
        return f"{name}={names[value]}" if value in names else ""
    if isinstance(value, tuple):
        return f"{name}={_list(name, value, names)}"
    if is_dataclass(value):
        return f"{name}={written(value, names)}"
    if value is None or value == NOT_ASKED or name in {"records", "assignment"}:
        return f"{name}=some" if value and name in {"records", "assignment"} else ""
    if name in _NUMBERS:
        number = value.timestamp() if isinstance(value, datetime) else value
        return "" if number < 0 else f"{name}>=0"
    if name in _TEXTS:
        return f"{name}=some" if value else ""
    return f"{name}={value!r}"


def _message(value: str | None) -> str:
    """Kafka says from inside its controller how it is called in Java (rule S45): that is no text for clients."""
    if value is not None and value.startswith("Request Request("):
        value = "Cluster authorization failed."
    return repr(value)


def _list(name: str, values: tuple[Any, ...], names: Mapping[UUID, str]) -> str:
    first = values[0] if values else None
    if name == "configs" or hasattr(first, "log_dir"):
        return "some" if values else "none"
    if hasattr(first, "isr_nodes"):
        return str(len(values))
    if not is_dataclass(first):
        return repr(values)
    if name == "groups" and not hasattr(first, "members") and not hasattr(first, "topics"):
        return "[" + " ".join(sorted(written(one, names) for one in values if one.group_id in _GROUPS)) + "]"
    texts = [written(one, names) for one in values if getattr(one, "name", None) != "__transaction_state"]
    if hasattr(first, "group_id") and not hasattr(first, "topics"):  # Kafka has those it may answer in any order
        runs = groupby(zip(values, texts, strict=True), lambda pair: int(pair[0].error_code) in DENIALS)
        texts = [text for is_denied, run in runs for text in (list if is_denied else sorted)(text for _, text in run)]
    elif any(hasattr(first, key) for key in _SORTED_BY):
        texts.sort()
    return f"[{' '.join(texts)}]"
