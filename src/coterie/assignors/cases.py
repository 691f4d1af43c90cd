"""A group written down: one JSON object with topics and members, as `coterie assign` reads it.

{"id": "a", "topics": {"t0": 4}, "members": [{"id": "m1", "topics": ["t0"], "owned": [["t0", [0, 1]]]}]}

Optional: `racks` (topic to a list of racks for each partition); of a member `instance`, `rack`, `owned`, `generation`,
`user_data_hex` and `subscription_generation`. For `sticky` the history is in the user data, and `generation` then only
repeats it; for all others `owned` and `generation` are what the Subscription says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.assignors.model import Assignment, Member, Owned, Topic
from coterie.errors import CoterieError

__all__ = ["MAX_PARTITIONS", "Case", "CaseError", "as_lists", "parse_case", "read_case"]

MAX_PARTITIONS = 5_000_000
"""In all topics together: what one line may ask for."""


class CaseError(CoterieError, ValueError):
    """A case that cannot be read; the message says what is wrong where. `case_id` is there if the line had one."""

    def __init__(self, message: str, case_id: object = None) -> None:
        super().__init__(message)
        self.case_id = case_id


@dataclass(frozen=True, slots=True)
class Case:
    id: str
    topics: dict[str, Topic]
    members: list[Member]


def parse_case(line: str) -> Case:
    try:
        raw = json.loads(line)
    except json.JSONDecodeError as problem:
        raise CaseError(f"not JSON: {problem.msg} at column {problem.colno}") from None
    except (ValueError, RecursionError) as problem:  # a number of thousands of digits, brackets without end
        raise CaseError(f"not JSON that can be read: {problem}") from None
    return read_case(raw)


def read_case(raw: Any) -> Case:
    _expect(isinstance(raw, dict), "a case is an object with id, topics and members", None)
    case_id = raw.get("id")
    try:
        _expect(isinstance(raw.get("topics"), dict), "topics must be an object, topic to number of partitions")
        _expect(isinstance(raw.get("members"), list), "members must be a list")
        racks = raw.get("racks") or {}
        _expect(isinstance(racks, dict), "racks must be an object, topic to a list of racks for each partition")
        topics = {name: _topic(name, count, racks.get(name)) for name, count in raw["topics"].items()}
        total = sum(topic.partitions for topic in topics.values())
        _expect(total <= MAX_PARTITIONS, f"{total} partitions are more than {MAX_PARTITIONS}, the most a case may have")
        sticky = raw.get("assignor") == "sticky"
        members = [_member(member, sticky=sticky) for member in raw["members"]]
        _expect(len({member.id for member in members}) == len(members), "two members have the same id")
    except CaseError as problem:
        raise CaseError(str(problem), case_id) from None
    return Case(str(case_id) if case_id is not None else "", topics, members)


def as_lists(assignment: Assignment) -> dict[str, list[list[Any]]]:
    """As it is printed: member to [[topic, [partitions]], ...]."""
    return {
        member: [[topic, list(ids)] for topic, ids in shares.items() if ids] for member, shares in assignment.items()
    }


def _expect(holds: bool, message: str, case_id: object = None) -> None:
    if not holds:
        raise CaseError(message, case_id)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _topic(name: str, count: object, racks: object) -> Topic:
    _expect(
        isinstance(count, int) and _is_number(count) and count >= 0,
        f'topic "{name}": the number of partitions must be 0 or more, not {count!r}',
    )
    assert isinstance(count, int)
    if racks is None:
        return Topic(count)
    _expect(
        isinstance(racks, list) and all(map(_is_texts, racks)),
        f'racks of topic "{name}" must be a list of lists of racks, one for each partition',
    )
    assert isinstance(racks, list)
    return Topic(count, racks)


def _member(raw: Any, *, sticky: bool) -> Member:
    _expect(isinstance(raw, dict) and isinstance(raw.get("id"), str), "every member needs an id, a string")
    name = f'member "{raw["id"]}"'
    _expect(_is_texts(raw.get("topics")), f"{name}: topics must be a list of strings")
    for key in ("instance", "rack", "user_data_hex"):
        _expect(isinstance(raw.get(key), str | None), f"{name}: {key} must be a string")
    for key in ("generation", "subscription_generation"):
        _expect(raw.get(key) is None or _is_number(raw[key]), f"{name}: {key} must be a number")
    user_data = raw.get("user_data_hex")
    try:
        data = None if user_data is None else bytes.fromhex(user_data)
    except ValueError:
        raise CaseError(f"{name}: user_data_hex must be hexadecimal digits, two for each byte") from None
    told_apart = sticky and data is not None
    return Member(
        id=raw["id"],
        topics=raw["topics"],
        instance_id=raw.get("instance"),
        rack=raw.get("rack"),
        owned={} if told_apart else _owned(name, raw.get("owned") or []),
        generation=raw.get("subscription_generation") if told_apart else raw.get("generation"),
        user_data=data,
    )


def _owned(name: str, raw: Any) -> Owned:
    pairs: Sequence[Any] = list(raw.items()) if isinstance(raw, Mapping) else raw
    shape = f"{name}: owned must be [[topic, [partition, ...]], ...]"
    _expect(isinstance(pairs, list), shape)
    owned: dict[str, list[int]] = {}
    for pair in pairs:
        _expect(isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str), shape)
        _expect(isinstance(pair[1], list) and all(map(_is_number, pair[1])), shape)
        owned.setdefault(pair[0], []).extend(pair[1])
    return owned
