"""What callers of a consumer or an admin hand in, in the forms they like, brought into one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from re import Pattern

from coterie.assignors import Assignor, assignor
from coterie.client.client_settings import ConsumerSettings, check_mapping
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import CoterieError
from coterie.protocol.records import MAX_OFFSET

__all__ = [
    "Offsets",
    "PartitionLike",
    "limit_of",
    "name_of",
    "names_of",
    "offsets_of",
    "partition_of",
    "partitions_of",
    "settled",
    "subscription_of",
]

PartitionLike = TopicPartition | tuple[str, int]
Offsets = (
    Mapping[TopicPartition, int]
    | Mapping[TopicPartition, OffsetAndMetadata]
    | Mapping[TopicPartition, int | OffsetAndMetadata]
    | Mapping[tuple[str, int], int]
    | Mapping[tuple[str, int], OffsetAndMetadata]
    | Mapping[tuple[str, int], int | OffsetAndMetadata]
)
"""A mapping does not vary with its keys, so that every way to write it down is named."""

STRATEGY = "partition.assignment.strategy"
MAX_PARTITION = 2**31 - 1
MAX_METADATA = 2**15 - 1
"""Bytes of a text on the wire; a broker that is sent more ends the connection. Its own limit is usually lower."""


def name_of(one: str, what: str) -> str:
    if not isinstance(one, str):
        raise CoterieError(f"{one!r} is not the name of a {what}; give one name, as text")
    return one


def names_of(many: Iterable[str], what: str) -> list[str]:
    if isinstance(many, str):
        raise CoterieError(f'{many!r} is one {what}, and several may be given: give ["{many}"]')
    return [name_of(one, what) for one in many]


def partition_of(one: PartitionLike) -> TopicPartition:
    match one:
        case (str(topic), int(partition)) if 0 <= partition <= MAX_PARTITION:
            return TopicPartition(topic, partition)
    raise CoterieError(f'{one!r} is not a partition; give TopicPartition("orders", 0) or ("orders", 0)')


def partitions_of(many: Iterable[PartitionLike]) -> list[TopicPartition]:
    if isinstance(many, str):
        raise CoterieError(f'{many!r} is not a list of partitions; give [("{many}", 0)]')
    return list(dict.fromkeys(partition_of(one) for one in many))


def offsets_of(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """An offset is the one of the next record to read."""
    if not isinstance(offsets, Mapping):
        raise CoterieError(f'{offsets!r} does not say which offset is for which partition; give {{("orders", 0): 42}}')
    found = {}
    for one, given in offsets.items():
        offset = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
        if not isinstance(offset.offset, int) or not 0 <= offset.offset <= MAX_OFFSET:
            raise CoterieError(
                f"{partition_of(one)} has the offset {offset.offset!r}; an offset is 0 or more, below 2^63"
            )
        if not isinstance(offset.metadata, str) or len(offset.metadata.encode()) > MAX_METADATA:
            raise CoterieError(
                f"{partition_of(one)} has the metadata {offset.metadata!r:.80}; "
                f"it is text of {MAX_METADATA} bytes at most"
            )
        found[partition_of(one)] = offset
    return found


def limit_of(max_records: int | None, settings: ConsumerSettings) -> int:
    """How many records a poll may return."""
    if max_records is None:
        return settings.max_poll_records
    if not isinstance(max_records, int) or max_records < 1:
        raise CoterieError(f"max_records is {max_records!r}; a poll returns 1 record or more, pause() to get none")
    return max_records


def subscription_of(topics: str | Iterable[str] | Pattern[str]) -> tuple[list[str], Pattern[str] | None]:
    """Names, or a compiled pattern."""
    if isinstance(topics, Pattern):
        return [], topics
    names = [topics] if isinstance(topics, str) else list(dict.fromkeys(topics))
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise CoterieError(f"{name!r} is not the name of a topic; give names, or re.compile(...) for a pattern")
    if not names:
        raise CoterieError("there is no topic to subscribe to; to give all up, call unsubscribe()")
    return names, None


def settled(
    settings: Mapping[str, object] | ConsumerSettings | None, more: Mapping[str, object]
) -> tuple[ConsumerSettings, list[Assignor]]:
    """The settings, and the assignors: named, or given as objects or classes."""
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
        raise CoterieError(
            f"{one!r} is not an assignor: give a name, or a subclass of coterie.assignors.Assignor with a name"
        )
    return made
