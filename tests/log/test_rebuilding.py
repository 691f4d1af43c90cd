"""What the rest of a data directory tells of a damaged file of ours."""

from __future__ import annotations

from uuid import UUID

import pytest

from coterie.log import DataDirectory, Files, Topic
from coterie.log.checkpoints import decode_properties
from coterie.log.errors import DamagedFileError
from coterie.log.files import replace_file
from coterie.log.own_files import TOPICS
from coterie.log.rebuilding import rebuild_producer_ids, rebuild_topics
from coterie.log.topics import decode_topics
from logs import batch, read_all

NOW = 1_000


def opened(files: Files) -> DataDirectory:
    return DataDirectory.open(files, NOW, cluster_id="cluster")


def test_topics_are_found_in_the_partitions_directories(files: Files) -> None:
    directory = opened(files)
    for topic in (Topic("a-b", UUID(int=7), 2, {"retention.ms": "5"}), Topic("c", UUID(int=8), 1)):
        change = directory.create_topic(topic, NOW)
        change.run()
        change.done()
    directory.logs["a-b", 1].append(batch(b"x"), NOW)
    directory.close()
    replace_file(files, TOPICS.path, b"#")
    with pytest.raises(DamagedFileError):
        opened(files)
    rebuilt = rebuild_topics(files, lambda: UUID(int=99))
    TOPICS.write(files, rebuilt.payload)
    directory = opened(files)
    assert directory.topics == {"a-b": Topic("a-b", UUID(int=7), 2), "c": Topic("c", UUID(int=8), 1)}
    assert read_all(directory.logs["a-b", 1]) == [(0, b"x")]
    assert rebuilt.doubts[0] == "the topics' configs are lost: all have the defaults"


def test_what_is_in_doubt_is_told(files: Files) -> None:
    for name, content in {"t-0": b"version: 0", "t-2": b"version: 0", "u-0-stray": b"", "notes": b""}.items():
        files.mkdir(name)
        replace_file(files, f"{name}/partition.metadata", content)
    rebuilt = rebuild_topics(files, lambda: UUID(int=99))
    assert decode_topics(rebuilt.payload).topics == {"t": Topic("t", UUID(int=99), 3)}
    assert rebuilt.doubts[-2:] == [
        "topic t: no directories of partitions 1",
        "topic t: none of its partitions has an id; it has a new one",
    ]


def test_producer_ids_go_on_behind_the_highest_of_the_logs() -> None:
    assert decode_properties(rebuild_producer_ids(41).payload) == {"next": "42"}
