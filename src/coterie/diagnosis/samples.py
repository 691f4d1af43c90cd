"""Make a history from descriptions of a group that were taken now and then.

A sample shows members, owners, state, coordinator and lag. A rebalance between two samples is seen if the epoch or the
members differ; a description of a classic group has no generation, so such a rebalance has no number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from coterie.diagnosis.evidence import Bound, Evidence, Grade, said
from coterie.diagnosis.model import (
    Departure,
    Event,
    ExplainedRebalance,
    GroupHistory,
    GroupSample,
    Happening,
    MemberSpan,
)
from coterie.facts import CLASSIC, CONSUMER, Cause
from coterie.ledger import Interval, RebalanceOutcome
from coterie.ledger.derived import DerivedCause

NO_NUMBER = 0
"""The number of a rebalance of which no source says the generation."""
KEEP_SAMPLES = 10_000
KEEP_CHANGES = 10_000
"""How many rebalances, members and events of a group are kept."""
KEEP_INTERVALS = 100_000
SOURCE = "describe"
_SETTLED = {"Stable": str(RebalanceOutcome.STABLE), "Empty": str(RebalanceOutcome.EMPTY)}


@dataclass(frozen=True, slots=True)
class SampledMember:
    """A member of a group as DescribeGroups or ConsumerGroupDescribe shows it."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    topics: tuple[str, ...] | None = None


class SampledGroup:
    """The history of a group from its samples, which come in the order of their times."""

    def __init__(self, group_id: str, group_type: str = CLASSIC) -> None:
        self.history = GroupHistory(group_id, group_type, grades=frozenset({str(Grade.SAMPLED)}))
        self._owned: dict[tuple[str, int], Interval] = {}
        self._last: GroupSample | None = None

    def add(self, sample: GroupSample, members: Mapping[str, SampledMember], keep: int = KEEP_SAMPLES) -> None:
        """Add a sample; `members` has those that it shows. At most `keep` samples are kept."""
        history = self.history
        at = Evidence(Grade.SAMPLED, SOURCE, sample.at_ms, f"{sample.state}, {len(sample.members)} members")
        _note_members(history, self._last, sample, members, at)
        if self._last is not None:
            _note_changes(history, self._last, sample, at)
        _note_owners(history, self._owned, sample)
        self._last = sample
        history.samples.append(sample)
        history.from_ms = history.from_ms if history.from_ms is not None else sample.at_ms
        history.to_ms = sample.at_ms
        self._forget(keep)

    def _forget(self, keep: int) -> None:
        """Drop the oldest of a long history."""
        history = self.history
        del history.samples[:-keep]
        for some in (history.rebalances, history.past, history.events):
            del some[:-KEEP_CHANGES]
        if len(history.members) > KEEP_CHANGES:
            gone = [one.member_id for one in history.members.values() if one.departure.is_known]
            for member_id in gone[: len(history.members) - KEEP_CHANGES]:
                del history.members[member_id]
        if len(history.intervals) > KEEP_INTERVALS:
            half = len(history.intervals) // 2
            history.intervals[:half] = [one for one in history.intervals[:half] if one.ended_ms is None]


def history_of_samples(
    group_id: str, samples: Iterable[GroupSample], members: Mapping[str, SampledMember], group_type: str = CLASSIC
) -> GroupHistory:
    """Return the history of a group from its samples, in the order of their times; `members` are those ever seen."""
    group = SampledGroup(group_id, group_type)
    for sample in samples:
        group.add(sample, members)
    return group.history


def _note_members(
    history: GroupHistory,
    before: GroupSample | None,
    sample: GroupSample,
    members: Mapping[str, SampledMember],
    at: Evidence,
) -> None:
    for member_id in sample.members:
        known = history.members.get(member_id)
        if known is not None and not known.departure.is_known:
            continue
        if known is not None:
            history.past.append(history.members.pop(member_id))
        about = members.get(member_id)
        span = MemberSpan(member_id)
        if about is not None:
            span.client_id, span.host, span.instance_id = about.client_id, about.host, about.instance_id
            span.topics = said(about.topics, at)
        span.joined_ms = said(sample.at_ms, at, Bound.AT_MOST, span.joined_ms.agrees)
        history.members[member_id] = span
    for member_id in set(before.members if before is not None else ()) - set(sample.members):
        span = history.members[member_id]
        span.gone_ms = said(sample.at_ms, at, Bound.AT_MOST, span.gone_ms.agrees)
        span.departure = said(str(Departure.DISAPPEARED), at, agrees=span.departure.agrees)


def _note_owners(history: GroupHistory, owned: dict[tuple[str, int], Interval], sample: GroupSample) -> None:
    """Add who owns what since this sample. A rebalance in progress shows no owners, and is left out."""
    if sample.state not in _SETTLED:
        return
    owners = {(one.topic, one.partition): one.owner for one in sample.partitions if one.owner}
    for place in [place for place, interval in owned.items() if owners.get(place) != interval.owner]:
        owned.pop(place).ended_ms = sample.at_ms
    for place, owner in owners.items():
        if place not in owned:
            owned[place] = Interval(history.group_id, place, owner, sample.at_ms)
            history.intervals.append(owned[place])


def _note_changes(history: GroupHistory, before: GroupSample, sample: GroupSample, at: Evidence) -> None:
    if before.coordinator and sample.coordinator and before.coordinator != sample.coordinator:
        says = f"from {before.coordinator} to {sample.coordinator}"
        moved = Evidence(Grade.SAMPLED, SOURCE, sample.at_ms, says)
        history.events.append(Event(sample.at_ms, Happening.COORDINATOR_MOVED, "", moved))
    if before.members and sample.state == "Empty":
        history.events.append(Event(sample.at_ms, Happening.GROUP_EMPTIED, "", at))
    came, gone = _changed_members(history, before, sample)
    epochs = (sample.number - before.number) if sample.number is not None and before.number is not None else None
    if not (came or gone) and not epochs:
        return
    group_type = CONSUMER if sample.number is not None else CLASSIC
    one = ExplainedRebalance(history.group_id, sample.number or NO_NUMBER, group_type, spans=max(epochs or 1, 1))
    one.began_ms = said(before.at_ms, at, Bound.AT_LEAST, one.began_ms.agrees)
    if sample.state in _SETTLED:
        one.outcome = said(_SETTLED[sample.state], at)
        one.ended_ms = said(sample.at_ms, at, Bound.AT_MOST, one.ended_ms.agrees)
        one.members = said(len(sample.members), at)
    if epochs == 1 or (epochs is None and len(came) + len(gone) == 1):
        _add_cause(one, came, gone, at)
    history.rebalances.append(one)


def _changed_members(history: GroupHistory, before: GroupSample, sample: GroupSample) -> tuple[list[str], list[str]]:
    """Return who came and who is gone. A static member that came back with another id changed nothing by that."""
    came = {one: history.members[one].instance_id for one in sample.members if one not in before.members}
    gone = {one: history.members[one].instance_id for one in before.members if one not in sample.members}
    stayed = (set(came.values()) & set(gone.values())) - {None}
    return [one for one in came if came[one] not in stayed], [one for one in gone if gone[one] not in stayed]


def _add_cause(one: ExplainedRebalance, came: list[str], gone: list[str], at: Evidence) -> None:
    """Add the cause if exactly one change explains it."""
    if bool(came) == bool(gone):
        return
    cause = str(Cause.NEW_MEMBER if came else DerivedCause.MEMBER_GONE)
    one.cause = said(cause, at, agrees=one.cause.agrees)
    who = [*came, *gone]
    one.member = said(who[0] if len(who) == 1 else None, at)
