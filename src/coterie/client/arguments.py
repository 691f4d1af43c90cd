"""Checks the arguments of the clients' methods, and brings the forms they may have into one.

A function `x_of` returns what was given as an x, or raises an error that says what to give.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from re import Pattern
from typing import TypeVar

from coterie.assignors import Assignor, assignor
from coterie.client.types import OffsetAndMetadata, SubscriptionPattern, TopicPartition
from coterie.errors import ErrorCode, IllegalArgumentError, KafkaError
from coterie.protocol.records import MAX_OFFSET
from coterie.settings.client_settings import check_mapping
from coterie.settings.config_def import NOT_UTF8
from coterie.settings.consumer_settings import ConsumerSettings

PartitionLike = TopicPartition | tuple[str, int]
Offsets = (
    Mapping[TopicPartition, int]
    | Mapping[TopicPartition, OffsetAndMetadata]
    | Mapping[TopicPartition, int | OffsetAndMetadata]
    | Mapping[tuple[str, int], int]
    | Mapping[tuple[str, int], OffsetAndMetadata]
    | Mapping[tuple[str, int], int | OffsetAndMetadata]
)
"""A Mapping is invariant in its keys, so each form that a caller may write is named."""

Topics = str | Iterable[str] | Pattern[str] | SubscriptionPattern
"""The types that can be subscribed to."""

T = TypeVar("T")
ByPartition = Mapping[TopicPartition, T] | Mapping[tuple[str, int], T]

STRATEGY = "partition.assignment.strategy"
MAX_PARTITION = 2**31 - 1
MAX_TOPIC = 249
_TOPIC = re.compile(f"[a-zA-Z0-9._-]{{1,{MAX_TOPIC}}}")
MAX_METADATA = 2**15 - 1
"""The longest text on the wire, in bytes. A broker closes the connection on more; its own limit is usually lower."""


def is_utf8(text: str) -> bool:
    """Return whether a text can be sent: Python's may have halves of characters (lone surrogates), UTF-8 has none."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def name_of(one: str, what: str) -> str:
    """Return the name of one topic or group; `what` says which."""
    if not isinstance(one, str):
        raise IllegalArgumentError(f"{one!r} is not the name of a {what}: give one name, as text")
    if not is_utf8(one):
        raise IllegalArgumentError(f"{one!r} is not the name of a {what}: {NOT_UTF8}")
    return one


def names_of(many: Iterable[str], what: str) -> list[str]:
    """Return the names of topics or groups; `what` says which."""
    if isinstance(many, str):
        raise IllegalArgumentError(f'{many!r} is one {what}, and several may be given: give ["{many}"]')
    if not isinstance(many, Iterable):
        raise IllegalArgumentError(f'{many!r} is not a list of names: give ["{what}-1", "{what}-2"]')
    return [name_of(one, what) for one in many]


def topic_of(one: str) -> str:
    """Return the name of a topic that Kafka allows."""
    name = name_of(one, "topic")
    if not _TOPIC.fullmatch(name) or name in {".", ".."}:
        shown = f'topic "{name}"' if len(name) <= MAX_TOPIC else f'topic "{name[:20]}..." of {len(name)} characters'
        raise KafkaError.of(ErrorCode.INVALID_TOPIC_EXCEPTION, shown)
    return name


def number_of(one: int, what: str, least: int = -(2**31), most: int = 2**31 - 1) -> int:
    """Return a whole number that is within its limits; `what` says which number it is."""
    if not isinstance(one, int) or not least <= one <= most:
        raise IllegalArgumentError(f"{what} is {one!r}: give a whole number from {least} to {most}")
    return one


def nodes_of(many: Iterable[int], example: str) -> list[int]:
    """Return the ids of brokers."""
    return [number_of(one, "the id of a broker", least=0) for one in all_of(many, int, example)]


def configs_of(given: Mapping[str, str], where: str) -> dict[str, str]:
    """Return configs; `where` says whose they are. A value is text, as in Kafka."""
    if not isinstance(given, Mapping):
        raise IllegalArgumentError(f'{where} has the configs {given!r}: give {{"retention.ms": "1000"}}')
    return {
        config_text_of(name, "name", where): config_text_of(value, f"value of {name}", where)
        for name, value in given.items()
    }


def config_text_of(text: str, what: str, where: str) -> str:
    """Return the name or the value of a config."""
    if not isinstance(text, str):
        raise IllegalArgumentError(f'{where} has the config {what} {text!r}: names and values are text, as in "1000"')
    if not is_utf8(text):
        raise IllegalArgumentError(f"{where} has the config {what} {text!r}: {NOT_UTF8}")
    return text


def partition_of(one: PartitionLike) -> TopicPartition:
    """Return a partition."""
    match one:
        case (str(topic), int(partition)) if topic and 0 <= partition <= MAX_PARTITION and is_utf8(topic):
            return TopicPartition(topic, partition)
    raise IllegalArgumentError(f'{one!r} is not a partition: give TopicPartition("orders", 0) or ("orders", 0)')


def partitions_of(many: Iterable[PartitionLike]) -> list[TopicPartition]:
    """Return partitions, each once."""
    if isinstance(many, str) or not isinstance(many, Iterable):
        raise IllegalArgumentError(f'{many!r} is not a list of partitions: give [("orders", 0)]')
    return list(dict.fromkeys(partition_of(one) for one in many))


def by_partition(given: ByPartition[T], what: str) -> dict[TopicPartition, T]:
    """Return a mapping with a value for each partition; `what` names such a value."""
    if not isinstance(given, Mapping):
        raise IllegalArgumentError(
            f'{given!r} does not say which {what} is for which partition: give {{("orders", 0): 42}}'
        )
    return {partition_of(one): value for one, value in given.items()}


def time_of(timestamp: int, where: object) -> int:
    """Return the time of a record, or the time to look for; `where` is its topic or partition."""
    if not isinstance(timestamp, int) or not 0 <= timestamp < MAX_OFFSET:
        raise IllegalArgumentError(
            f"{where} has the time {timestamp!r}; a time is in ms since 1970, 0 or more, below 2^63 - 1"
        )
    return timestamp


def seconds_of(timeout: float) -> float:
    """Return a timeout in seconds."""
    if not isinstance(timeout, int | float):
        raise IllegalArgumentError(f"the timeout is {timeout!r}: give seconds, as in 1.5")
    return timeout


def all_of(many: Iterable[object], kind: type[T], example: str) -> list[T]:
    """Return the elements of a list, all of which have to be of this kind."""
    if isinstance(many, kind) or not isinstance(many, Iterable):
        raise IllegalArgumentError(f"{many!r} is not a list: give {example}")
    found = []
    for one in many:
        if not isinstance(one, kind):
            raise IllegalArgumentError(f"{one!r} is not of type {kind.__name__}: give {example}")
        found.append(one)
    return found


def offsets_of(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets to commit for each partition. An offset is that of the next record to read."""
    found = {}
    for one, given in by_partition(offsets, "offset").items():
        offset = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
        if not isinstance(offset.offset, int) or not 0 <= offset.offset <= MAX_OFFSET:
            raise IllegalArgumentError(f"{one} has the offset {offset.offset!r}; an offset is 0 or more, below 2^63")
        if not isinstance(offset.metadata, str) or not _is_metadata(offset.metadata):
            raise IllegalArgumentError(
                f"{one} has the metadata {offset.metadata!r:.80}; it is text of {MAX_METADATA} bytes at most, in UTF-8"
            )
        number_of(offset.leader_epoch, f"the leader epoch of {one}")
        found[one] = offset
    return found


def _is_metadata(text: str) -> bool:
    return is_utf8(text) and len(text.encode()) <= MAX_METADATA


def limit_of(max_records: int | None, settings: ConsumerSettings) -> int:
    """Return how many records a poll may return."""
    if max_records is None:
        return settings.max_poll_records
    if not isinstance(max_records, int) or max_records < 1:
        raise IllegalArgumentError(
            f"max_records is {max_records!r}; a poll returns 1 record or more, pause() to get none"
        )
    return max_records


def subscription_of(topics: Topics) -> tuple[list[str], Pattern[str] | SubscriptionPattern | None]:
    """Return the names of topics, or none and a pattern."""
    if isinstance(topics, SubscriptionPattern):
        if not isinstance(topics.pattern, str) or not topics.pattern or not is_utf8(topics.pattern):
            raise IllegalArgumentError(f"{topics.pattern!r} is not a pattern: give text that is not empty, in UTF-8")
        return [], topics
    if isinstance(topics, Pattern):
        return [], topics
    names = names_of([topics] if isinstance(topics, str) else topics, "topic")
    if not names:
        raise IllegalArgumentError("subscribe() needs at least one topic; to stop reading, call unsubscribe()")
    return [topic_of(name) for name in dict.fromkeys(names)], None


def consumer_settings_of(
    settings: Mapping[str, object] | ConsumerSettings | None, more: Mapping[str, object]
) -> tuple[ConsumerSettings, list[Assignor]]:
    """Return the settings of a consumer, and its assignors, which may be given by name, as objects or as classes."""
    if isinstance(settings, ConsumerSettings):
        found = ConsumerSettings.of_arguments(settings, more)
        return found, [assignor(name) for name in found.partition_assignment_strategy]
    given_settings = {} if settings is None else settings
    check_mapping(given_settings)
    values = {name.replace("_", "."): value for name, value in {**given_settings, **more}.items()}
    given = values.pop(STRATEGY, None)
    chosen: list[Assignor] | None = None
    if given is not None and not isinstance(given, str):
        chosen = [_assignor_of(one) for one in (given if isinstance(given, list | tuple) else [given])]
        values[STRATEGY] = ",".join(one.name for one in chosen)
    elif given is not None:
        values[STRATEGY] = given
    found = ConsumerSettings.of(values)
    return found, chosen or [assignor(name) for name in found.partition_assignment_strategy]


def _assignor_of(one: object) -> Assignor:
    made = one() if isinstance(one, type) else one
    if isinstance(made, str):
        return assignor(made)
    if not isinstance(made, Assignor) or not isinstance(getattr(made, "name", None), str):
        raise IllegalArgumentError(
            f"{one!r} is not an assignor: give a name, or a subclass of coterie.assignors.Assignor with a name"
        )
    return made
