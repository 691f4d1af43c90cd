"""Every option of source and sink, and what may not be said together; pure. docs/spark-options.md has the table.

Names and meanings are those of Spark's Kafka source and sink, so that `format("kafka")` becomes `format("coterie")` and
nothing else changes. As there, the case of a name does not count, and `kafka.*` are the settings of the client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any, TypeVar

from coterie.client.types import TopicPartition
from coterie.errors import MalformedError
from coterie.settings import SettingsError
from coterie.settings.client_settings import AdminSettings
from coterie.settings.config_def import Flag, Word, Words, dotted, int32, int64
from coterie.settings.consumer_settings import ConsumerSettings
from coterie.settings.producer_settings import ProducerSettings
from coterie.spark.offsets import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTime,
    AtTimes,
    Committed,
    Everywhere,
    OffsetLimit,
    parse_assignment,
    parse_numbers,
)

__all__ = ["OPTIONS", "Option", "SinkOptions", "SourceOptions", "Use"]


# Types of values beside those of `coterie.settings.config_def`: offsets, times, patterns.


class PartitionsJson(Words):
    @property
    def allowed(self) -> str:
        return 'JSON of topics and their partitions, as in {"orders": [0, 1]}'

    def read(self, text: str) -> Any:
        return parse_assignment(text)


class TopicPattern(Word):
    @property
    def allowed(self) -> str:
        return "a regular expression for the whole name of a topic"

    def read(self, text: str) -> Any:
        try:
            return re.compile(text)
        except re.error as error:
            raise ValueError(error) from None


class OffsetsJson(Word):
    """Some words, or JSON of offsets."""

    @property
    def allowed(self) -> str:
        return f'{", ".join(self.choices)}, or JSON of offsets, as in {{"orders": {{"0": 23, "1": -2}}}}'

    def read(self, text: str) -> Any:
        word = text.strip().lower()
        if word in self.choices:
            return {"earliest": Everywhere(EARLIEST), "latest": Everywhere(LATEST), "committed": Committed()}[word]
        offsets = parse_numbers(text)
        for partition, offset in offsets.items():
            if offset < EARLIEST:
                raise MalformedError(f"{partition} has {offset}: offsets begin at 0; -1 is the latest, -2 the earliest")
        return AtOffsets(offsets)


class TimesJson(Word):
    @property
    def allowed(self) -> str:
        return 'JSON of times in milliseconds, as in {"orders": {"0": 1700000000000}}'

    def read(self, text: str) -> Any:
        times = parse_numbers(text)
        for partition, time in times.items():
            if time < 0:
                raise MalformedError(f"{partition} has {time}: a time is milliseconds since 1970")
        return AtTimes(times)


class Duration(Word):
    _UNITS: Mapping[str, int] = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

    @property
    def allowed(self) -> str:
        return f"a whole number and one of {', '.join(self._UNITS)}, as in 15m"

    def read(self, text: str) -> Any:
        found = re.fullmatch(r"\s*([0-9]{1,15})\s*([a-z]*)\s*", text.lower(), re.ASCII)
        if found is None or (found[2] or "ms") not in self._UNITS:
            raise ValueError(text)
        return int(found[1]) * self._UNITS[found[2] or "ms"]


_Settings = TypeVar("_Settings", ConsumerSettings, ProducerSettings)

CLIENT_PREFIX = "kafka."
SPARKS_OWN = frozenset({"path", "checkpointlocation", "queryname", "outputmode"})
"""Options of Spark itself, which it passes to a sink too."""


class Use(Enum):
    BATCH = "batch"
    STREAM = "stream"
    SINK = "sink"


BATCH, STREAM, SINK = Use


@dataclass(frozen=True, slots=True)
class Option:
    """A row of the table of options."""

    name: str
    kind: Any
    uses: frozenset[Use]
    doc: str
    default: Any = None
    unused: str = ""
    """The reason why it is accepted without effect."""

    @property
    def field_name(self) -> str:
        return re.sub(r"(?<=[a-z0-9])([A-Z])|\.", lambda found: f"_{found[1] or ''}", self.name).lower()


_READ, _ALL = frozenset({BATCH, STREAM}), frozenset(Use)
_BATCH, _STREAM, _SINK = frozenset({BATCH}), frozenset({STREAM}), frozenset({SINK})
_NO_PREFIX = "no group id is generated: without groupId there is no group"
_RETRIED = "kafka.default.api.timeout.ms and kafka.retry.backoff.ms say how long and how often it is retried"

OPTIONS: Sequence[Option] = (
    Option("subscribe", Words(), _READ, "The topics to read, separated by commas."),
    Option(
        "subscribePattern",
        TopicPattern(),
        _READ,
        "A regular expression. All topics whose whole name matches are read, also those that are created later.",
    ),
    Option("assign", PartitionsJson(), _READ, "The partitions to read."),
    Option(
        "groupId",
        Word(is_empty_allowed=False),
        _READ,
        "A streaming query is a member of this group: it reads what the group assigns to it and commits what Spark has "
        "made durable. A batch read only looks up its offsets (startingOffsets=committed).",
    ),
    Option(
        "checkpointLocation",
        Word(is_empty_allowed=False),
        _STREAM,
        "With groupId: the same checkpointLocation as the query's. A query that is stopped cleanly then commits its "
        "last batch before it leaves the group, and nothing is read twice.",
    ),
    Option(
        "transactionalSink",
        Word(is_empty_allowed=False),
        _STREAM,
        "With groupId: the sink that commits the group's offsets in its transactions. "
        "TransactionalSink.source_options() sets it.",
    ),
    Option(
        "startingOffsets",
        OffsetsJson(("earliest", "latest", "committed")),
        _READ,
        "Where a query without a checkpoint begins. Default: earliest for a batch, latest for a stream, committed with "
        "groupId. With groupId it is for partitions that the group has no offset for.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        TimesJson(),
        _READ,
        "A time for each partition. Reading begins at the first record at or after it.",
    ),
    Option(
        "startingTimestamp",
        int64(0),
        _READ,
        "A time in milliseconds for all partitions. Reading begins at the first record at or after it.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        Word(("error", "latest"), any_case=True),
        _READ,
        "What to do if there is no record after the time: fail (error), or begin at the end (latest).",
        "error",
    ),
    Option("endingOffsets", OffsetsJson(("latest",)), _BATCH, "The offsets that a batch ends before.", None),
    Option(
        "endingOffsetsByTimestamp",
        TimesJson(),
        _BATCH,
        "A time for each partition. A batch ends before the first record at or after it, or at the end.",
    ),
    Option(
        "endingTimestamp",
        int64(0),
        _BATCH,
        "A time in milliseconds for all partitions. A batch ends before the first record at or after it.",
    ),
    Option(
        "failOnDataLoss",
        Flag(),
        _READ,
        "Whether the query fails if records were deleted before it read them, by retention or with their topic.",
        True,
    ),
    Option(
        "maxOffsetsPerTrigger",
        int64(1),
        _READ,
        "The most records that a batch reads, divided among the partitions by how much each has.",
    ),
    Option(
        "minOffsetsPerTrigger",
        int64(1),
        _READ,
        "How many records a batch waits for, but not longer than maxTriggerDelay.",
    ),
    Option("maxTriggerDelay", Duration(), _READ, "How long a batch waits for minOffsetsPerTrigger.", 15 * 60_000),
    Option(
        "minPartitions",
        int32(1, 1_000_000),
        _READ,
        "The least number of tasks. Large partitions are divided among several.",
    ),
    Option("maxRecordsPerPartition", int64(1), _READ, "The most records that one task reads."),
    Option("includeHeaders", Flag(), _ALL, "Whether rows have a column for the headers of records.", False),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        int64(1),
        _READ,
        "How long a task waits for the next record before it fails.",
        120_000,
    ),
    Option(
        "topic",
        Word(is_empty_allowed=False),
        _SINK,
        "The topic for all rows. It takes precedence over the column topic.",
    ),
    Option("groupIdPrefix", Word(), _READ, "The prefix of generated group ids.", unused=_NO_PREFIX),
    Option("fetchOffset.numRetries", int32(0), _READ, "How often a request for offsets is retried.", unused=_RETRIED),
    Option(
        "fetchOffset.retryIntervalMs", int64(0), _READ, "The pause between two requests for offsets.", unused=_RETRIED
    ),
)
_BY_NAME = {option.name.lower(): option for option in OPTIONS}
_NOT_OURS: Mapping[str, str] = {
    "kafka.auto.offset.reset": "say startingOffsets, and failOnDataLoss for what is gone later",
    "kafka.transactional.id": "each task has a producer of its own here. Use coterie.spark.TransactionalSink",
    "kafka.enable.auto.commit": "the query commits what Spark has made durable, if it has a groupId",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a read, in one shape whatever they were given as."""

    client: ConsumerSettings
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    assigned: tuple[TopicPartition, ...]
    group_id: str | None
    """The group of a stream's member; in a batch, the group whose offsets are looked up."""
    committed_of: str | None
    """The group that startingOffsets=committed means."""
    checkpoint_location: str | None
    transactional_sink: str | None
    """The file of the socket on which the sink asks for the offsets of a batch."""
    start: OffsetLimit
    start_if_too_late: str
    end: OffsetLimit
    fail_on_data_loss: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay: int
    min_partitions: int | None
    max_records_per_partition: int | None
    include_headers: bool
    poll_timeout_ms: int

    @property
    def description(self) -> str:
        """What is read, in the words of Spark's Kafka source, and in which group."""
        if self.pattern is not None:
            what = f"SubscribePattern[{self.pattern.pattern}]"
        elif self.assigned:
            what = f"Assign[{', '.join(map(str, self.assigned))}]"
        else:
            what = f"Subscribe[{', '.join(self.topics)}]"
        return f"Coterie[{what}]" + (f" as member of {self.group_id}" if self.group_id else "")

    @classmethod
    def of(cls, given: Mapping[str, str], use: Use) -> SourceOptions:
        """SettingsError has a line for each thing that cannot be."""
        problems: list[str] = []
        values, client = _read(given, use, problems)
        group_of_client = client.pop("group.id", None)
        group_id = values["group_id"]
        problems += _contradictions(values, use, group_id, group_of_client)
        client.setdefault("client.id", "coterie-spark")
        if client.get("group.protocol", "classic").strip().lower() != "consumer":  # there the broker assigns
            client.setdefault("partition.assignment.strategy", "cooperative-sticky")
        client.setdefault("allow.auto.create.topics", "false")
        client["enable.auto.commit"] = "false"
        settings = _client(ConsumerSettings, client | ({"group.id": group_id} if group_id else {}), problems)
        if settings is None or problems:
            raise SettingsError("\n".join(problems))
        return cls(
            client=settings,
            topics=values["subscribe"] or (),
            pattern=values["subscribe_pattern"],
            assigned=values["assign"] or (),
            group_id=group_id,
            committed_of=group_id or group_of_client,
            checkpoint_location=values["checkpoint_location"],
            transactional_sink=values["transactional_sink"],
            start=_start(values, use),
            start_if_too_late=values["starting_offsets_by_timestamp_strategy"],
            end=_end(values),
            fail_on_data_loss=values["fail_on_data_loss"],
            max_offsets_per_trigger=values["max_offsets_per_trigger"],
            min_offsets_per_trigger=values["min_offsets_per_trigger"],
            max_trigger_delay=values["max_trigger_delay"],
            min_partitions=values["min_partitions"],
            max_records_per_partition=values["max_records_per_partition"],
            include_headers=values["include_headers"],
            poll_timeout_ms=values["kafka_consumer_poll_timeout_ms"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of a write."""

    client: ProducerSettings
    topic: str | None

    @classmethod
    def of(cls, given: Mapping[str, str], transactional_id: str | None = None) -> SinkOptions:
        """`transactional_id`: that of a sink whose batches are transactions."""
        problems: list[str] = []
        wanted = {name: text for name, text in given.items() if name.lower() not in SPARKS_OWN}
        values, client = _read(wanted, SINK, problems)
        client.setdefault("client.id", "coterie-spark")
        if transactional_id is not None:
            client["transactional.id"] = transactional_id
        settings = _client(ProducerSettings, client, problems)
        if settings is None or problems:
            raise SettingsError("\n".join(problems))
        return cls(client=settings, topic=values["topic"])


def _read(given: Mapping[str, str], use: Use, problems: list[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Values by field, and the client's settings by their own names."""
    values = {option.field_name: option.default for option in OPTIONS}
    client: dict[str, str] = {}
    for given_name, text in given.items():
        name = given_name.lower()
        if name in _NOT_OURS:
            problems.append(f"{name} is not taken: {_NOT_OURS[name]}")
        elif name.startswith(CLIENT_PREFIX):
            client[name.removeprefix(CLIENT_PREFIX)] = text
        elif (option := _BY_NAME.get(name)) is None:
            problems.append(_unknown(given_name))
        elif use not in option.uses:
            uses = " or ".join(sorted(each.value for each in option.uses))
            problems.append(f"{option.name} is for a {uses}, and this is a {use.value}: leave it out")
        else:
            values[option.field_name] = _value(option, text, problems)
    return values, client


def _value(option: Option, text: str, problems: list[str]) -> Any:
    try:
        return option.kind.read(text)
    except ValueError as error:
        why = f" ({error})" if str(error) != text else ""
        problems.append(f"{option.name} = {text!r}: must be {option.kind.allowed}{why}")
        return option.default


def _unknown(given_name: str) -> str:
    known = {name.lower(): name for name in (*(each.name for each in OPTIONS), "kafka.bootstrap.servers")}
    nearest = get_close_matches(given_name.lower(), known, n=1, cutoff=0.6)
    hint = (
        f"did you mean {known[nearest[0]]}?"
        if nearest
        else "docs/spark-options.md has them all; kafka.* are the client's"
    )
    return f"{given_name}: there is no such option; {hint}"


def _client(kind: type[_Settings], given: Mapping[str, str], problems: list[str]) -> _Settings | None:
    if not given.get("bootstrap.servers", "").strip():
        problems.append("kafka.bootstrap.servers is missing: name a broker, as in localhost:9092")
    try:
        return kind.of(given)
    except SettingsError as error:
        problems += [f"kafka.{line}" for line in str(error).splitlines()]
        return None


def admin_settings(options: Mapping[str, str]) -> AdminSettings:
    """Make the settings of an admin for the same cluster; settings that only a consumer has are left out."""
    client = {name.lower(): text for name, text in options.items() if name.lower().startswith(CLIENT_PREFIX)}
    named = {dotted(name.removeprefix(CLIENT_PREFIX)): text for name, text in client.items()}
    security = ("sasl.", "ssl.", "security.")  # a misspelled one is not left out
    return AdminSettings.of(
        {name: text for name, text in named.items() if AdminSettings.has(name) or name.startswith(security)}
    )


def _contradictions(
    values: Mapping[str, Any], use: Use, group_id: str | None, group_of_client: str | None
) -> list[str]:
    problems = []
    chosen = [name for name in ("subscribe", "subscribe_pattern", "assign") if values[name]]
    if len(chosen) != 1:
        what = f"{len(chosen)} of them are given" if chosen else "none of them is given"
        problems.append(f"exactly one of subscribe, subscribePattern and assign says what to read: {what}")
    if group_id and values["assign"] and use is STREAM:
        problems.append("assign and groupId contradict each other: in a group the group assigns. Say subscribe")
    if values["transactional_sink"] and not group_id:
        problems.append("transactionalSink needs groupId: without a group there are no offsets to commit")
    if group_id and group_of_client and group_id != group_of_client:
        problems.append(f"groupId is {group_id!r} and kafka.group.id {group_of_client!r}: leave the second out")
    if isinstance(values["starting_offsets"], Committed) and not (group_id or group_of_client):
        problems.append("startingOffsets = committed needs groupId: committed by whom?")
    least, most = values["min_offsets_per_trigger"], values["max_offsets_per_trigger"]
    if least and most and least > most:
        problems.append(f"minOffsetsPerTrigger {least} is more than maxOffsetsPerTrigger {most}: no batch can be both")
    if use is BATCH:
        problems += _batch_contradictions(values)
    return problems


def _batch_contradictions(values: Mapping[str, Any]) -> list[str]:
    problems = []
    start, end = values["starting_offsets"], values["ending_offsets"]
    if start == Everywhere(LATEST) or (isinstance(start, AtOffsets) and LATEST in start.offsets.values()):
        problems.append("startingOffsets has the latest: a batch that begins at the end reads nothing. Say where from")
    if isinstance(end, AtOffsets) and EARLIEST in end.offsets.values():
        problems.append("endingOffsets has the earliest (-2): a batch that ends at the beginning reads nothing")
    return problems


def _start(values: Mapping[str, Any], use: Use) -> OffsetLimit:
    """Return the start. As in Spark the first of these options counts: a time for all, a time for each, offsets."""
    if values["starting_timestamp"] is not None:
        return AtTime(values["starting_timestamp"])
    given: OffsetLimit | None = values["starting_offsets_by_timestamp"] or values["starting_offsets"]
    if given is not None:
        return given
    if use is BATCH:
        return Everywhere(EARLIEST)
    return Committed() if values["group_id"] else Everywhere(LATEST)


def _end(values: Mapping[str, Any]) -> OffsetLimit:
    if values["ending_timestamp"] is not None:
        return AtTime(values["ending_timestamp"])
    given: OffsetLimit | None = values["ending_offsets_by_timestamp"] or values["ending_offsets"]
    return given or Everywhere(LATEST)
