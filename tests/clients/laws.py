"""What must be true of a group whatever happens to it, judged over everything that was said.

Three laws: every record is processed at least once; a partition has one owner in a generation, and one holder at a
time; a commit never goes backwards and never runs ahead of what was processed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from clients.harness import Crew, Facts, Member, Place, places_of

__all__ = ["Witness", "check_laws", "judge", "longest_gap_ms", "witness_of"]

NEVER = 2**63


@dataclass(frozen=True)
class Witness:
    """What one member told, and when it was killed or told to go."""

    client_id: str
    events: Sequence[Mapping[str, Any]]
    ended_ms: int | None = None

    def consumed(self) -> list[tuple[int, str, int, int, str]]:
        return [
            (event["at_ms"], *one) for event in self.events if event["event"] == "consumed" for one in event["records"]
        ]

    def read_at_ms(self, place: Place) -> list[int]:
        return [at_ms for at_ms, topic, partition, _, _ in self.consumed() if (topic, partition) == place]


def witness_of(member: Member) -> Witness:
    return Witness(member.client_id, member.read().events, member.ended_ms)


def check_laws(crew: Crew, produced: Mapping[Place, list[str]]) -> None:
    """`produced`: the values of each partition, in the order of their offsets, all acknowledged."""
    try:
        judge(crew.group, crew.broker.facts, [witness_of(member) for member in crew.members], produced)
    except AssertionError as broken:
        raise AssertionError(f"{broken}\n{crew.said()}") from None


def judge(group: str, facts: Facts, witnesses: Sequence[Witness], produced: Mapping[Place, list[str]]) -> None:
    assert produced and any(produced.values()), "nothing was produced, so nothing would be judged"
    every_record_is_processed(witnesses, produced)
    one_owner_in_a_generation(facts, group)
    one_holder_at_a_time(facts, group, witnesses)
    commits_only_go_forward(facts, group)
    nothing_is_committed_unprocessed(facts, group, witnesses)


def every_record_is_processed(witnesses: Sequence[Witness], produced: Mapping[Place, list[str]]) -> None:
    processed: dict[tuple[str, int, int], str] = {}
    for witness in witnesses:
        for _, topic, partition, offset, value in witness.consumed():
            before = processed.setdefault((topic, partition, offset), value)
            assert before == value, f"{topic}-{partition} at {offset} was read as {before!r} and as {value!r}"
    expected = {
        (topic, partition, offset): value
        for (topic, partition), values in produced.items()
        for offset, value in enumerate(values)
    }
    missing = expected.keys() - processed.keys()
    assert not missing, f"{len(missing)} records were never processed: {sorted(missing)[:10]}"
    assert processed == expected, "what was read is not what was produced"


def one_owner_in_a_generation(facts: Facts, group: str) -> None:
    seen: dict[int, dict[Place, str]] = {}
    for generation, assignment in facts.assignments(group):
        owners = seen.setdefault(generation, {})
        for member_id, places in assignment.items():
            name = facts.lasting_name(group, member_id)
            for place in places:
                owner = owners.setdefault(place, name)
                assert owner == name, f"generation {generation}: {place} belongs to {owner} and to {name}"
    assert seen, "no generation was ever handed out"


def one_holder_at_a_time(facts: Facts, group: str, witnesses: Sequence[Witness]) -> None:
    """Of the members' own words: one has let go before the next takes hold, unless the broker gave it up for lost.

    A client tells of a revocation before it rejoins and of an assignment after its sync, so no clock is too coarse.
    Members share one clock, and their times are compared with each other; the broker may have another, so what it tells
    is taken in its order alone.
    """
    excuses = _taken_from_who_was_given_up(facts, group)
    holds: dict[Place, list[tuple[int, int, str]]] = defaultdict(list)
    for witness in witnesses:
        end_ms = witness.ended_ms or NEVER
        since: dict[Place, int] = {}
        for event in witness.events:
            for topic, partition in event.get("partitions", ()):
                place = (topic, partition)
                if event["event"] == "assigned":
                    since.setdefault(place, event["at_ms"])
                elif place in since:
                    holds[place].append((since.pop(place), min(event["at_ms"], end_ms), witness.client_id))
        for place, at_ms in since.items():
            holds[place].append((at_ms, end_ms, witness.client_id))
    assert holds, "nobody ever held anything"
    for place, spans in holds.items():
        spans.sort()
        for (_, until_ms, one), (from_ms, _, other) in pairwise(spans):
            if until_ms <= from_ms or one == other:
                continue
            two = f"{one} held it until {until_ms}, {other} from {from_ms}"
            assert excuses[place, one, other], f"{place} had two holders: {two}"
            excuses[place, one, other] -= 1


def _taken_from_who_was_given_up(facts: Facts, group: str) -> Counter[tuple[Place, str, str]]:
    """Count how often the broker gave a partition of a member that it had removed to another."""
    clients = facts.member_ids(group)
    owners: dict[Place, str] = {}
    given_up: dict[Place, set[str]] = defaultdict(set)
    taken: Counter[tuple[Place, str, str]] = Counter()
    for fact in facts.of(group, "MemberExpired", "MemberMissedJoin", "MemberGone", "AssignmentStored"):
        if fact["fact"] != "AssignmentStored":
            gone = clients.get(fact["member_id"], fact["member_id"])
            for place, owner in owners.items():
                if owner == gone:
                    given_up[place].add(gone)
            continue
        for member_id, data in fact["assignments"].items():
            new = clients.get(member_id, member_id)
            for place in places_of(data):
                taken.update((place, gone, new) for gone in given_up.pop(place, ()))
                owners[place] = new
    return taken


def commits_only_go_forward(facts: Facts, group: str) -> None:
    last: dict[Place, int] = {}
    for one in facts.of(group, "OffsetsStored"):
        for topic, partition, offset, *_ in one["offsets"]:
            place = (topic, partition)
            assert offset >= last.get(place, 0), f"{place} was committed at {last[place]}, then at {offset}"
            last[place] = offset
    assert last, "nothing was ever committed"


def nothing_is_committed_unprocessed(facts: Facts, group: str, witnesses: Sequence[Witness]) -> None:
    """Else a restart from the commit would skip it: at least once is about every moment, not only about the end.

    The broker's clock is not asked. A commit that carries a note names its member, and how much that one had told: all
    behind it was processed by then. Any other is one that a member could ask for, having processed the record before
    it when all behind it was processed.
    """
    processed_at: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for witness in witnesses:
        for at_ms, topic, partition, offset, _ in witness.consumed():
            processed_at[topic, partition, offset].append(at_ms)
    by_name = {witness.client_id: witness for witness in witnesses}
    for one in facts.of(group, "OffsetsStored"):
        for topic, partition, offset, *note in one["offsets"]:
            if not offset:
                continue
            if note and note[0]:
                name, told = note[0].rstrip("\0").rsplit(" ", 1)  # confluent-kafka sends the end of a C string too
                asked_ms = by_name[name].events[int(told) - 1]["at_ms"]
            else:
                asked_ms = max(processed_at[topic, partition, offset - 1], default=-1)
            for behind in range(offset):
                assert min(processed_at[topic, partition, behind], default=NEVER) <= asked_ms, (
                    f"{topic}-{partition} was committed at {offset} when {behind} had not been processed"
                )


def longest_gap_ms(moments: Sequence[int], from_ms: int, until_ms: int) -> int:
    """The longest time without any of `moments` that reaches into a window; the window's end counts as one."""
    before = [at_ms for at_ms in moments if at_ms <= from_ms]
    within = [at_ms for at_ms in moments if from_ms < at_ms < until_ms]
    return max(later - earlier for earlier, later in pairwise([max(before, default=from_ms), *within, until_ms]))
