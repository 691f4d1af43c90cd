"""The settings of a consumer: its group, and how it fetches.

ConsumerSettings.of({"bootstrap.servers": "localhost:9092", "group.id": "orders"})
ConsumerSettings.of(bootstrap_servers=["a:9092", "b:9092"], group_id="orders")
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from coterie.settings.client_settings import ClientSettings
from coterie.settings.config_def import Flag, Word, Words, int32, setting

GROUP = "The consumer: its group"
FETCH = "The consumer: reading"

_DURATION = re.compile(
    r"P(?:(?P<days>\d{1,9})D)?(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)S)?)?",
    re.ASCII,
)
_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


def duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 duration, as in PT1H30M; raise ValueError if it is not one."""
    match = _DURATION.fullmatch(text.strip().upper())
    parts = {} if match is None else {name: found for name, found in match.groupdict().items() if found}
    if not parts:
        raise ValueError(
            f"{text!r} is not a duration: give days, hours, minutes, seconds as in P7D, PT1H30M or P1DT0.5S"
        )
    return round(sum(float(found) * _MS[name] for name, found in parts.items()))


class Assignors(Words):
    """A list of assignors by name. Java's class names mean the same."""

    _JAVA: Mapping[str, str] = {
        f"org.apache.kafka.clients.consumer.{name}Assignor": ours
        for name, ours in {
            "Range": "range",
            "RoundRobin": "roundrobin",
            "Sticky": "sticky",
            "CooperativeSticky": "cooperative-sticky",
        }.items()
    }

    def read(self, text: str) -> tuple[str, ...]:
        names = Words.read(self, text)
        if not names:
            raise ValueError(text)
        return tuple(dict.fromkeys(self._JAVA.get(name, name) for name in names))


class OffsetReset(Word):
    """latest, earliest, none or by_duration:PT1H (KIP-1106)."""

    @property
    def allowed(self) -> str:
        return "latest, earliest, none, or by_duration: and an ISO 8601 duration, as in by_duration:PT1H"

    def read(self, text: str) -> str:
        kind, _, rest = text.strip().partition(":")
        if kind == "by_duration":
            duration_ms(rest)
            return f"{kind}:{rest}"
        return Word(("latest", "earliest", "none")).read(text)


def heartbeat_problem(heartbeat_interval_ms: int, session_timeout_ms: int) -> str | None:
    """Return what is wrong with these two settings of a member, if anything is."""
    if heartbeat_interval_ms < session_timeout_ms:
        return None
    return (
        f"heartbeat.interval.ms is {heartbeat_interval_ms}, session.timeout.ms {session_timeout_ms}: "
        "a member would be out before its next heartbeat. A third of the session is usual"
    )


_NOT_WITH: Mapping[str, Mapping[str, str]] = {
    "classic": {
        "group.remote.assignor": "the members assign the partitions themselves, by partition.assignment.strategy",
    },
    "consumer": {
        "partition.assignment.strategy": "the broker assigns the partitions. Use group.remote.assignor",
        "session.timeout.ms": "the broker has group.consumer.session.timeout.ms, and consumer.session.timeout.ms of "
        "the group",
        "heartbeat.interval.ms": "the broker has group.consumer.heartbeat.interval.ms, and "
        "consumer.heartbeat.interval.ms of the group",
    },
}
"""Settings that a group protocol does not have, as in Java."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(ClientSettings):
    """The settings of a consumer."""

    whose: ClassVar[str] = "a consumer"

    group_id: str | None = setting(
        GROUP, None, Word(is_empty_allowed=False), "The consumer group that this consumer is a member of."
    )
    group_instance_id: str | None = setting(
        GROUP,
        None,
        Word(is_empty_allowed=False),
        "The name of a static member. It stays the same over restarts, so that a restart causes no "
        "rebalance (KIP-345).",
    )
    group_protocol: str = setting(
        GROUP,
        "classic",
        Word(("classic", "consumer"), any_case=True),
        "The group protocol. classic: the members assign the partitions themselves. consumer: the broker assigns them "
        "(KIP-848), which needs Kafka 4.0 or newer.",
    )
    group_remote_assignor: str | None = setting(
        GROUP,
        None,
        Word(is_empty_allowed=False),
        "The broker's assignor, uniform or range, with group.protocol=consumer. Without it the broker chooses.",
    )
    partition_assignment_strategy: tuple[str, ...] = setting(
        GROUP,
        ("range", "cooperative-sticky"),
        Assignors(),
        "The assignors that this member supports, in order of preference.",
    )
    session_timeout_ms: int = setting(
        GROUP, 45_000, int32(1), "How long a member may be silent before the broker removes it from the group."
    )
    heartbeat_interval_ms: int = setting(GROUP, 3_000, int32(1), "The time between two heartbeats.")
    max_poll_interval_ms: int = setting(
        GROUP,
        300_000,
        int32(1),
        "The longest time between two calls of poll(). A member that takes longer leaves the group.",
    )
    enable_auto_commit: bool = setting(GROUP, True, Flag(), "Whether positions are committed in the background.")
    auto_commit_interval_ms: int = setting(
        GROUP, 5_000, int32(0), "How often positions are committed in the background."
    )
    client_rack: str = setting(
        GROUP,
        "",
        Word(),
        "The rack of this client, for rack-aware assignors and for fetching from the nearest replica.",
    )
    allow_auto_create_topics: bool = setting(
        GROUP, True, Flag(), "Whether subscribing to a topic creates it, if the broker allows that."
    )
    exclude_internal_topics: bool = setting(
        GROUP, True, Flag(), "Whether a subscription by pattern leaves internal topics out."
    )

    auto_offset_reset: str = setting(
        FETCH,
        "latest",
        OffsetReset(),
        "Where to begin if the group has no committed offset, or the offset no longer exists.",
    )
    fetch_min_bytes: int = setting(FETCH, 1, int32(0), "How many bytes the broker waits for before it answers a fetch.")
    fetch_max_wait_ms: int = setting(FETCH, 500, int32(0), "How long the broker waits for fetch.min.bytes.")
    fetch_max_bytes: int = setting(
        FETCH,
        52_428_800,
        int32(0),
        "The largest response to a fetch. The first batch is returned even if it is larger.",
    )
    max_partition_fetch_bytes: int = setting(
        FETCH,
        1_048_576,
        int32(0),
        "The most data of one partition in a response. The first batch is returned even if it is larger.",
    )
    max_poll_records: int = setting(FETCH, 500, int32(1), "The most records that one poll() returns.")
    isolation_level: str = setting(
        FETCH,
        "read_uncommitted",
        Word(("read_uncommitted", "read_committed")),
        "Which records of transactions are returned: all of them, or only those of committed transactions.",
    )
    check_crcs: bool = setting(FETCH, True, Flag(), "Whether the checksum of each batch is verified.")

    def contradictions(self) -> list[str]:
        problems = ClientSettings.contradictions(self)
        problem = heartbeat_problem(self.heartbeat_interval_ms, self.session_timeout_ms)
        problems += [problem] if problem else []
        problems += [
            f"{name} cannot be set with group.protocol={self.group_protocol}: {why}"
            for name, why in _NOT_WITH[self.group_protocol].items()
            if name in self.given
        ]
        if self.enable_auto_commit and "enable.auto.commit" in self.given and self.group_id is None:
            problems.append("enable.auto.commit=true needs a group.id")
        return problems

    @property
    def commits_automatically(self) -> bool:
        """True if positions are committed automatically; never without a group, as in Java."""
        return self.enable_auto_commit and self.group_id is not None

    @property
    def reads_committed(self) -> bool:
        return self.isolation_level == "read_committed"
