"""The tables of the clients' settings: names, types, bounds and defaults of the Java clients of Kafka 4.3.1.

    ConsumerSettings.of({"bootstrap.servers": "localhost:9092", "group.id": "orders"})
    ConsumerSettings.of(bootstrap_servers=["a:9092", "b:9092"], group_id="orders")
    AdminSettings.load(properties=text, sets=["request.timeout.ms=5000"])

`ClientSettings` has what all clients have; `ConsumerSettings`, `ProducerSettings` and `AdminSettings` add to it.
`UNSUPPORTED` has the rows of settings that only the Java clients have. docs/client-settings.md and
`coterie.client.settings_kwargs` are generated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, NamedTuple, Self

from coterie.settings.config_def import (
    Flag,
    Given,
    SettingsError,
    Unsupported,
    Word,
    Words,
    dotted,
    ignored,
    int32,
    int64,
    refused,
    setting,
    text_of,
    with_default,
)
from coterie.settings.config_providers import resolve_references
from coterie.settings.security_settings import UNSUPPORTED_SECURITY, SecuritySettings, protocol_problem
from coterie.settings.sources import from_properties, from_sets

__all__ = [
    "Address",
    "AdminSettings",
    "ClientSettings",
    "ConsumerSettings",
    "ProducerSettings",
    "check_mapping",
    "duration_ms",
    "heartbeat_problem",
]

CLIENT = "Every client"
GROUP = "The consumer: its group"
FETCH = "The consumer: reading"
PRODUCER = "The producer"

_NO_PUSH = "metrics are not pushed to brokers; metrics() has them"
_OWN_CHOICE = "a slow broker gets less as its queue grows, and is never left out"

UNSUPPORTED = (
    refused(
        "records carry bytes. Decode them where you read them: record.value.decode()",
        "key.deserializer value.deserializer",
    ),
    refused("records carry bytes. Encode them where you send them: text.encode()", "key.serializer value.serializer"),
    refused(
        "there is no JVM to load a class into. Wrap poll() or send() in a function of your own", "interceptor.classes"
    ),
    refused("there is no JVM to load a class into. Leave it out", "metric.reporters auto.include.jmx.reporter"),
    refused(
        "there is no JVM to load a class into. Name the partition in send(), or set partitioner.ignore.keys",
        "partitioner.class",
    ),
    ignored(
        "${env:NAME}, ${file:PATH} and ${file:PATH:KEY} are understood without it",
        "config.providers config.providers.env.* config.providers.file.*",
    ),
    refused(
        "there is no JVM to load a class into. ${env:NAME}, ${file:PATH} and ${file:PATH:KEY} need no provider",
        "config.providers.*",
    ),
    *UNSUPPORTED_SECURITY,
    refused("clients talk to brokers. Give bootstrap.servers", "bootstrap.controllers"),
    refused("there are no share groups", "share.acknowledgement.mode share.acquire.mode"),
    refused(
        "there are no transactions yet; leave it out, and the producer is idempotent",
        "transactional.id transaction.timeout.ms transaction.two.phase.commit.enable",
    ),
    refused("it is internal to the Java consumer. Leave it out", "internal.*"),
)


class Address(NamedTuple):
    """The address of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(texts: Sequence[str], security_protocol: str, problems: list[str]) -> tuple[Address, ...]:
    """Return the addresses of `bootstrap.servers`: host:port or [::1]:port, with or without SASL_SSL:// before it."""
    found = []
    for text in texts:
        protocol, _, rest = text.rpartition("://")
        host, colon, port = rest.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= 65_535:
            problems.append(f"bootstrap.servers has {text!r}: must be host:port, for example localhost:9092")
        elif problem := protocol_problem(protocol, text, security_protocol):
            problems.append(problem)
        else:
            found.append(Address(host.removeprefix("[").removesuffix("]"), int(port)))
    return tuple(found)


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


def check_mapping(values: object) -> None:
    """Raise a SettingsError if the settings of a client are no mapping: an address alone is a common mistake."""
    if not isinstance(values, Mapping):
        shown = repr(values) if isinstance(values, str) else type(values).__name__  # a list may have secrets
        raise SettingsError(
            f'settings are a mapping, not {shown}; give {{"bootstrap.servers": "localhost:9092"}}, or '
            'bootstrap_servers="localhost:9092"'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(SecuritySettings):
    """The settings that all clients have."""

    whose: ClassVar[str] = "a client"
    page: ClassVar[str] = "docs/client-settings.md"
    unsupported: ClassVar[Sequence[Unsupported]] = UNSUPPORTED
    other_names_must_agree: ClassVar[bool] = True

    bootstrap_servers: tuple[str, ...] = setting(
        CLIENT, (), Words(), "The brokers to connect to first, as host:port. One of them must be up."
    )
    client_id: str = setting(
        CLIENT, "", Word(), "The name of this client in the brokers' logs and in the member ids of a group."
    )
    request_timeout_ms: int = setting(CLIENT, 30_000, int32(0), "How long to wait for a response.")
    default_api_timeout_ms: int = setting(
        CLIENT, 60_000, int32(0), "How long a call without a timeout of its own may take, retries included."
    )
    retry_backoff_ms: int = setting(
        CLIENT, 100, int64(0), "The pause before the first retry. It doubles with each further one."
    )
    retry_backoff_max_ms: int = setting(CLIENT, 1_000, int64(0), "The longest pause before a retry.")
    reconnect_backoff_ms: int = setting(
        CLIENT,
        50,
        int64(0),
        "The pause before the client connects to a broker again. It doubles with each further attempt.",
    )
    reconnect_backoff_max_ms: int = setting(
        CLIENT, 1_000, int64(0), "The longest pause before the client connects to a broker again."
    )
    socket_connection_setup_timeout_ms: int = setting(
        CLIENT, 10_000, int64(0), "How long to wait for a connection. It doubles with each further attempt."
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        CLIENT, 30_000, int64(0), "The longest time to wait for a connection."
    )
    connections_max_idle_ms: int = setting(
        CLIENT, 540_000, int64(), "How long a connection may be idle before it is closed; a negative time is no limit."
    )
    metadata_max_age_ms: int = setting(
        CLIENT, 300_000, int64(0), "How long metadata is used before it is fetched again."
    )
    metadata_recovery_strategy: str = setting(
        CLIENT,
        "rebootstrap",
        Word(("rebootstrap", "none"), any_case=True),
        "What to do when no known broker answers. rebootstrap: connect to bootstrap.servers again. none: go "
        "on as before.",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = setting(
        CLIENT,
        300_000,
        int64(0),
        "How long to wait before the client connects to bootstrap.servers again.",
        unused="bootstrap.servers are asked again at once",
    )
    client_dns_lookup: str = setting(
        CLIENT,
        "use_all_dns_ips",
        Word(("use_all_dns_ips",)),
        "How host names are resolved: all addresses of a name are tried.",
        why="the other value is for Kerberos, which is not supported",
    )
    send_buffer_bytes: int = setting(
        CLIENT, 131_072, int32(-1), "The send buffer of the socket; -1 is the system's default."
    )
    receive_buffer_bytes: int = setting(
        CLIENT, 65_536, int32(-1), "The receive buffer of the socket; -1 is the system's default."
    )
    enable_metrics_push: bool = setting(
        CLIENT, True, Flag(), "Whether metrics are pushed to the brokers.", unused=_NO_PUSH
    )
    metrics_num_samples: int = setting(
        CLIENT, 2, int32(1), "How many samples an average, a maximum or a rate is made from."
    )
    metrics_recording_level: str = setting(
        CLIENT, "INFO", Word(("INFO", "DEBUG", "TRACE")), "How much is measured.", unused="everything is measured"
    )
    metrics_sample_window_ms: int = setting(CLIENT, 30_000, int64(0), "How long a sample of a metric lasts.")
    coterie_max_response_bytes: int = setting(
        CLIENT,
        268_435_456,
        int32(1_048_576),
        "The largest response that is accepted. If a broker announces more, the connection is closed.",
    )

    @classmethod
    def of(cls, values: Mapping[str, object] = MappingProxyType({}), **more: object) -> Self:
        """Make settings from values in Python.

        Args:
            values: Settings by name, with dots or underscores. None counts as not given.
            **more: Settings as keywords, which count more.

        Returns:
            The settings, with the defaults of those that are not given.

        Raises:
            SettingsError: A setting is unknown, or its value is not allowed; there is a line for each.
        """
        check_mapping(values)
        both = {dotted(name): value for name, value in values.items()}
        both |= {dotted(name): value for name, value in more.items()}
        given = [
            Given(name, text_of(value), "settings", value=value) for name, value in both.items() if value is not None
        ]
        return cls._resolved(given, [])

    @classmethod
    def of_arguments(cls, settings: Mapping[str, object] | Self | None, keywords: Mapping[str, object]) -> Self:
        """Return what a client was given: settings as an object, or a mapping, keywords or both."""
        if settings is None or isinstance(settings, Mapping):
            return cls.of(settings or {}, **keywords)
        if not isinstance(settings, cls):
            check_mapping(settings)
        if keywords:
            raise SettingsError(
                f"settings are given as an object already, so that {', '.join(keywords)} comes too late: "
                f"give all of them to {cls.__name__}.of()"
            )
        return settings

    @classmethod
    def load(
        cls,
        properties: str = "",
        sets: Sequence[str] = (),
        defaults: Mapping[str, object] = MappingProxyType({}),
        **more: object,
    ) -> Self:
        """Make settings from a file, then from `--set name=value`, then from keywords: the later one counts.

        Args:
            properties: The text of a properties file.
            sets: Texts of the form `name=value`.
            defaults: Defaults of the caller, in the place of Kafka's.
            **more: Settings as keywords.

        Returns:
            The settings, with the defaults of those that are not given.

        Raises:
            SettingsError: A setting is unknown, or its value is not allowed; there is a line for each.
        """
        problems: list[str] = []
        given = [
            *from_properties(properties, problems),
            *from_sets(sets, problems),
            *(Given(name, text_of(value), f"{name}=") for name, value in more.items() if value is not None),
        ]
        return cls._resolved(given, problems, defaults)

    @classmethod
    def _resolved(
        cls, given: Sequence[Given], problems: list[str], defaults: Mapping[str, object] = MappingProxyType({})
    ) -> Self:
        return cls.settled(resolve_references(given, problems), problems, defaults)

    def contradictions(self) -> list[str]:
        problems = SecuritySettings.contradictions(self)
        parse_addresses(self.bootstrap_servers, self.security_protocol, problems)
        return problems

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Return the addresses of `bootstrap.servers`; raise a SettingsError if there are none."""
        problems: list[str] = []
        found = parse_addresses(self.bootstrap_servers, self.security_protocol, problems)
        if problems or not found:
            raise SettingsError(
                "\n".join(problems) or "bootstrap.servers is empty: name a broker, as in localhost:9092"
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings(ClientSettings):
    """The settings of an admin."""

    whose: ClassVar[str] = "an admin"

    connections_max_idle_ms: int = with_default(ClientSettings, "connections.max.idle.ms", 300_000)
    enable_metrics_push: bool = with_default(ClientSettings, "enable.metrics.push", False)
    retries: int = setting(
        CLIENT,
        2**31 - 1,
        int32(0),
        "How often a call is retried.",
        unused="default.api.timeout.ms says how long a call is retried",
    )

    def contradictions(self) -> list[str]:
        problems = ClientSettings.contradictions(self)
        if "default.api.timeout.ms" in self.given and self.default_api_timeout_ms < self.request_timeout_ms:
            problems.append(
                f"default.api.timeout.ms is {self.default_api_timeout_ms}, request.timeout.ms {self.request_timeout_ms}"
                ": a call could end before its first answer may. Raise the one or lower the other"
            )
        return problems


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """The settings of a producer."""

    whose: ClassVar[str] = "a producer"

    receive_buffer_bytes: int = with_default(ClientSettings, "receive.buffer.bytes", 32_768)
    acks: str = setting(
        PRODUCER,
        "all",
        Word(("all", "-1", "0", "1")),
        "Who must have a record before it is acknowledged: all in-sync replicas (all), the leader (1) or nobody (0).",
    )
    enable_idempotence: bool = setting(
        PRODUCER, True, Flag(), "Whether each record is stored exactly once and in order, however often it is sent."
    )
    retries: int = setting(PRODUCER, 2**31 - 1, int32(0), "How often a batch is sent again.")
    delivery_timeout_ms: int = setting(
        PRODUCER, 120_000, int32(0), "How long it may take to deliver a record after send(), retries included."
    )
    max_in_flight_requests_per_connection: int = setting(
        PRODUCER, 5, int32(1), "How many requests to a broker may be unanswered at a time."
    )
    batch_size: int = setting(PRODUCER, 16_384, int32(0), "The size at which a batch is full.")
    linger_ms: int = setting(PRODUCER, 5, int64(0), "How long a batch that is not full waits for more records.")
    buffer_memory: int = setting(
        PRODUCER, 33_554_432, int64(0), "The memory for records that wait to be sent. If it is used up, send() waits."
    )
    max_block_ms: int = setting(PRODUCER, 60_000, int64(0), "How long send() may wait for memory or for metadata.")
    max_request_size: int = setting(PRODUCER, 1_048_576, int32(0), "The largest request, and so the largest record.")
    compression_type: str = setting(
        PRODUCER, "none", Word(("none", "gzip", "snappy", "lz4", "zstd")), "The codec that batches are compressed with."
    )
    compression_gzip_level: int = setting(PRODUCER, -1, int32(1, 9, (-1,)), "The compression level of gzip.")
    compression_lz4_level: int = setting(
        PRODUCER,
        9,
        int32(1, 17),
        "The compression level of lz4.",
        unused="there is one level of lz4, the fast one, which is Kafka's default",
    )
    compression_zstd_level: int = setting(PRODUCER, 3, int32(-131_072, 22), "The compression level of zstd.")
    metadata_max_idle_ms: int = setting(
        PRODUCER,
        300_000,
        int64(5_000),
        "How long the metadata of a topic is kept after the last record was sent to it.",
    )
    partitioner_ignore_keys: bool = setting(
        PRODUCER, False, Flag(), "Whether the key is ignored when a partition is chosen."
    )
    partitioner_adaptive_partitioning_enable: bool = setting(
        PRODUCER, True, Flag(), "Whether brokers with short queues get more of the records that have no key (KIP-794)."
    )
    partitioner_availability_timeout_ms: int = setting(
        PRODUCER, 0, int64(0), "How long a broker may be slow before it gets no more records.", unused=_OWN_CHOICE
    )

    def contradictions(self) -> list[str]:
        problems = ClientSettings.contradictions(self)
        if "delivery.timeout.ms" in self.given and self.delivery_timeout_ms < self.delivers_within_ms:
            problems.append(
                f"delivery.timeout.ms is {self.delivery_timeout_ms}: "
                f"it is to be at least linger.ms + request.timeout.ms, which is {self.delivers_within_ms}"
            )
        if self.enable_idempotence and "enable.idempotence" in self.given:
            problems += [f"enable.idempotence is true and {why}" for why in self._not_idempotent()]
        return problems

    def _not_idempotent(self) -> list[str]:
        why = []
        if self.acks not in {"all", "-1"}:
            why.append(f"acks is {self.acks}: it is to be all")
        if self.retries == 0:
            why.append("retries is 0: it is to be more")
        if self.max_in_flight_requests_per_connection > 5:
            why.append(
                f"max.in.flight.requests.per.connection is {self.max_in_flight_requests_per_connection}: at most 5"
            )
        return why

    @property
    def delivers_within_ms(self) -> int:
        """`delivery.timeout.ms`, raised where it would not allow a batch its first try (as in Java)."""
        return max(self.delivery_timeout_ms, self.linger_ms + self.request_timeout_ms)

    @property
    def is_idempotent(self) -> bool:
        """True unless it is turned off or, as in Java, acks, retries or max.in.flight make it impossible."""
        return self.enable_idempotence and not self._not_idempotent()

    @property
    def required_acks(self) -> int:
        return -1 if self.acks == "all" else int(self.acks)
