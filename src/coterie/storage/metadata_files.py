"""The small files of a data directory: Kafka's, and those that only Coterie has.

**Kafka's text files.** `leader-epoch-checkpoint`, `recovery-point-offset-checkpoint`, `cleaner-offset-checkpoint` and
`log-start-offset-checkpoint` have a version, a count and one entry a line. `partition.metadata` and `meta.properties`
have names and values.

**Files with a checksum** have a first line with it, then text or JSON:

    # coterie-topics.json version 2 crc32c 1c291ca3
    {"topics": ...}

The checksum covers the first line before it and all that follows, so a file that was changed, cut or copied over
another one is noticed. The line is a comment in Kafka's `.properties` files. Files of an earlier release have no such
line; they are read as version 1, and get it when they are written again. A write is a new file that is synced and
renamed, then its directory is synced: there is always the old content or the new. So a file that is not as it was
written is damaged, and nothing is concluded from it: `DamagedFileError`.

**`coterie-topics.json`** says which topics exist: a topic exists from the moment it is written there, and no longer
than it is. A deleted topic is named as such until its directories have other names, so a directory of a topic that the
file does not name at all was not left by a deletion.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from coterie.errors import MalformedError
from coterie.protocol.checksums import crc32c
from coterie.storage.files import Files, read_file, replace_file
from coterie.storage.log_errors import DamagedFileError, LaterFormatError
from coterie.structs import DataStruct, field

FIRST = 1
"""The version of files without a first line with a checksum."""
_HEAD = re.compile(rb"(# (\S+) version ([0-9]+)) crc32c ([0-9a-f]{8})\n")


class Content(NamedTuple):
    version: int
    payload: bytes


class ChecksummedFile(NamedTuple):
    """A small file that begins with its checksum."""

    path: str
    version: int
    """The version that is written, and the latest that is read."""
    holds: str
    """The contents of the file, for the message about damage: "which topics there are"."""
    repairs: str
    """The repair that `coterie repair` can make."""

    @property
    def name(self) -> bytes:
        return self.path.rpartition("/")[2].encode()

    def encode(self, payload: bytes) -> bytes:
        head = b"# %s version %d" % (self.name, self.version)
        return b"%s crc32c %08x\n%s" % (head, crc32c(payload, crc32c(head)), payload)

    def decode(self, data: bytes) -> Content:
        if not data:
            raise self.damaged("is empty")
        if b"\0" in data:
            raise self.damaged("has zeros in it, which were never written")
        if not data.startswith(b"#"):
            return Content(FIRST, data)
        head = _HEAD.match(data)
        if head is None:
            raise self.damaged("does not begin with the line that has its checksum")
        payload = data[head.end() :]
        if crc32c(payload, crc32c(head[1])) != int(head[4], 16):
            raise self.damaged("has a wrong checksum")
        if head[2] != self.name:
            raise self.damaged(f"has the content of {head[2].decode(errors='replace')}")
        version = int(head[3])
        if version > self.version:
            raise LaterFormatError(
                f"{self.path} has format {version}, this version knows {self.version}: use the one that wrote it"
            )
        return Content(version, payload)

    def read(self, files: Files) -> Content:
        """Read it. `DamagedFileError` if it is missing or damaged, `LaterFormatError` if it is of a later version."""
        try:
            data = read_file(files, self.path)
        except FileNotFoundError:
            raise self.damaged("is missing") from None
        return self.decode(data)

    def write(self, files: Files, payload: bytes) -> None:
        """Write it; when this returns, the file and its name are durable."""
        replace_file(files, self.path, self.encode(payload))

    def renew(self, files: Files, content: Content) -> None:
        """Write a file of an earlier release again, with its checksum."""
        if content.version < self.version:
            self.write(files, content.payload)

    def damaged(self, wrong: str) -> DamagedFileError:
        return DamagedFileError(self.path, wrong, self.holds, self.repairs)


TOPICS = ChecksummedFile(
    "coterie-topics.json",
    2,
    "which topics there are, with their ids, partitions and configs",
    "it finds topics, ids and partitions in the partitions' directories; configs are lost",
)
META = ChecksummedFile(
    "meta.properties",
    2,
    "the ids of the cluster and of the node that the directory belongs to",
    "it writes the file with ids that it is given",
)
LEADERS = ChecksummedFile(
    "coterie-leaders.json",
    2,
    "which node leads which partition, and how often that has changed",
    "it has every partition led where it was created, with the epochs that the logs have",
)
PRODUCER_IDS = ChecksummedFile(
    "coterie-producer-ids.properties",
    2,
    "up to where producer ids were given out; none may be given out twice",
    "it goes on behind the highest that the logs have",
)
SCRAM_CREDENTIALS = ChecksummedFile(
    "coterie-scram-credentials.json",
    2,
    "what is checked when users log in by SCRAM",
    "it sets the file aside: users need new passwords",
)
ACLS = ChecksummedFile(
    "coterie-acls.json",
    2,
    "the ACLs: what each client may do",
    "it writes the file without any ACL, so create them again; until then only super users may do anything, or "
    "everybody everything if allow.everyone.if.no.acl.found is set",
)
GROUP_CONFIGS = ChecksummedFile(
    "coterie-group-configs.json",
    2,
    "the configs that consumer groups have of their own",
    "it sets the file aside: groups have the broker's settings",
)
CLIENT_METRICS_CONFIGS = ChecksummedFile(
    "coterie-client-metrics-configs.json",
    2,
    "the metrics that clients are asked for (KIP-714)",
    "it sets the file aside: clients are asked for no metrics",
)
CHECKSUMMED_FILES = (
    TOPICS,
    META,
    LEADERS,
    PRODUCER_IDS,
    SCRAM_CREDENTIALS,
    ACLS,
    GROUP_CONFIGS,
    CLIENT_METRICS_CONFIGS,
)
"""All files of this kind but `coterie-checkpoint.json` (`durable_ends.py`); the journal has checksums of its own."""


_VERSION = 0


def id_text(topic_id: UUID) -> str:
    """Return an id as Kafka writes it: URL-safe base64 without padding."""
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
    """Return the entries, each split into its fields; an empty file has none, as in Kafka."""
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
    """Return the topic id. A file without a checksum was written by Kafka or by an earlier release."""
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


_MAX_NAME = 249
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class StoredTopic(DataStruct, frozen=True):
    name: str
    id: UUID
    partitions: int
    configs: dict[str, str] = field(default_factory=dict)


class Topics(DataStruct):
    """The content of `coterie-topics.json`."""

    topics: dict[str, StoredTopic] = field(default_factory=dict)
    deleted: dict[UUID, str] = field(default_factory=dict)
    """Deleted topics whose directories may still have the topic's name."""


def is_legal_name(name: str) -> bool:
    """Return whether Kafka allows the name of a topic; no such name leads out of the directory."""
    return 0 < len(name) <= _MAX_NAME and name not in {".", ".."} and _LEGAL.issuperset(name)


def write_topics(files: Files, topics: Iterable[StoredTopic], deleted: Mapping[UUID, str]) -> None:
    TOPICS.write(files, encode_topics(topics, deleted))


def read_topics(files: Files) -> Topics:
    content = TOPICS.read(files)
    try:
        found = decode_topics(content.payload)
    except MalformedError as error:
        raise TOPICS.damaged(f"is not what we write: {error}") from None
    TOPICS.renew(files, content)
    return found


def encode_topics(topics: Iterable[StoredTopic], deleted: Mapping[UUID, str]) -> bytes:
    """Return JSON with one topic a line; indenting every level would take ten times as long."""
    rows = [
        json.dumps(
            {"name": topic.name, "id": id_text(topic.id), "partitions": topic.partitions, "configs": topic.configs}
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]
    gone = {id_text(topic_id): name for topic_id, name in deleted.items()}
    lines = ",\n  ".join(rows)
    return f'{{"topics": [\n  {lines}\n ],\n "deleted": {json.dumps(gone)}\n}}\n'.encode()


def decode_topics(payload: bytes) -> Topics:
    try:
        content = json.loads(payload)
        topics = [_topic(row) for row in content["topics"]]
        deleted = {parse_id(topic_id): str(name) for topic_id, name in content.get("deleted", {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, MalformedError):
            raise
        raise MalformedError(repr(error)) from None
    found = Topics({topic.name: topic for topic in topics}, deleted)
    if len(found.topics) != len(topics) or len({topic.id for topic in topics}) != len(topics):
        raise MalformedError("it names a topic twice")
    return found


def _topic(row: dict[str, Any]) -> StoredTopic:
    configs = {str(name): str(value) for name, value in row["configs"].items()}
    topic = StoredTopic(row["name"], parse_id(row["id"]), int(row["partitions"]), configs)
    if not is_legal_name(topic.name) or topic.partitions < 1:
        raise MalformedError(f"it has topic {topic.name!r} with {topic.partitions} partitions")
    return topic
