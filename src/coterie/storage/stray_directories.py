"""Directories of partitions: their names, and those that belong to no topic.

A crash while a topic is created or deleted leaves such stray directories. An opening renames them, so that their names
are free, and reports them. Directories of deleted topics, whose names end in `-delete`, are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from coterie.errors import MalformedError
from coterie.storage.files import Files, read_file
from coterie.storage.log_errors import DamagedFileError
from coterie.storage.metadata_files import TOPICS, StoredTopic, decode_partition_metadata, id_text
from coterie.storage.segment_files import LOG

PARTITION_FILE = "partition.metadata"
DELETE, _STRAY = "-delete", "-stray"


def partition_path(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def set_strays_aside(files: Files, topics: Iterable[StoredTopic], deleted: Mapping[UUID, str]) -> list[str]:
    """Rename stray directories that hold no records, or belong to a topic that was deleted; return their new names.

    With records in any other one, `DamagedFileError`, and nothing is renamed: a file is damaged or an old copy, or a
    person put a directory here.
    """
    expected = {
        partition_path(topic.name, partition): topic.id for topic in topics for partition in range(topic.partitions)
    }
    strays = []
    for name in files.names():
        path = f"{name}/{PARTITION_FILE}"
        if name.endswith((DELETE, _STRAY)) or not files.exists(path):
            continue
        topic_id = _topic_id_of(files, name)
        if topic_id is None and name in expected:
            files.delete(path)  # it is not synced, so a crash of the machine may lose it; it is written again
        elif expected.get(name) != topic_id:
            _check_stray(files, name, topic_id, expected.get(name), deleted)
            strays.append(name)
    return [set_aside(files, name) for name in strays]


def _check_stray(
    files: Files, name: str, topic_id: UUID | None, expected: UUID | None, deleted: Mapping[UUID, str]
) -> None:
    was_deleted = topic_id in deleted or (topic_id is None and name.rpartition("-")[0] in deleted.values())
    if was_deleted or not has_records(files, name):
        return
    found = "an id that cannot be read" if topic_id is None else f"id {id_text(topic_id)}"
    wrong = f"names topic {found}, and {TOPICS.path} " + (
        "has no such topic" if expected is None else f"has {id_text(expected)} for it"
    )
    raise DamagedFileError(
        f"{name}/{PARTITION_FILE}",
        wrong,
        f"whose records are in {name}: one of the two files is damaged or an old copy, or it is not ours",
        "it shows which topics there are, and adopts the directory or sets it aside",
    )


def has_records(files: Files, path: str) -> bool:
    return any(name.endswith(LOG) and files.size(f"{path}/{name}") for name in files.names(path))


def set_aside(files: Files, name: str) -> str:
    """Rename a directory, so that its name is free; return the new name."""
    topic_id = _topic_id_of(files, name)
    begin = aside = f"{name[:200]}.{id_text(topic_id) if topic_id else 'unknown'}"
    number = 1
    while files.exists(aside + _STRAY):  # of an earlier attempt that failed, and could not be removed either
        number += 1
        aside = f"{begin}.{number}"
    aside += _STRAY
    files.rename(name, aside)
    return aside


def _topic_id_of(files: Files, path: str) -> UUID | None:
    try:
        return decode_partition_metadata(read_file(files, f"{path}/{PARTITION_FILE}"))
    except (FileNotFoundError, MalformedError):
        return None


def remove_deleted_directories(files: Files) -> None:
    """Remove the directories of deleted topics that an earlier process did not come to remove."""
    for name in files.names():
        if name.endswith(DELETE):
            remove_directory(files, name)


def remove_directory(files: Files, path: str) -> None:
    """Delete a partition's directory with all that is in it; on any thread."""
    for name in files.names(path):
        files.delete(f"{path}/{name}")
    files.rmdir(path)
