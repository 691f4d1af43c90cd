"""Detectors about who reads what now: skew, idle members, topics that nobody reads, subscriptions, empty groups."""

from __future__ import annotations

from collections import Counter

from coterie.diagnosis.context import Context, evidence_of, is_present, names
from coterie.diagnosis.cost import owners_after
from coterie.diagnosis.evidence import Evidence, Grade
from coterie.diagnosis.model import Finding, GroupSample, MemberSpan, Severity

SKEW = 2
"""A member that has so many times the partitions of another, and at least as many more, has too many."""


def _now(context: Context) -> int:
    return context.history.to_ms or 0


def _present(context: Context) -> list[MemberSpan]:
    return [one for one in context.stays if is_present(one, _now(context))]


def _sampled(sample: GroupSample) -> Evidence:
    return Evidence(Grade.SAMPLED, "describe", sample.at_ms, f"{sample.state}, {len(sample.members)} members")


def _last_sample(context: Context) -> GroupSample | None:
    return context.history.samples[-1] if context.history.samples else None


def _is_settled(context: Context) -> bool:
    """Return whether the last rebalance has ended."""
    last = context.history.rebalances[-1] if context.history.rebalances else None
    return last is not None and last.outcome.value == "stable"


def skewed_assignment(context: Context) -> list[Finding]:
    """Find members with the same subscription of which one has many more partitions than another."""
    found = []
    owners = owners_after(context.history.intervals, _now(context))
    counts = Counter(owners.values())
    by_topics: dict[tuple[str, ...], list[MemberSpan]] = {}
    for one in _present(context):
        by_topics.setdefault(one.topics.value or (), []).append(one)
    for members in by_topics.values():
        if len(members) < 2 or not _is_settled(context):
            continue
        ordered = sorted(members, key=lambda one: counts[one.member_id])
        least, most = counts[ordered[0].member_id], counts[ordered[-1].member_id]
        if least == 0 or most - least < SKEW or most < SKEW * least:
            continue  # a member without any is `idle-members`
        found.append(
            context.finding(
                "skewed-assignment",
                Severity.INFO,
                f"{ordered[-1].name} has {most} partitions and {ordered[0].name} has {least}, although they subscribe "
                "to the same topics.",
                "The range assignor does this with several topics: use cooperative-sticky, or group.protocol=consumer.",
                members=[ordered[-1], ordered[0]],
                evidence=evidence_of(*(one.moves for one in context.history.rebalances[-1:])),
                inferred="" if context.history.rebalances else "the owners in the last sample",
                times=(_now(context), _now(context)),
            )
        )
    return found


def idle_members(context: Context) -> list[Finding]:
    """Find members without partitions, in a group that has all partitions assigned."""
    members = _present(context)
    owners = owners_after(context.history.intervals, _now(context))
    if not owners or len(members) <= len(owners) or not _is_settled(context):
        return []
    idle = [one for one in members if one.member_id not in set(owners.values())]
    if not idle:
        return []
    return [
        context.finding(
            "idle-members",
            Severity.INFO,
            f"{len(idle)} of {len(members)} members have no partition, since there are only {len(owners)}: "
            f"{names(idle)}.",
            "Add partitions, or run fewer members. As spare members they cost little, but each join is a rebalance.",
            members=idle,
            evidence=evidence_of(*(one.moves for one in context.history.rebalances[-1:])),
            times=(_now(context), _now(context)),
        )
    ]


def different_subscriptions(context: Context) -> list[Finding]:
    """Find members of one group that subscribe to different topics."""
    by_topics: dict[tuple[str, ...], list[MemberSpan]] = {}
    for one in _present(context):
        if one.topics.value is not None:
            by_topics.setdefault(one.topics.value, []).append(one)
    if len(by_topics) < 2:
        return []
    by_member = "; ".join(f"{names(members)}: {', '.join(topics) or 'none'}" for topics, members in by_topics.items())
    members = [one for some in by_topics.values() for one in some]
    return [
        context.finding(
            "different-subscriptions",
            Severity.WARNING,
            f"Members subscribe to different topics ({by_member}).",
            "This is right during a deployment that adds a topic. Otherwise use a group for each set of topics: here, "
            "each change of one part is a rebalance of all.",
            members=members,
            evidence=evidence_of(*(one.topics for one in members)),
            times=(_now(context), _now(context)),
        )
    ]


def unread_topic(context: Context) -> list[Finding]:
    """Find topics with committed offsets that no member of a stable group reads."""
    sample = _last_sample(context)
    if sample is None or sample.state != "Stable" or not sample.members:
        return []
    owned = {one.topic for one in sample.partitions if one.owner}
    left: dict[str, list[int]] = {}
    for one in sample.partitions:
        if not one.owner and one.topic not in owned and one.committed is not None:
            left.setdefault(one.topic, []).append(one.lag or 0)
    return [
        context.finding(
            "unread-topic",
            Severity.WARNING if sum(lags) else Severity.INFO,
            f"No member reads {topic}, of which the group has committed offsets; its lag is {sum(lags)} records.",
            f"Subscribe to it, or delete the offsets: coterie groups delete-offsets {sample_group(context)} --topic "
            f"{topic}",
            evidence=[_sampled(sample)],
            times=(sample.at_ms, sample.at_ms),
        )
        for topic, lags in sorted(left.items())
    ]


def sample_group(context: Context) -> str:
    return context.history.group_id


def lag_without_members(context: Context) -> list[Finding]:
    """Find an empty group with lag."""
    sample = _last_sample(context)
    if sample is None or sample.state != "Empty" or sample.members or not sample.lag:
        return []
    since = next((one.at_ms for one in context.history.samples if one.state == "Empty"), sample.at_ms)
    return [
        context.finding(
            "lag-without-members",
            Severity.CRITICAL,
            f"The group has no members, and {sample.lag} records wait.",
            "Start its consumers. If the group is not used any more, delete it: coterie groups delete "
            f"{context.history.group_id}",
            evidence=[_sampled(sample)],
            times=(since, sample.at_ms),
        )
    ]
