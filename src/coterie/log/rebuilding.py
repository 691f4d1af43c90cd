"""What can be told of a damaged file of ours from the rest of the data directory; for `coterie repair`.

Nothing is written here: whoever repairs shows what was found, with its doubts, and then writes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from coterie.errors import MalformedError
from coterie.log.checkpoints import decode_partition_metadata, encode_properties
from coterie.log.files import Files, read_file
from coterie.log.topics import Topic, encode_topics, is_legal_name

__all__ = ["Rebuilt", "rebuild_producer_ids", "rebuild_topics"]

PARTITION_FILE = "partition.metadata"
_ASIDE = ("-delete", "-stray")


@dataclass(slots=True)
class Rebuilt:
    payload: bytes
    """For `OwnFile.write`."""
    doubts: list[str] = field(default_factory=list)
    """What is not known, or may be wrong."""


def rebuild_topics(files: Files, fresh_id: Callable[[], UUID]) -> Rebuilt:
    """Every directory of a partition names its topic, and `partition.metadata` in it has the topic's id."""
    numbers: dict[str, set[int]] = {}
    ids: dict[str, set[UUID]] = {}
    doubts = ["the topics' configs are lost: all have the defaults", "deleted topics may be back"]
    for name in files.names():
        topic, _, number = name.rpartition("-")
        path = f"{name}/{PARTITION_FILE}"
        if name.endswith(_ASIDE) or not number.isdecimal() or not is_legal_name(topic) or not files.exists(path):
            continue
        numbers.setdefault(topic, set()).add(int(number))
        try:
            ids.setdefault(topic, set()).add(decode_partition_metadata(read_file(files, path)))
        except MalformedError as error:
            doubts.append(f"{name}: {error}")
    topics = [_topic(name, found, ids.get(name, set()), fresh_id, doubts) for name, found in sorted(numbers.items())]
    return Rebuilt(encode_topics(topics, {}), doubts)


def _topic(name: str, numbers: set[int], ids: set[UUID], fresh_id: Callable[[], UUID], doubts: list[str]) -> Topic:
    partitions = max(numbers) + 1
    missing = sorted(set(range(partitions)) - numbers)
    if missing:
        doubts.append(f"topic {name}: no directories of partitions {', '.join(map(str, missing))}")
    if len(ids) > 1:
        doubts.append(f"topic {name}: its partitions have {len(ids)} different ids; it has the lowest of them")
    if not ids:
        doubts.append(f"topic {name}: none of its partitions has an id; it has a new one")
    return Topic(name, min(ids) if ids else fresh_id(), partitions)


def rebuild_producer_ids(highest_seen: int) -> Rebuilt:
    """`highest_seen` is the highest producer id in the logs."""
    doubt = "ids of producers that have written nothing, or that the logs have forgotten, may be given out again"
    return Rebuilt(encode_properties({"next": str(highest_seen + 1)}), [doubt])
