"""From an answer to what is written down of it.

Left out: fields that are 0, false, null, NONE, an empty list or no bytes. The version says which fields there are, and
an empty string is written, so nothing is lost.
Replaced: member ids, group names, topic ids, the address of the client, and bytes that have a name. Sorted: topics and
partitions, and groups that are described, listed or deleted: Kafka has them from maps and from several partitions.
What an administrator asks for one by one is answered in that order, and stays so.
Members stay in Kafka's order: it follows from their ids (rule 7), and the replay is given the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from conformance.admin_asking import ADMIN_VALUES
from conformance.admin_hearing import write_down_for_admin
from conformance.asking import GHOST, SUBSCRIPTIONS, Known
from conformance.script import Step
from coterie.structs import field_names, is_data, replace
from raw_kafka import read_answer

__all__ = ["Ears", "Heard"]

Heard = dict[int, dict[str, Any]]
"""Number of the request -> its answer."""

_NAMED_BYTES = {data: name for name, data in SUBSCRIPTIONS.items() if data}
UUID_LENGTH = 36
_SORTED = {"topics": ("name", "topic_id"), "partitions": ("partition_index",)}
CLOSED = {"connection": "closed"}


class Ears:
    """Of all clients of one case: they learn their ids and generations, and name every id they see."""

    def __init__(self, known: Known, steps: Mapping[int, Step]) -> None:
        self.known = known
        self.steps = steps
        self.made: dict[int, str] = {}
        """Number of a join -> the UUID in the id that was made for it."""
        self._counts: dict[str, int] = {}
        self._sorted: Mapping[str, Sequence[str]] = _SORTED

    def hear(self, frames: Mapping[int, bytes]) -> Heard:
        """What came since the last step: first everybody learns its own id, then all is written down.

        No bytes at all: the connection was closed instead.
        """
        answers = {}
        for number in sorted(frames):
            step = self.steps[number]
            assert step.kind is not None
            if not frames[number]:
                continue
            answers[number] = answer = read_answer(step.kind.api, step.version, frames[number])
            if step.what == "join":
                self._learn(number, step, answer)
        return {
            number: self._write_down(self.steps[number], answers[number]) if number in answers else CLOSED
            for number in sorted(frames)
        }

    def _learn(self, number: int, step: Step, answer: Any) -> None:
        if number in self.known.newcomers:
            self.known.newcomers.remove(number)
        if answer.member_id:
            if answer.error_code.name.upper() != "UNKNOWN_MEMBER_ID":  # that one only says what was said to it
                self.known.member_ids[step.who] = answer.member_id
            if answer.member_id not in self.known.names and _is_made(answer.member_id):
                self._name(answer.member_id, number)
        if not answer.error_code:
            self.known.generations[step.who] = answer.generation_id

    def _name(self, member_id: str, number: int) -> None:
        stem = member_id[: -UUID_LENGTH - 1]
        self._counts[stem] = self._counts.get(stem, 0) + 1
        self.known.names[member_id] = f"{stem}{self._counts[stem]}"
        self.made[number] = member_id[-UUID_LENGTH:]

    def _name_of(self, text: str) -> str | None:
        """Also of an id that its own member has not been told yet, since its join is parked."""
        if text not in self.known.names and _is_made(text):
            stem = text[: -UUID_LENGTH - 1]
            for number in self.known.newcomers:
                step = self.steps[number]
                if number not in self.made and stem in {step.who, step.args["instance"]}:
                    self._name(text, number)
                    break
        return self.known.names.get(text)

    def _write_down(self, step: Step, answer: Any) -> dict[str, Any]:
        if step.what == "list":  # other cases have groups too
            own = [group for group in answer.groups if group.group_id.startswith(self.known.prefix)]
            answer = replace(answer, groups=tuple(own))
        self._sorted = {} if step.what in ADMIN_VALUES else _SORTED
        written: dict[str, Any] = self._plain(answer)
        entries = written.get({"list": "groups", "describe": "groups", "delete": "results"}.get(step.what, ""), [])
        entries.sort(key=lambda entry: str(entry["group_id"]))
        write_down_for_admin(step, written)
        return written

    def _plain(self, value: Any, name: str = "") -> Any:
        if is_data(value):
            said = {name: self._plain(getattr(value, name), name) for name in field_names(value)}
            return {key: each for key, each in said.items() if each or each == ""}
        if isinstance(value, Enum):
            return value.name.upper() if value.value else None
        if isinstance(value, tuple):
            plain = [self._plain(each, name) for each in value]
            keys = self._sorted.get(name)
            return sorted(plain, key=lambda each: _key(each, keys)) if keys else plain
        if isinstance(value, bytes):
            return _NAMED_BYTES.get(value) or value.decode("latin-1") or None
        if isinstance(value, timedelta):
            return value // timedelta(milliseconds=1)
        if isinstance(value, datetime):
            return round(value.timestamp() * 1000)
        if isinstance(value, UUID):
            return self._topic(value)
        if isinstance(value, str):
            return self._text(value, name)
        return value

    def _topic(self, topic_id: UUID) -> str:
        named = {each: name for name, each in self.known.topic_ids.items()}
        return named.get(topic_id) or ("ghost" if topic_id == GHOST else str(topic_id))

    def _text(self, text: str, name: str) -> str:
        if name == "client_host":
            return "/host" if text.startswith("/") else text
        return self._name_of(text) or text.replace(self.known.prefix, "")


def _key(entry: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(entry.get(name) or (0 if name == "partition_index" else "") for name in names)


def _is_made(text: str) -> bool:
    """An id of the broker's: a stem, a dash, a UUID."""
    tail = text[-UUID_LENGTH:]
    return len(text) > UUID_LENGTH and text[-UUID_LENGTH - 1] == "-" and tail.count("-") == 4
