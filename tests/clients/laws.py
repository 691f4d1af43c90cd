"""What must be true of a group whatever happens to it, judged over everything that was said.

Three laws: every record is processed at least once; a partition has one owner in a generation, and one holder at a
time; a commit never goes backwards and never runs ahead of what was processed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise

from clients.harness import Crew, Place

__all__ = ["check_laws"]


def check_laws(crew: Crew, produced: Mapping[Place, list[str]]) -> None:
    """`produced`: the values of each partition, in the order of their offsets, all acknowledged."""
    assert produced and any(produced.values()), "nothing was produced, so nothing would be judged"
    _every_record_is_processed(crew, produced)
    _one_owner_in_a_generation(crew)
    _one_holder_at_a_time(crew)
    _commits_only_go_forward(crew)
    _nothing_is_committed_unprocessed(crew)


def _every_record_is_processed(crew: Crew, produced: Mapping[Place, list[str]]) -> None:
    processed: dict[tuple[str, int, int], str] = {}
    for member in crew.members:
        for topic, partition, offset, value in member.consumed:
            before = processed.setdefault((topic, partition, offset), value)
            assert before == value, f"{topic}-{partition} at {offset} was read as {before!r} and as {value!r}"
    expected = {
        (topic, partition, offset): value
        for (topic, partition), values in produced.items()
        for offset, value in enumerate(values)
    }
    missing = expected.keys() - processed.keys()
    assert not missing, f"{len(missing)} records were never processed: {sorted(missing)[:10]}\n{crew.said()}"
    assert processed == expected, "what was read is not what was produced"


def _one_owner_in_a_generation(crew: Crew) -> None:
    seen: dict[int, dict[Place, str]] = {}
    for generation, assignment in crew.broker.facts.assignments(crew.group):
        owners = seen.setdefault(generation, {})
        for member_id, places in assignment.items():
            for place in places:
                owner = owners.setdefault(place, member_id)
                assert owner == member_id, f"generation {generation}: {place} belongs to {owner} and to {member_id}"
    assert seen, "no generation was ever handed out"


def _one_holder_at_a_time(crew: Crew) -> None:
    """Of the members' own words: one has let go before the next takes hold, unless the broker gave it up for lost.

    A client tells of a revocation before it rejoins and of an assignment after its sync, so no clock is too coarse.
    """
    facts, group = crew.broker.facts, crew.group
    clients = facts.member_ids(group)
    expired = {clients[one["member_id"]]: one["at_ms"] for one in facts.of(group, "MemberExpired", "MemberMissedJoin")}
    holds: dict[Place, list[tuple[int, int, str]]] = defaultdict(list)
    for member in crew.members:
        end = min(member.ended_ms or 2**63, expired.get(member.client_id, 2**63))
        since: dict[Place, int] = {}
        for event in member.read().events:
            for topic, partition in event.get("partitions", ()):
                place = (topic, partition)
                if event["event"] == "assigned":
                    since.setdefault(place, event["at_ms"])
                elif place in since:
                    holds[place].append((since.pop(place), min(event["at_ms"], end), member.client_id))
        for place, at_ms in since.items():
            holds[place].append((at_ms, end, member.client_id))
    for place, spans in holds.items():
        spans.sort()
        for (_, until_ms, one), (from_ms, _, other) in pairwise(spans):
            assert until_ms <= from_ms or one == other, (
                f"{place}: {one} held it until {until_ms}, {other} from {from_ms}"
            )


def _commits_only_go_forward(crew: Crew) -> None:
    last: dict[Place, int] = {}
    for one in crew.broker.facts.of(crew.group, "OffsetsStored"):
        for topic, partition, offset in one["offsets"]:
            place = (topic, partition)
            assert offset >= last.get(place, 0), f"{place} was committed at {last[place]}, then at {offset}"
            last[place] = offset
    assert last, "nothing was ever committed"


def _nothing_is_committed_unprocessed(crew: Crew) -> None:
    """Else a restart from the commit would skip it: at least once is about every moment, not only about the end."""
    processed_at: dict[tuple[str, int, int], int] = {}
    for member in crew.members:
        for event in member.told("consumed"):
            for topic, partition, offset, _ in event["records"]:
                at_ms = processed_at.get((topic, partition, offset), event["at_ms"])
                processed_at[topic, partition, offset] = min(at_ms, event["at_ms"])
    for one in crew.broker.facts.of(crew.group, "OffsetsStored"):
        for topic, partition, offset in one["offsets"]:
            for behind in range(offset):
                at_ms = processed_at.get((topic, partition, behind))
                assert at_ms is not None and at_ms <= one["at_ms"], (
                    f"{topic}-{partition} was committed at {offset} when {behind} had not been processed"
                )
