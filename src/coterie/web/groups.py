"""The groups that a page, its metrics and its alerts are about: facts and samples come in, what is shown comes out.

All of it belongs to one thread, except `tell`: a broker calls it in its own thread, and it only puts the fact into a
queue. Findings and stories are computed when they are asked for, and kept until the group changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from coterie.diagnosis import ExplainedRebalance, Finding, Grade, GroupHistory, GroupSample, worst_first
from coterie.diagnosis.from_facts import HistoryBuilder
from coterie.diagnosis.model import SEVERITY
from coterie.facts import ClockSet, Fact, OffsetsStored
from coterie.ledger import Rebalance
from coterie.web.lag import EndOffsets, LagSeries
from coterie.web.stories import row_of, story_of
from coterie.web.timeline import Timeline, grain_of
from coterie.web.totals import Totals

__all__ = ["Diagnose", "WatchedGroup", "WatchedGroups"]

Diagnose = Callable[[GroupHistory], Sequence[Finding]]
KEEP_REBALANCES = 2_000
"""How many of a group are shown."""
MOST_GROUPS = 10_000
MOST_WAITING = 500_000
"""Facts that may wait to be looked at; more are lost, which the page says."""
MOST_SAMPLES = 500


class WatchedGroup:
    """One group."""

    def __init__(self, group_id: str, grade: Grade) -> None:
        self.group_id = group_id
        self.version = 0
        self.timeline = Timeline(group_id)
        self.totals = Totals()
        self.lag = LagSeries()
        self.samples: deque[GroupSample] = deque(maxlen=MOST_SAMPLES)
        self._builder = HistoryBuilder(grade, KEEP_REBALANCES)
        self._history: GroupHistory | None = None
        self._findings: list[Finding] | None = None

    def add(self, fact: Fact, source: str) -> Rebalance | None:
        """Add a fact. Returns the rebalance that it ended, if any."""
        self.version += 1
        self._history = self._findings = None
        self._builder.add(fact, source)
        ended = self.timeline.add(fact)
        if ended is not None:
            self.totals.add(ended)
        return ended

    def add_sample(self, sample: GroupSample, ends: EndOffsets) -> None:
        self.version += 1
        self._findings = None
        self.samples.append(sample)
        self.lag.add(sample, ends)

    @property
    def history(self) -> GroupHistory:
        if self._history is None:
            found = self._builder.histories().get(self.group_id)
            self._history = found if found is not None else GroupHistory(self.group_id)
        self._history.samples = list(self.samples)
        return self._history

    def findings(self, diagnose: Diagnose) -> list[Finding]:
        """Return the findings, worst first."""
        if self._findings is None:
            self._findings = sorted(diagnose(self.history), key=worst_first)
        return self._findings

    def rebalance_at(self, at_ms: int, number: int) -> ExplainedRebalance | None:
        return next((one for one in self.history.rebalances if (one.at_ms, one.number) == (at_ms, number)), None)


class WatchedGroups:
    """All groups of one cluster."""

    def __init__(
        self,
        grade: Grade = Grade.OBSERVED,
        source: str = "broker",
        diagnose: Diagnose = lambda _history: (),
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
        self._diagnose = diagnose
        self._ends = EndOffsets()
        self._waiting: deque[Fact] = deque()
        self.on_rebalance: list[Callable[[WatchedGroup, Rebalance], None]] = []
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

    def take(self) -> set[str]:
        """Look at the facts that are waiting. Returns the groups that have changed."""
        changed: set[str] = set()
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
                    for call in self.on_rebalance:
                        call(group, ended)
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
        found = [one for group in self.groups.values() for one in group.findings(self._diagnose)]
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
        history, findings, last = group.history, group.findings(self._diagnose), group.lag.last
        point = group.lag.points[-1] if group.lag.points else None
        worst = findings[0] if findings else None
        unassigned = [one.unassigned_ms.value for one in history.rebalances if one.unassigned_ms.value is not None]
        lag = point.records if point else None
        row = {
            "group": group.group_id,
            "type": history.group_type,
            "state": last.state if last else None,
            "members": len(last.members) if last else None,
            "lag": lag,
            "behind": point.seconds if point else None,
            "rebalances": len(history.rebalances),
            "last": history.rebalances[-1].at_ms if history.rebalances else None,
            "unassigned": sum(unassigned) if unassigned else None,
            "findings": [{"name": one.name, "severity": str(one.severity), "summary": one.summary} for one in findings],
            "version": group.version,
        }
        severity = SEVERITY[worst.severity] if worst else len(SEVERITY)
        return (severity, -len(findings), -(lag or 0), -sum(unassigned), group.group_id), row

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
        shown = [one for one in history.rebalances if one.at_ms >= since_ms]
        found = {
            **summary,
            "findings": [one.to_json() for one in group.findings(self._diagnose)],
            "grades": sorted(history.grades),
            "from": timeline.from_ms,
            "to": timeline.to_ms,
            "grain": grain_of(len(timeline.partitions)),
            "topics": list(topics),
            "partitions": [value for topic, number in timeline.partitions for value in (topics[topic], number)],
            "names": _names(timeline, history),
            "dead": [[one.member, one.from_ms, one.to_ms] for one in timeline.dead],
            "first_block": timeline.blocks[0].number,
            "blocks": [one.to_json() for one in timeline.blocks if one.number >= block and one.times_ms],
            "since": since_ms,
            "rows": [row_of(one, history) for one in shown],
            "lag_since": lag_since_ms,
            "points": [[one.at_ms, one.records, one.seconds] for one in group.lag.points if one.at_ms > lag_since_ms],
        }
        if with_stories:
            found["stories"] = [story_of(one, history) for one in shown]
        return found

    def story(self, group_id: str, at_ms: int, number: int) -> dict[str, Any] | None:
        group = self.groups.get(group_id)
        one = group.rebalance_at(at_ms, number) if group is not None else None
        return None if group is None or one is None else story_of(one, group.history)


def _names(timeline: Timeline, history: GroupHistory) -> list[list[Any]]:
    """Return the members by number: name, client id, host, instance id, ordinal."""
    found = []
    for member in timeline.members:
        told = history.members.get(member.member_id)
        client = member.client_id or (told.client_id if told else "")
        host = member.host or (told.host if told else "")
        instance = member.instance_id or (told.instance_id if told else None)
        found.append([instance or client or member.member_id, client, host, instance, member.ordinal])
    return found


def from_facts(
    facts: Iterable[Fact], grade: Grade, source: str, diagnose: Diagnose = lambda _history: (), **about: str
) -> WatchedGroups:
    """Return the groups of recorded facts."""
    groups = WatchedGroups(grade, source, diagnose, **about)
    for fact in facts:
        groups.tell(fact)
        if len(groups._waiting) >= MOST_WAITING // 2:  # noqa: SLF001  it is this module's
            groups.take()
    groups.take()
    return groups
