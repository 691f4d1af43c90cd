"""Kafka's small text files: bytes to values and back.

`leader-epoch-checkpoint`, `recovery-point-offset-checkpoint` and `log-start-offset-checkpoint` have a version, a count
and one entry a line; `partition.metadata` and `meta.properties` have names and values.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from uuid import UUID

from crc32c import crc32c

from coterie.errors import MalformedError

__all__ = [
    "decode_entries",
    "decode_epochs",
    "decode_offsets",
    "decode_partition_metadata",
    "decode_properties",
    "encode_epochs",
    "encode_offsets",
    "encode_partition_metadata",
    "encode_properties",
    "id_text",
    "parse_id",
]

_VERSION = 0


def id_text(topic_id: UUID) -> str:
    """As Kafka writes ids: base64 for addresses, without padding."""
    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def parse_id(text: str) -> UUID:
    try:
        return UUID(bytes=urlsafe_b64decode(text + "=="))
    except ValueError:
        raise MalformedError(f"{text!r} is not an id: 16 bytes in URL-safe base64") from None


# --- version, count, entries ------------------------------------------------------------------------------------------


def _encode_entries(entries: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in (_VERSION, len(entries), *entries)).encode()


def decode_entries(data: bytes, fields: int, what: str) -> list[list[str]]:
    """The entries, each split into its fields; an empty file has none, as in Kafka."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise MalformedError(f"{what}: not UTF-8") from None
    if not lines:
        return []
    if lines[0].strip() != str(_VERSION) or len(lines) < 2:
        raise MalformedError(f"{what}: begins with {lines[0]!r}; version {_VERSION} and a count are expected")
    entries = [line.split() for line in lines[2:]]
    if lines[1].strip() != str(len(entries)) or any(len(entry) != fields for entry in entries):
        raise MalformedError(f"{what}: says {lines[1]!r} entries, has {len(entries)}, each of {fields} fields")
    return entries


def encode_epochs(epochs: Sequence[tuple[int, int]]) -> bytes:
    return _encode_entries([f"{epoch} {start}" for epoch, start in epochs])


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    entries = decode_entries(data, 2, "leader-epoch-checkpoint")
    return [(_number(epoch), _number(start)) for epoch, start in entries]


def encode_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    return _encode_entries([f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())])


def decode_offsets(data: bytes, what: str) -> dict[tuple[str, int], int]:
    entries = decode_entries(data, 3, what)
    return {(topic, _number(partition)): _number(offset) for topic, partition, offset in entries}


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise MalformedError(f"{text!r} in a checkpoint file is not a number") from None


# --- names and values -------------------------------------------------------------------------------------------------


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """Encode Kafka's two lines and a third with a checksum, which Kafka ignores."""
    content = f"version: {_VERSION}\ntopic_id: {id_text(topic_id)}".encode()
    return b"%s\ncrc32c: %08x" % (content, crc32c(content))


def decode_partition_metadata(data: bytes) -> UUID:
    """Decode it. A file without a checksum was written by Kafka or by an earlier release."""
    values = _names_and_values(data, ":", "partition.metadata")
    if values.get("version") != str(_VERSION) or "topic_id" not in values:
        raise MalformedError(f"partition.metadata: version {_VERSION} and a topic_id are expected, found {values}")
    topic_id = parse_id(values["topic_id"])
    if "crc32c" in values and data != encode_partition_metadata(topic_id):
        raise MalformedError("partition.metadata: wrong checksum")
    return topic_id


def encode_properties(values: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in sorted(values.items())).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    return _names_and_values(data, "=", "meta.properties")


def _names_and_values(data: bytes, separator: str, what: str) -> dict[str, str]:
    try:
        lines = [line.strip() for line in data.decode().splitlines()]
    except UnicodeDecodeError:
        raise MalformedError(f"{what}: not UTF-8") from None
    values = {}
    for line in lines:
        if line and not line.startswith("#"):
            name, found, value = line.partition(separator)
            if not found:
                raise MalformedError(f"{what}: {line!r} is not a name, {separator!r} and a value")
            values[name.strip()] = value.strip()
    return values
