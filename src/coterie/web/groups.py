"""The groups that a page, its metrics and its alerts are about: facts and samples come in, what is shown comes out.

All of it belongs to one thread, except `tell`: a broker calls it in its own thread, and it only puts the fact into a
queue. Findings and stories are computed when they are asked for, and kept until the group changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from coterie.diagnosis import ExplainedRebalance, Finding, Grade, GroupHistory, GroupSample, worst_first
from coterie.diagnosis.cost import rebalance_cost
from coterie.diagnosis.detectors import findings_of
from coterie.diagnosis.from_facts import HistoryBuilder
from coterie.diagnosis.model import SEVERITY
from coterie.facts import ClockSet, Fact, OffsetsStored
from coterie.ledger import RebalanceOutcome
from coterie.web.lag import EndOffsets, LagSeries
from coterie.web.stories import row_of, story_of
from coterie.web.timeline import Timeline, grain_of
from coterie.web.totals import EndedRebalance, Totals

Sampler = Callable[[], Awaitable[Mapping[str, GroupSample]]]
"""Returns all groups as they are now."""
MOST_REBALANCES = 2_000
MOST_MOVES = 200_000
MOST_INTERVALS = 200_000
"""How much of one group is kept in full; of older rebalances the rows and stories are."""
MOST_ARCHIVED = 10_000
MOST_INTERVALS_FOR_COST = 20_000
TRIM_EVERY = 5_000
"""Facts."""
MOST_GROUPS = 10_000
MOST_WAITING = 500_000
"""Facts that may wait to be looked at; more are lost, which the page says."""
MOST_SAMPLES = 500


class WatchedGroup:
    """One group. Its history comes from facts, one by one, or whole from a watch of a cluster."""

    def __init__(self, group_id: str, grade: Grade) -> None:
        self.group_id = group_id
        self.version = 0
        self.totals = Totals()
        self.lag = LagSeries()
        self.archived: deque[tuple[dict[str, Any], dict[str, Any]]] = deque(maxlen=MOST_ARCHIVED)
        """Rows and stories of rebalances that are not in the history any more."""
        self._samples: deque[GroupSample] = deque(maxlen=MOST_SAMPLES)
        self._timeline: Timeline | None = Timeline(group_id)
        self._builder = HistoryBuilder(grade, MOST_REBALANCES)
        self._facts = 0
        self._history: GroupHistory | None = None
        self._findings: list[Finding] | None = None
        self._avoidable: dict[tuple[int, int], int | None] = {}
        self._counted: set[tuple[int, int]] = set()

    # --- what comes in ------------------------------------------------------------------------------------------------

    def add(self, fact: Fact, source: str) -> EndedRebalance | None:
        """Add a fact. Returns the rebalance that it ended, if any."""
        self.version += 1
        self._history = self._findings = None
        self._builder.add(fact, source)
        self._facts += 1
        if self._facts % TRIM_EVERY == 0:
            self._trim()
        ended = self.timeline.add(fact)
        if ended is None:
            return None
        rebalance = EndedRebalance.of_ledger(ended)
        self.totals.add(rebalance)
        return rebalance

    def has(self, history: GroupHistory) -> bool:
        """Return whether this is the history that it was given last."""
        return self._history is history

    def replace(self, history: GroupHistory, ends: EndOffsets) -> list[EndedRebalance]:
        """Take a newer history. Returns the rebalances that have ended since the last one."""
        self.version += 1
        self._history, self._findings, self._timeline = history, None, None
        last_ms = self._samples[-1].at_ms if self._samples else 0
        for sample in history.samples:
            if sample.at_ms > last_ms:
                self._samples.append(sample)
                self.lag.add(sample, ends)
        found = []
        for one in history.rebalances:
            ended = EndedRebalance.of_history(one)
            if ended is not None and (one.number, ended.ended_ms) not in self._counted:
                self._counted.add((one.number, ended.ended_ms))
                self.totals.add(ended)
                found.append(ended)
        return found

    def add_sample(self, sample: GroupSample, ends: EndOffsets) -> None:
        self.version += 1
        self._findings = None
        self._samples.append(sample)
        self.lag.add(sample, ends)

    def _trim(self) -> None:
        """Keep what a long history needs small: rows and stories in place of rebalances with many moves."""
        before = self.history
        rebalances = before.rebalances
        self._builder.trim(MOST_REBALANCES // 2, MOST_MOVES, MOST_INTERVALS)
        self._history = None
        after = {_key(one) for one in self.history.rebalances}
        for one in rebalances:
            if _key(one) not in after and one.ended_ms.is_known:
                self.archived.append((row_of(one, before, self.avoidable_ms(one)), story_of(one, before)))

    # --- what comes out -----------------------------------------------------------------------------------------------

    @property
    def timeline(self) -> Timeline:
        if self._timeline is None:
            self._timeline = Timeline.of_history(self.history)
        return self._timeline

    @property
    def history(self) -> GroupHistory:
        if self._history is None:
            found = self._builder.histories().get(self.group_id)
            self._history = found if found is not None else GroupHistory(self.group_id)
            self._history.samples = []
        if not self._history.samples:
            self._history.samples = list(self._samples)
        return self._history

    def findings(self) -> list[Finding]:
        """Return the findings, worst first."""
        if self._findings is None:
            self._findings = sorted(findings_of(self.history), key=worst_first)
        return self._findings

    def avoidable_ms(self, one: ExplainedRebalance) -> int | None:
        """Return the avoidable part of the cost of a rebalance; None if it is not known, or too much to compute."""
        if not one.ended_ms.is_known or len(self.history.intervals) > MOST_INTERVALS_FOR_COST:
            return None
        if _key(one) not in self._avoidable:
            self._avoidable[_key(one)] = rebalance_cost(self.history, one).avoidable_ms
            while len(self._avoidable) > MOST_ARCHIVED:
                del self._avoidable[next(iter(self._avoidable))]
        return self._avoidable[_key(one)]

    def rows(self, since_ms: int = 0) -> list[dict[str, Any]]:
        """Return the rebalances from a time on, for the bands."""
        old = [row for row, _ in self.archived if row["at"] >= since_ms]
        shown = [one for one in self.history.rebalances if one.at_ms >= since_ms]
        return [*old, *(row_of(one, self.history, self.avoidable_ms(one)) for one in shown)]

    def stories(self) -> list[dict[str, Any]]:
        old = [story for _, story in self.archived]
        return [*old, *(story_of(one, self.history) for one in self.history.rebalances)]

    def story(self, at_ms: int, number: int) -> dict[str, Any] | None:
        for one in self.history.rebalances:
            if (one.at_ms, one.number) == (at_ms, number):
                return story_of(one, self.history)
        return next((story for _, story in self.archived if (story["at"], story["number"]) == (at_ms, number)), None)

    @property
    def unassigned_ms(self) -> int | None:
        """Return the sum of the rebalances whose cost is known; None if it is known of none."""
        costs = [row["unassigned"] for row, _ in self.archived]
        costs += [one.unassigned_ms.value for one in self.history.rebalances]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if known else None

    @property
    def rebalance_count(self) -> int:
        return len(self.archived) + len(self.history.rebalances)


_STATES: Mapping[str, str] = {RebalanceOutcome.STABLE: "Stable", RebalanceOutcome.EMPTY: "Empty"}
"""The state of a group after its last rebalance, for a group without samples, as in a recorded file."""


def _key(one: ExplainedRebalance) -> tuple[int, int]:
    return one.number, one.at_ms


class WatchedGroups:
    """All groups of one cluster."""

    def __init__(
        self,
        grade: Grade = Grade.OBSERVED,
        source: str = "broker",
        *,
        title: str = "",
        note: str = "",
    ) -> None:
        self.title = title
        self.note = note
        self.groups: dict[str, WatchedGroup] = {}
        self.version = 0
        self.lost = 0
        """Facts that were not looked at."""
        self._grade = grade
        self._source = source
        self._ends = EndOffsets()
        self._waiting: deque[Fact] = deque()
        self._offered: Mapping[str, GroupHistory] | None = None
        self.on_rebalance: list[Callable[[WatchedGroup, EndedRebalance], None]] = []
        """Functions that are called with each rebalance that has ended."""

    # --- what comes in ------------------------------------------------------------------------------------------------

    def tell(self, fact: Fact) -> None:
        """Take a fact, in any thread. Commits are left out: there are too many of them."""
        if type(fact) is OffsetsStored:
            return
        if len(self._waiting) >= MOST_WAITING:
            self.lost += 1
            return
        self._waiting.append(fact)

    def offer(self, histories: Mapping[str, GroupHistory]) -> None:
        """Give newer histories of all groups, in any thread. Nobody may change them any more."""
        self._offered = histories

    def take(self) -> set[str]:
        """Look at the facts and histories that are waiting. Returns the groups that have changed."""
        offered, self._offered = self._offered, None
        changed: set[str] = self.replace(offered) if offered is not None else set()
        while self._waiting:
            fact = self._waiting.popleft()
            if isinstance(fact, ClockSet):
                for group in self.groups.values():
                    group.add(fact, self._source)
            elif fact.group_id:
                group = self._group(fact.group_id)
                ended = group.add(fact, self._source)
                changed.add(fact.group_id)
                if ended is not None:
                    self._call_listeners(group, [ended])
        if changed:
            self.version += 1
        return changed

    def add_samples(self, samples: Mapping[str, GroupSample]) -> set[str]:
        """Take the groups as they are now. Returns those that have changed, which are all of them."""
        for sample in samples.values():
            self._ends.add(sample.partitions, sample.at_ms)
        for group_id, sample in samples.items():
            self._group(group_id).add_sample(sample, self._ends)
        self.version += 1
        return set(samples)

    def replace(self, histories: Mapping[str, GroupHistory]) -> set[str]:
        """Take the histories that a watch of a cluster has now. Returns the groups that have changed."""
        for history in histories.values():
            for sample in history.samples[-1:]:
                self._ends.add(sample.partitions, sample.at_ms)
        changed = set()
        for group_id, history in histories.items():
            group = self._group(group_id)
            if not group.has(history):
                changed.add(group_id)
                self._call_listeners(group, group.replace(history, self._ends))
        self.version += bool(changed)
        return changed

    def _call_listeners(self, group: WatchedGroup, ended: Iterable[EndedRebalance]) -> None:
        for one in ended:
            for call in self.on_rebalance:
                call(group, one)

    def _group(self, group_id: str) -> WatchedGroup:
        group = self.groups.get(group_id)
        if group is None:
            if len(self.groups) >= MOST_GROUPS:
                del self.groups[next(iter(self.groups))]
            group = self.groups[group_id] = WatchedGroup(group_id, self._grade)
        return group

    # --- what comes out -----------------------------------------------------------------------------------------------

    def findings(self) -> list[Finding]:
        """Return the findings of all groups, worst first."""
        found = [one for group in self.groups.values() for one in group.findings()]
        return sorted(found, key=worst_first)

    def list(self) -> dict[str, Any]:
        """Return all groups, worst first, as values of JSON."""
        rows = [self._summary(group) for group in self.groups.values()]
        return {
            "title": self.title,
            "note": self.note,
            "version": self.version,
            "lost": self.lost,
            "groups": [row for _, row in sorted(rows, key=lambda one: one[0])],
        }

    def _summary(self, group: WatchedGroup) -> tuple[tuple[Any, ...], dict[str, Any]]:
        history, findings, last = group.history, group.findings(), group.lag.last
        point = group.lag.points[-1] if group.lag.points else None
        worst = findings[0] if findings else None
        unassigned = group.unassigned_ms
        lag = point.records if point else None
        ended = history.rebalances[-1] if history.rebalances else None
        row = {
            "group": group.group_id,
            "type": history.group_type,
            "state": last.state if last else _STATES.get(ended.outcome.value or "") if ended else None,
            "members": len(last.members) if last else ended.members.value if ended else None,
            "lag": lag,
            "behind": point.seconds if point else None,
            "rebalances": group.rebalance_count,
            "last": ended.at_ms if ended else None,
            "unassigned": unassigned,
            "findings": [{"name": one.name, "severity": str(one.severity), "summary": one.summary} for one in findings],
            "version": group.version,
        }
        severity = SEVERITY[worst.severity] if worst else len(SEVERITY)
        return (severity, -len(findings), -(lag or 0), -(unassigned or 0), group.group_id), row

    def detail(
        self,
        group_id: str,
        *,
        block: int = 0,
        since_ms: int = 0,
        lag_since_ms: int = 0,
        with_stories: bool = False,
    ) -> dict[str, Any] | None:
        """Return one group as values of JSON: blocks from `block` on, rebalances and lag from their times on."""
        group = self.groups.get(group_id)
        if group is None:
            return None
        timeline, history = group.timeline, group.history
        timeline.settle()
        _, summary = self._summary(group)
        topics = {
            topic: number for number, topic in enumerate(dict.fromkeys(topic for topic, _ in timeline.partitions))
        }
        found = {
            **summary,
            "findings": [one.to_json() for one in group.findings()],
            "grades": sorted(history.grades),
            "from": timeline.from_ms,
            "to": timeline.to_ms,
            "grain": grain_of(len(timeline.partitions)),
            "topics": list(topics),
            "partitions": [value for topic, number in timeline.partitions for value in (topics[topic], number)],
            "names": _names(timeline, history),
            "dead": [[one.member, one.from_ms, one.to_ms, one.partitions] for one in timeline.dead],
            "first_block": timeline.blocks[0].number,
            "blocks": [one.to_json() for one in timeline.blocks if one.number >= block and one.times_ms],
            "since": since_ms,
            "rows": group.rows(since_ms),
            "lag_since": lag_since_ms,
            "points": [[one.at_ms, one.records, one.seconds] for one in group.lag.points if one.at_ms > lag_since_ms],
        }
        if with_stories:
            found["stories"] = group.stories()
        return found

    def story(self, group_id: str, at_ms: int, number: int) -> dict[str, Any] | None:
        """Return the story of one rebalance as values of JSON; None if it is not known."""
        group = self.groups.get(group_id)
        return None if group is None else group.story(at_ms, number)


def _names(timeline: Timeline, history: GroupHistory) -> list[list[Any]]:
    """Return the members by number: name, client id, host, instance id, ordinal."""
    found = []
    for member in timeline.members:
        known = history.members.get(member.member_id)
        client = member.client_id or (known.client_id if known else "")
        host = member.host or (known.host if known else "")
        instance = member.instance_id or (known.instance_id if known else None)
        found.append([instance or client or member.member_id, client, host, instance, member.ordinal])
    return found


def from_facts(facts: Iterable[Fact], grade: Grade, source: str, **about: str) -> WatchedGroups:
    """Return the groups of recorded facts."""
    groups = WatchedGroups(grade, source, **about)
    for fact in facts:
        groups.tell(fact)
        if len(groups._waiting) >= MOST_WAITING // 2:  # noqa: SLF001  it is this module's
            groups.take()
    groups.take()
    return groups
