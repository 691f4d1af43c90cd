"""A group for a forecast, from its history: what was measured, and what has to be assumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

from coterie.diagnosis.context import Context, is_present
from coterie.diagnosis.cost import produce_rate
from coterie.diagnosis.model import GroupHistory, GroupSample, MemberSpan
from coterie.errors import CoterieError
from coterie.facts import CONSUMER
from coterie.forecast.group_model import (
    ASSUMED,
    ASSUMED_RECORD_MS,
    ASSUMED_RESTART_S,
    MEASURED,
    STATIC,
    STATIC_EACH,
    GroupModel,
    MemberModel,
    Origin,
    TopicModel,
)
from coterie.settings.consumer_settings import ConsumerSettings

LONGEST_RESTART_MS = 600_000
"""A member that comes back later was not restarted."""
_DEFAULT_BEAT_MS = ConsumerSettings().heartbeat_interval_ms

Sizes = Mapping[str, int]


def recorded_group(history: GroupHistory) -> GroupModel:
    """Return the group as its history shows it at its end. Raise an error if it has no members then."""
    to_ms = history.to_ms or 0
    members = [one for one in history.members.values() if is_present(one, to_ms)]
    if not members:
        raise CoterieError(f'group "{history.group_id}" has no members: a forecast needs a group that runs')
    sizes = _sizes(history)
    if not sizes:
        raise CoterieError(
            f'the partitions of group "{history.group_id}" are not known: nothing was assigned or committed yet'
        )
    rate, rate_origin = _rate(history, to_ms)
    settings, settings_origin = _settings(history, members)
    restart_s, restart_origin = _restart(history)
    record_ms, record_origin = _record_ms(history, members, sum(sizes.values()) * (rate or 0.0))
    measured = Origin(MEASURED, f"the group at the end of {_length(history)}")
    return GroupModel(
        history.group_id,
        tuple(_members(members, sizes)),
        {name: TopicModel(count, round((rate or 0.0) * count, 3)) for name, count in sizes.items()},
        settings,
        record_ms,
        restart_s,
        origins={
            "members": measured,
            "partitions": measured,
            "records_per_s": rate_origin,
            "ms_per_record": record_origin,
            "restart_s": restart_origin,
            "pauses": Origin(ASSUMED, "there are none; give pause_s and pause_every_s in a file if there are"),
            "network_ms": Origin(ASSUMED, "the same network"),
            "settings": settings_origin,
        },
    )


def _length(history: GroupHistory) -> str:
    if history.from_ms is None or history.to_ms is None:
        return "what was read"
    return f"{(history.to_ms - history.from_ms) / 1_000:.0f} s of history"


def _sizes(history: GroupHistory) -> dict[str, int]:
    """Return the topics and their numbers of partitions, as far as the group has read them."""
    seen = [one.partition for one in history.intervals]
    seen += [(one.topic, one.partition) for sample in history.samples[-1:] for one in sample.partitions]
    sizes: dict[str, int] = {}
    for topic, number in seen:
        sizes[topic] = max(sizes.get(topic, 0), number + 1)
    return dict(sorted(sizes.items()))


def _members(members: Sequence[MemberSpan], sizes: Sizes) -> list[MemberModel]:
    """Return the members with their subscriptions. A name that is there twice gets a number."""
    found: list[MemberModel] = []
    taken: dict[str, int] = {}
    for one in members:
        count = taken[one.name] = taken.get(one.name, 0) + 1
        topics = tuple(topic for topic in one.topics.value or () if topic in sizes)
        is_all = not topics or set(topics) == set(sizes)
        found.append(MemberModel(one.name if count == 1 else f"{one.name}-{count}", () if is_all else topics))
    return found


def _rate(history: GroupHistory, to_ms: int) -> tuple[float | None, Origin]:
    rate = produce_rate(history, to_ms)
    if rate is None:
        return None, Origin(ASSUMED, "unknown, so nothing is said about lag: it needs two samples")
    return rate, Origin(MEASURED, f"from the ends of partitions in {len(history.samples)} samples")


def _settings(history: GroupHistory, members: Sequence[MemberSpan]) -> tuple[dict[str, str], Origin]:
    """Return what the group's members told the broker. The rest of their settings is not known to it."""
    found: dict[str, str] = {}
    is_consumer = history.group_type == CONSUMER
    if is_consumer:
        found["group.protocol"] = "consumer"
    elif history.rebalances and history.rebalances[-1].assignor.value:
        found["partition.assignment.strategy"] = str(history.rebalances[-1].assignor.value)
    sessions = [one.session_timeout_ms.value for one in members if one.session_timeout_ms.value]
    polls = [one.rebalance_timeout_ms.value for one in members if one.rebalance_timeout_ms.value]
    if sessions and not is_consumer:
        session_ms = round(median(sessions))
        found["session.timeout.ms"] = str(session_ms)
        if session_ms <= _DEFAULT_BEAT_MS:
            found["heartbeat.interval.ms"] = str(max(session_ms // 3, 1))
    if polls:
        found["max.poll.interval.ms"] = str(round(median(polls)))
    if all(one.instance_id for one in members):
        found[STATIC] = STATIC_EACH
    known = ", ".join(found) or "none"
    return found, Origin(MEASURED, f"{known}. The others are assumed to have Kafka's defaults")


def _restart(history: GroupHistory) -> tuple[float, Origin]:
    """Return how long a process is away when it is restarted, from those that came back."""
    away = [one.away_ms for one in Context(history).returns if not one.is_same_process]
    short = [one for one in away if 0 < one <= LONGEST_RESTART_MS]
    if not short:
        return ASSUMED_RESTART_S, Origin(ASSUMED, "no restart was seen")
    return round(median(short) / 1_000, 1), Origin(MEASURED, f"the median of {len(short)} restarts")


def _record_ms(history: GroupHistory, members: Sequence[MemberSpan], records_per_s: float) -> tuple[float, Origin]:
    """Return the processing time of a record: by what clients report, or by the speed of a group that has lag."""
    idle = [one.poll_idle_ratio.value for one in members if one.poll_idle_ratio.value is not None]
    if idle and records_per_s:
        busy = 1 - sum(idle) / len(idle)
        return round(busy * len(members) * 1_000 / records_per_s, 3), Origin(
            MEASURED, f"{len(idle)} clients report poll-idle-ratio"
        )
    speeds = [speed for before, after in pairwise(history.samples) if (speed := _speed(before, after))]
    if speeds:
        return round(len(members) * 1_000 / max(speeds), 3), Origin(
            MEASURED, "the fastest that the group committed while it had lag"
        )
    return ASSUMED_RECORD_MS, Origin(ASSUMED, "no client reports it, and the group had no lag that it worked off")


def _speed(before: GroupSample, after: GroupSample) -> float | None:
    """Return the records per second that were committed between two samples, if there was lag all the time."""
    seconds = (after.at_ms - before.at_ms) / 1_000
    first = {(one.topic, one.partition): one for one in before.partitions}
    rows = [(first.get((one.topic, one.partition)), one) for one in after.partitions]
    if seconds <= 0 or before.members != after.members or not rows:
        return None
    done = 0
    for was, now in rows:
        if was is None or was.committed is None or now.committed is None or not was.lag or not now.lag:
            return None
        done += now.committed - was.committed
    return done / seconds if done > 0 else None
