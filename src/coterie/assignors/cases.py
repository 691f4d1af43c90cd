"""A group as JSON, as `coterie assign` reads it; what-ifs for it, and a score to compare assignors.

{"id": "a", "topics": {"t0": 4}, "members": [{"id": "m1", "topics": ["t0"], "owned": [["t0", [0, 1]]]}]}

Optional: `racks` (topic to a list of racks for each partition); of a member `instance`, `rack`, `owned`, `generation`,
`user_data_hex` and `subscription_generation`. For `sticky` the history is in the user data, and `generation` then only
repeats it; for all others `owned` and `generation` are what the Subscription says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.assignors.model import Assignment, Assignor, Member, Owned, Topic
from coterie.assignors.sticky import read_owned
from coterie.errors import CoterieError
from coterie.protocol.messages import NO_GENERATION
from coterie.structs import replace

MAX_REBALANCES = 10
MAX_PARTITIONS = 5_000_000
"""The most partitions that all topics of a case may have together."""


class CaseError(CoterieError, ValueError):
    """A case cannot be read; the message says what is wrong where. `case_id` is set if the line had one."""

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
    """Return an assignment as it is printed: member to [[topic, [partitions]], ...]."""
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
    is_in_user_data = sticky and data is not None
    return Member(
        id=raw["id"],
        topics=raw["topics"],
        instance_id=raw.get("instance"),
        rack=raw.get("rack"),
        owned={} if is_in_user_data else _owned(name, raw.get("owned") or []),
        generation=raw.get("subscription_generation") if is_in_user_data else raw.get("generation"),
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


@dataclass(frozen=True, slots=True)
class Score:
    """The quality of an assignment."""

    lightest: int
    heaviest: int
    squares: int
    """The sum of the squared loads: the smaller, the better balanced. The optimum is lexicographically best as well."""
    unread: int
    """Partitions of subscribed topics without an owner."""
    moves: int
    """Partitions taken from a member that is still in the group and subscribes to them."""
    matches: int
    """Partitions with a replica in the rack of their member."""
    partitions: int


def score(assignment: Mapping[str, Owned], before: Mapping[str, Owned], case: Case) -> Score:
    loads = [sum(map(len, assignment.get(member.id, {}).values())) for member in case.members] or [0]
    subscribed = {topic for member in case.members for topic in member.topics if topic in case.topics}
    partitions = sum(case.topics[topic].partitions for topic in subscribed)
    moves = matches = 0
    for member in case.members:
        after = assignment.get(member.id, {})
        for topic, ids in before.get(member.id, {}).items():
            if topic in member.topics and topic in case.topics:
                living = {partition for partition in ids if partition < case.topics[topic].partitions}
                moves += len(living.difference(after.get(topic, ())))
        for topic, ids in after.items():
            racks = case.topics[topic].racks or ()
            matches += sum(member.rack in racks[p] for p in ids if p < len(racks)) if member.rack else 0
    return Score(
        min(loads), max(loads), sum(load * load for load in loads), partitions - sum(loads), moves, matches, partitions
    )


def run(assignor: Assignor, case: Case) -> tuple[Assignment, int]:
    """Rebalance until no member has to give up partitions; return the final assignment and how many it took.

    Eager groups need one rebalance.
    """
    members, generation = case.members, 1
    assignment = assignor.assign(members, case.topics)
    if not assignor.cooperative:
        return assignment, 1
    while generation < MAX_REBALANCES and any(
        set(ids).difference(assignment[member.id].get(topic, ()))
        for member in members
        for topic, ids in member.owned.items()
    ):
        generation += 1
        members = [replace(member, owned=assignment[member.id], generation=generation) for member in members]
        assignment = assignor.assign(members, case.topics)
    return assignment, generation


def holding(case: Case, assignment: Mapping[str, Owned]) -> Case:
    """Return the same group after all members own what they were assigned."""
    members = [
        replace(member, owned=assignment.get(member.id, {}), generation=NO_GENERATION, user_data=None)
        for member in case.members
    ]
    return Case(case.id, case.topics, members)


def owned_in(case: Case) -> dict[str, Owned]:
    """Return what the members own, by their subscription or their user data."""
    return {
        member.id: member.owned or (read_owned(member.user_data)[0] if member.user_data else {})
        for member in case.members
    }


def leave(case: Case, member_id: str) -> Case:
    if member_id not in {member.id for member in case.members}:
        known = ", ".join(member.id for member in case.members[:10])
        raise CaseError(f'no member "{member_id}" to leave; members are {known}', case.id)
    return Case(case.id, case.topics, [member for member in case.members if member.id != member_id])


def join(case: Case, member_id: str, topics: Iterable[str] | None = None) -> Case:
    """Return the group with a new member; without `topics` it subscribes to all topics of the others."""
    if member_id in {member.id for member in case.members}:
        raise CaseError(f'member "{member_id}" is there already; a newcomer needs an id of its own', case.id)
    everything: Sequence[str] = list(dict.fromkeys(topic for member in case.members for topic in member.topics))
    wanted = list(everything if topics is None else topics)
    return Case(case.id, case.topics, [*case.members, Member(member_id, wanted)])


def grow(case: Case, topic: str, partitions: int) -> Case:
    old = case.topics.get(topic, Topic(0))
    if partitions < old.partitions:
        raise CaseError(f'topic "{topic}" has {old.partitions} partitions and cannot shrink to {partitions}', case.id)
    return Case(case.id, {**case.topics, topic: Topic(partitions, old.racks)}, case.members)
