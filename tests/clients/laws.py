"""What must be true of a group whatever happens to it, judged over everything that was said.

Three laws: every record is processed at least once; a partition has one owner in a generation, and one holder at a
time; a commit never goes backwards and never runs ahead of what was processed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from clients.harness import Crew, Facts, Place

__all__ = ["Witness", "check_laws", "judge"]

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


def check_laws(crew: Crew, produced: Mapping[Place, list[str]]) -> None:
    """`produced`: the values of each partition, in the order of their offsets, all acknowledged."""
    witnesses = [Witness(member.client_id, member.read().events, member.ended_ms) for member in crew.members]
    try:
        judge(crew.group, crew.broker.facts, witnesses, produced)
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
            for place in places:
                owner = owners.setdefault(place, member_id)
                assert owner == member_id, f"generation {generation}: {place} belongs to {owner} and to {member_id}"
    assert seen, "no generation was ever handed out"


def one_holder_at_a_time(facts: Facts, group: str, witnesses: Sequence[Witness]) -> None:
    """Of the members' own words: one has let go before the next takes hold, unless the broker gave it up for lost.

    A client tells of a revocation before it rejoins and of an assignment after its sync, so no clock is too coarse.
    """
    clients = facts.member_ids(group)
    expired = {clients[one["member_id"]]: one["at_ms"] for one in facts.of(group, "MemberExpired", "MemberMissedJoin")}
    holds: dict[Place, list[tuple[int, int, str]]] = defaultdict(list)
    for witness in witnesses:
        end = min(witness.ended_ms or NEVER, expired.get(witness.client_id, NEVER))
        since: dict[Place, int] = {}
        for event in witness.events:
            for topic, partition in event.get("partitions", ()):
                place = (topic, partition)
                if event["event"] == "assigned":
                    since.setdefault(place, event["at_ms"])
                elif place in since:
                    holds[place].append((since.pop(place), min(event["at_ms"], end), witness.client_id))
        for place, at_ms in since.items():
            holds[place].append((at_ms, end, witness.client_id))
    assert holds, "nobody ever held anything"
    for place, spans in holds.items():
        spans.sort()
        for (_, until_ms, one), (from_ms, _, other) in pairwise(spans):
            two = f"{one} held it until {until_ms}, {other} from {from_ms}"
            assert until_ms <= from_ms or one == other, f"{place} had two holders: {two}"


def commits_only_go_forward(facts: Facts, group: str) -> None:
    last: dict[Place, int] = {}
    for one in facts.of(group, "OffsetsStored"):
        for topic, partition, offset in one["offsets"]:
            place = (topic, partition)
            assert offset >= last.get(place, 0), f"{place} was committed at {last[place]}, then at {offset}"
            last[place] = offset
    assert last, "nothing was ever committed"


def nothing_is_committed_unprocessed(facts: Facts, group: str, witnesses: Sequence[Witness]) -> None:
    """Else a restart from the commit would skip it: at least once is about every moment, not only about the end."""
    processed_at: dict[tuple[str, int, int], int] = {}
    for witness in witnesses:
        for at_ms, topic, partition, offset, _ in witness.consumed():
            place = (topic, partition, offset)
            processed_at[place] = min(at_ms, processed_at.get(place, at_ms))
    for one in facts.of(group, "OffsetsStored"):
        for topic, partition, offset in one["offsets"]:
            for behind in range(offset):
                assert processed_at.get((topic, partition, behind), NEVER) <= one["at_ms"], (
                    f"{topic}-{partition} was committed at {offset} when {behind} had not been processed"
                )
