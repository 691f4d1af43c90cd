"""Judge what the sources say about a night: every rebalance, and every finding, against what was really done.

A rebalance is *right* if its cause and its member are what was done at that time; *vague* if that is true and says less
(a member disappeared, or no member is named); *unscripted* if a client joined again by itself, which no script can
confirm; *unknown*, if the source says so; else *wrong*. The other sources together say how many were not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from coterie.diagnosis import Bound, ExplainedRebalance, GroupHistory
from coterie.diagnosis.detectors import findings_of
from coterie.facts import Cause
from coterie.ledger.derived import DerivedCause
from soak.night_scenes import SCENES, Deed, Scene

Histories = Mapping[str, GroupHistory]
Scenes = list[tuple[str, Scene]]

CLOCK_MS = 150
"""Deeds, lines and records have the same clock; a deed is noted before it is done."""
GONE = str(DerivedCause.MEMBER_GONE)
BY_ITSELF = {str(Cause.LEADER_REJOINED), str(Cause.PROTOCOLS_CHANGED)}
"""A client may join again when nothing was done to it: it follows up a cooperative rebalance, or sees new topics."""
FOLLOW_UP_MS = 2_000
"""A member that gave up partitions in a cooperative rebalance joins again within this time."""
VERDICTS = ("right", "vague", "unscripted", "unknown", "wrong")


@dataclass
class Score:
    """What one source said."""

    verdicts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VERDICTS, 0))
    unseen: int = 0
    found: int = 0
    vague: int = 0
    missed: int = 0
    false: int = 0
    told: list[str] = field(default_factory=list)
    explained: set[int] = field(default_factory=set)
    """The deeds, by identity, that are the cause of a rebalance."""

    def line(self, name: str) -> str:
        counts = self.verdicts
        named = counts["right"] + counts["wrong"]
        seen = sum(counts.values())
        precision = f"{counts['right'] / named:.0%}" if named else "-"
        recall = f"{counts['right'] / (seen + self.unseen):.0%}" if seen + self.unseen else "-"
        verdicts = "".join(f"{counts[one]:6} {one}" for one in VERDICTS)
        findings = f"findings: {self.found} found, {self.vague} vague, {self.missed} missed, {self.false} false"
        return f"{name:9}{verdicts}{self.unseen:5} unseen; precision {precision}, recall {recall}; {findings}"


@dataclass
class Judge:
    """Compares sources with what was done. `everything` is what all of them say together."""

    scenes: Scenes
    everything: Histories
    names: dict[str, str] = field(default_factory=dict)
    """The client id of each member id, by any source."""
    titles: dict[str, str] = field(default_factory=dict)
    """The instance id or client id of each member id: the log of a consumer group (KIP-848) has neither."""

    def __post_init__(self) -> None:
        for history in self.everything.values():
            self.names |= {one.member_id: one.client_id for one in history.stays if one.client_id}
            self.titles |= {one.member_id: one.name for one in history.stays}

    def score(self, found: Histories, *, knows_all: bool = False) -> Score:
        score = Score()
        for kind, scene in self.scenes:
            everything = self.everything.get(scene.group)
            history = found.get(scene.group) or GroupHistory(scene.group)
            if everything is not None:
                score.unseen += max(len(everything.rebalances) - sum(one.spans for one in history.rebalances), 0)
            for one in history.rebalances:
                verdict, told = self._judged(scene, one, score)
                score.verdicts[verdict] += 1
                if verdict == "wrong" or (knows_all and verdict != "right"):
                    score.told.append(f"{verdict}: {told}")
            self._judge_findings(kind, history, score, knows_all=knows_all)
        return score

    def not_explained(self, score: Score) -> list[str]:
        """Return what was done that must cause a rebalance, and that no rebalance names."""
        return [
            f"{scene.group}: {deed.client_id} {deed.what}"
            for _, scene in self.scenes
            for deed in scene.deeds
            if deed.must and id(deed) not in score.explained
        ]

    def _judged(self, scene: Scene, one: ExplainedRebalance, score: Score) -> tuple[str, str]:
        cause, member = one.cause.value, one.member.value
        deeds = list(_deeds_of(scene, one))
        who = self.names.get(member or "", member or "nobody")
        done = ", ".join(f"{deed.client_id} {deed.what}" for deed in deeds) or "nothing"
        told = f"{scene.group} {one.number}: {cause} by {who}; what was done: {done}"
        if cause is None:
            return "unknown", told
        verdicts = []
        for deed in deeds:
            is_cause = cause in deed.causes or (cause == GONE and deed.is_end)
            if is_cause and (not member or who == deed.client_id):
                score.explained.add(id(deed))
                verdicts.append("vague" if cause == GONE or not member else "right")
        if verdicts:
            return min(verdicts), told  # right before vague
        if cause not in BY_ITSELF:
            return "wrong", told
        follows_up = member and scene.has_revoked(who, one.at_ms - FOLLOW_UP_MS, one.at_ms + CLOCK_MS)
        return ("right" if follows_up and scene.is_cooperative else "unscripted"), told

    def _judge_findings(self, kind: str, history: GroupHistory, score: Score, *, knows_all: bool) -> None:
        plan = SCENES[kind]
        made = {(one.name, frozenset(self.titles.get(who, who) for who in one.members)) for one in findings_of(history)}
        for name, members in plan.finds.items():
            hits = {one for one in made if one[0] == name and (members is None or one[1] == members)}
            score.found += bool(hits)
            if not hits:
                score.missed += 1
                score.told.append(f"{history.group_id}: missed {name}")
            made -= hits
        for name, about in sorted(made, key=lambda one: (one[0], sorted(one[1]))):
            if name in plan.may:
                continue
            if name in plan.vague and not knows_all:
                score.vague += 1
                continue
            score.false += 1
            score.told.append(f"{history.group_id}: false finding {name} about {', '.join(sorted(about))}")


def _deeds_of(scene: Scene, one: ExplainedRebalance) -> Iterator[Deed]:
    """Return what was done at the time of a rebalance: mostly one thing, after a sample perhaps several."""
    low = high = one.at_ms
    if one.began_ms.value is not None and one.began_ms.bound is Bound.AT_LEAST:  # since the sample before
        low = one.began_ms.value
        high = max([high, *(each.at_ms or 0 for each in one.cause.evidence)])
    for deed in scene.deeds:
        if deed.from_ms - CLOCK_MS <= high and deed.to_ms + CLOCK_MS >= low:
            yield deed
