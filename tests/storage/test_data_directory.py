"""The data directory: topics come and go, and everything is found again."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar
from uuid import UUID

import pytest

from coterie.sim.disk import Disk, PowerCut
from coterie.sim.schedule import Rng
from coterie.storage import (
    DataDirectory,
    DirectoryError,
    DiskChange,
    Files,
    LogConfig,
    LogWriteError,
    StoredTopic,
    metadata_files,
    remove_directory,
)
from coterie.storage.files import read_file, replace_file
from coterie.storage.log_errors import DamagedFileError
from coterie.storage.metadata_files import META, TOPICS, ChecksummedFile, decode_properties
from logs import SMALL, FaultyFiles, batch, read_all

T = TypeVar("T")
NOW = 1_000
ORDERS = StoredTopic("orders", UUID(int=7), 2, {"retention.ms": "5"})


def config_of(topic: StoredTopic) -> LogConfig:
    return LogConfig(segment_bytes=int(topic.configs.get("segment.bytes", SMALL.segment_bytes)))


def opened(files: Files) -> DataDirectory:
    return DataDirectory.open(files, NOW, cluster_id="cluster", config_of=config_of)


def make(change: DiskChange[T]) -> T:
    change.run()
    return change.done()


def delete(directory: DataDirectory) -> list[str]:
    topic = directory.topics["orders"]
    return make(directory.clear_away(topic, make(directory.delete_topic("orders"))))


def test_a_new_directory_has_no_topics_and_says_whose_it_is(files: Files) -> None:
    directory = opened(files)
    assert not directory.topics and not directory.logs
    assert decode_properties(read_file(files, "meta.properties")) == {
        "version": "1",
        "cluster.id": "cluster",
        "node.id": "1",
    }
    directory.close()
    again = DataDirectory.open(files, NOW, cluster_id="another")
    assert again.meta["cluster.id"] == "cluster" and again.opening.was_clean


def test_topics_and_their_records_are_found_again(files: Files) -> None:
    directory = opened(files)
    make(directory.create_topic(ORDERS, NOW))
    directory.logs["orders", 1].append(batch(b"a", b"b"), NOW)
    directory.close()
    assert files.names() == [
        ".kafka_cleanshutdown", ".lock", "coterie-checkpoint.json", "coterie-durable-ends", "coterie-topics.json",
        "log-start-offset-checkpoint", "meta.properties",
        "orders-0", "orders-1", "recovery-point-offset-checkpoint",
    ]  # fmt: skip
    directory = opened(files)
    assert directory.topics == {"orders": ORDERS} and sorted(directory.logs) == [("orders", 0), ("orders", 1)]
    assert read_all(directory.logs["orders", 1]) == [(0, b"a"), (1, b"b")]
    assert read_file(files, "orders-0/partition.metadata").splitlines()[1].endswith(b"AAAAAAAAAAAAAAAAAAAABw")


def test_a_clean_stop_is_believed_once(files: Files) -> None:
    directory = opened(files)
    make(directory.create_topic(ORDERS, NOW))
    directory.logs["orders", 0].append(batch(b"a"), NOW)
    directory.close()
    directory = opened(files)
    assert directory.opening.was_clean and directory.logs["orders", 0].recovery.batches_checked == 0
    directory.release()
    directory = opened(files)
    assert not directory.opening.was_clean and directory.logs["orders", 0].recovery.batches_checked == 1


def test_after_a_crash_the_recovery_point_spares_reading(files: Files) -> None:
    directory = opened(files)
    make(directory.create_topic(ORDERS, NOW))
    log = directory.logs["orders", 0]
    for _ in range(50):
        log.append(batch(bytes(40)), NOW)
    log.flush()
    make(directory.checkpoints.write())
    directory.release()
    assert opened(files).logs["orders", 0].recovery.batches_checked < 15


def test_one_process_at_a_time(files: Files) -> None:
    directory = opened(files)
    with pytest.raises(DirectoryError, match="in use by another process"):
        opened(files)
    directory.release()
    opened(files).close()


def test_a_directory_of_apache_kafka_is_refused(files: Files) -> None:
    replace_file(files, "meta.properties", b"version=1\nnode.id=1\n")
    with pytest.raises(DirectoryError, match="one of Apache Kafka's"):
        opened(files)
    files.lock(".lock").release()


def test_a_directory_of_something_else_is_refused(files: Files) -> None:
    replace_file(files, "thesis.txt", b"")
    with pytest.raises(DirectoryError, match=r"holds something else \(it has thesis.txt"):
        opened(files)
    assert files.names() == [".lock", "thesis.txt"]


def test_a_later_format_and_another_node_are_refused(files: Files) -> None:
    opened(files).close()
    with pytest.raises(DirectoryError, match="belongs to node 1, this is node 2"):
        DataDirectory.open(files, NOW, cluster_id="cluster", node_id=2)
    replace_file(files, TOPICS.path, TOPICS._replace(version=9).encode(b"{}"))
    with pytest.raises(DirectoryError, match="format 9"):
        opened(files)


@pytest.mark.parametrize("path", ["coterie-topics.json", "coterie-checkpoint.json", "meta.properties"])
def test_a_file_that_makes_no_sense_is_named(files: Files, path: str) -> None:
    opened(files).close()
    replace_file(files, path, b"nonsense")
    with pytest.raises(DirectoryError, match=path):
        opened(files)


def test_partitions_are_added_and_never_taken_away(files: Files) -> None:
    directory = opened(files)
    make(directory.create_topic(ORDERS, NOW))
    make(directory.add_partitions("orders", 4, NOW))
    with pytest.raises(DirectoryError, match="has 4 partitions"):
        make(directory.add_partitions("orders", 3, NOW))
    directory.close()
    assert opened(files).topics["orders"].partitions == 4


def test_configs_take_effect_and_are_kept(files: Files) -> None:
    directory = opened(files)
    make(directory.create_topic(ORDERS, NOW))
    make(directory.set_configs("orders", {"segment.bytes": "5000"}, NOW))
    assert directory.logs["orders", 1].config.segment_bytes == 5000
    directory.close()
    directory = opened(files)
    assert directory.topics["orders"].configs == {"segment.bytes": "5000"}
    assert directory.logs["orders", 1].config.segment_bytes == 5000


def test_a_deleted_topic_is_gone_and_its_name_is_free(files: Files) -> None:
    directory = opened(files)
    make(directory.create_topic(ORDERS, NOW))
    directory.logs["orders", 0].append(batch(b"old"), NOW)
    paths = delete(directory)
    make(directory.create_topic(StoredTopic("orders", UUID(int=8), 1), NOW))
    assert directory.logs["orders", 0].log_end_offset == 0 and ("orders", 1) not in directory.logs
    for path in paths:
        remove_directory(files, path)
    assert [name for name in files.names() if "orders" in name or "delete" in name] == ["orders-0"]
    directory.close()
    assert opened(files).topics["orders"].id == UUID(int=8)


def test_a_deletion_that_was_interrupted_is_finished_on_opening(files: Files) -> None:
    directory = opened(files)
    make(directory.create_topic(ORDERS, NOW))
    delete(directory)
    directory.release()
    opened(files).release()
    assert [name for name in files.names() if "-" in name and name.endswith(("delete", "0", "1"))] == []


def with_records(files: Files) -> DataDirectory:
    directory = opened(files)
    make(directory.create_topic(ORDERS, NOW))
    directory.logs["orders", 0].append(batch(b"a"), NOW)
    return directory


def test_directories_of_a_deleted_topic_are_set_aside_not_deleted(files: Files) -> None:
    """A crash between the two steps of a deletion."""
    directory = with_records(files)
    make(directory.delete_topic("orders"))
    directory.release()
    directory = opened(files)
    assert directory.opening.strays == [f"orders-{n}.AAAAAAAAAAAAAAAAAAAABw-stray" for n in (0, 1)]
    make(directory.create_topic(StoredTopic("orders", UUID(int=8), 1), NOW))
    assert directory.logs["orders", 0].log_end_offset == 0
    directory.release()
    assert not opened(files).opening.strays
    assert files.size("orders-0.AAAAAAAAAAAAAAAAAAAABw-stray/00000000000000000000.log") > 0


def test_directories_of_a_topic_that_was_not_made_are_set_aside(files: Files) -> None:
    """A crash before the topics were written: there are no records in them."""
    directory = opened(files)
    topics = read_file(files, TOPICS.path)
    make(directory.create_topic(ORDERS, NOW))
    directory.release()
    replace_file(files, TOPICS.path, topics)
    assert opened(files).opening.strays == [f"orders-{n}.AAAAAAAAAAAAAAAAAAAABw-stray" for n in (0, 1)]


def test_a_wrong_character_in_a_topic_id_sets_nothing_aside(files: Files) -> None:
    with_records(files).close()
    names, whole = files.names(), read_file(files, TOPICS.path)
    replace_file(files, TOPICS.path, whole.replace(b"AAAABw", b"AAAACw"))
    with pytest.raises(DamagedFileError, match=r"coterie-topics\.json has a wrong checksum"):
        opened(files)
    earlier = TOPICS.decode(whole).payload.replace(b"AAAABw", b"AAAACw")
    replace_file(files, TOPICS.path, earlier)  # of a release that wrote no checksum
    with pytest.raises(DamagedFileError, match=r"orders-0/partition\.metadata names topic id AAAAAAAAAAAAAAAAAAAABw"):
        opened(files)
    assert files.names() == names
    replace_file(files, TOPICS.path, whole)
    assert read_all(opened(files).logs["orders", 0]) == [(0, b"a")]


def test_an_old_copy_of_the_topics_sets_nothing_aside(files: Files) -> None:
    directory = opened(files)
    old = read_file(files, TOPICS.path)
    directory.release()
    with_records(files).release()
    replace_file(files, TOPICS.path, old)
    with pytest.raises(DamagedFileError, match=r"has no such topic.*old copy"):
        opened(files)
    assert "orders-0" in files.names()


def test_after_a_clean_stop_nothing_is_cut_even_if_all_offsets_are_there(files: Files) -> None:
    """A page of another log, written to this one, may have batches of the same offsets and then something torn."""
    directory = opened(files)
    make(directory.create_topic(ORDERS, NOW))
    for value in (b"a", b"b"):
        directory.logs["orders", 0].append(batch(value), NOW)
    directory.logs["orders", 1].append(batch(b"c", b"d"), NOW)
    directory.close()
    path, other = (f"orders-{number}/{0:020d}.log" for number in (0, 1))
    whole, foreign = read_file(files, path), read_file(files, other)
    damaged = foreign + whole[len(foreign) :]
    replace_file(files, path, damaged)
    with pytest.raises(DirectoryError, match=path):
        opened(files)
    assert read_file(files, path) == damaged


def test_a_wrong_character_in_a_partitions_metadata_is_put_right(files: Files) -> None:
    with_records(files).close()
    path = "orders-0/partition.metadata"
    whole = read_file(files, path)
    replace_file(files, path, whole.replace(b"AAAABw", b"AAAACw"))
    directory = opened(files)
    assert read_all(directory.logs["orders", 0]) == [(0, b"a")] and not directory.opening.strays
    assert read_file(files, path) == whole


@pytest.mark.parametrize("path", [TOPICS.path, META.path])
def test_a_file_of_ours_that_is_gone_is_missed(files: Files, path: str) -> None:
    with_records(files).close()
    files.delete(path)
    with pytest.raises(DamagedFileError, match=f"{path} is missing"):
        opened(files)


def test_a_directory_of_an_earlier_release_is_opened_and_gets_its_checksums(files: Files) -> None:
    with_records(files).close()
    checksummed = [each for each in vars(metadata_files).values() if isinstance(each, ChecksummedFile)]
    assert TOPICS in checksummed and META in checksummed
    for file in checksummed:
        if files.exists(file.path):
            replace_file(files, file.path, file.read(files).payload)
    directory = opened(files)
    assert read_all(directory.logs["orders", 0]) == [(0, b"a")]
    assert TOPICS.read(files).version == META.read(files).version == 2


def test_a_name_that_leads_elsewhere_is_refused(files: Files) -> None:
    directory = opened(files)
    for name in ("../x", "a/b", ""):
        with pytest.raises(DirectoryError, match="is not a topic name"):
            directory.create_topic(StoredTopic(name, UUID(int=1), 1), NOW)
    make(directory.create_topic(ORDERS, NOW))
    with pytest.raises(DirectoryError, match="exists"):
        make(directory.create_topic(ORDERS, NOW))


def test_a_new_log_start_is_kept(files: Files) -> None:
    directory = opened(files)
    make(directory.create_topic(ORDERS, NOW))
    log = directory.logs["orders", 0]
    for _ in range(5):
        log.append(batch(b"a"), NOW)
    log.flush()
    assert make(directory.checkpoints.delete_records(("orders", 0), 3, log.durable_end)) == 3
    directory.release()
    assert opened(files).logs["orders", 0].log_start_offset == 3


def test_a_power_cut_while_a_topic_is_made_leaves_it_whole_or_not_at_all() -> None:
    """Each name may survive or not: the directories' are durable before the topics file names the topic."""
    for seed in range(10):
        for steps in range(40):
            disk = Disk(Rng(seed).of("disk"))
            directory = opened(disk)
            disk.steps_left = steps
            is_made = False
            with suppress(PowerCut):
                make(directory.create_topic(StoredTopic("t", UUID(int=8), 3), NOW))
                is_made = True
            disk.crash()
            again = opened(disk)
            assert "t" in again.topics or not is_made
            assert len(again.logs) == (3 if "t" in again.topics else 0)


def test_a_topic_that_cannot_be_created_leaves_nothing_behind() -> None:
    for room in range(0, 200, 20):
        disk = FaultyFiles()
        directory = opened(disk)
        before = disk.names()
        disk.room = room
        with pytest.raises(LogWriteError, match="orders"):
            make(directory.create_topic(ORDERS, NOW))
        disk.room = None
        assert [name for name in disk.names() if not name.endswith(".tmp")] == before and not directory.logs
        make(directory.create_topic(ORDERS, NOW))


def test_changes_that_cannot_be_written_are_not_made() -> None:
    disk = FaultyFiles()
    directory = opened(disk)
    make(directory.create_topic(ORDERS, NOW))
    disk.room = 10
    with pytest.raises(LogWriteError):
        make(directory.set_configs("orders", {}, NOW))
    with pytest.raises(LogWriteError):
        delete(directory)
    with pytest.raises(LogWriteError):
        make(directory.checkpoints.write())
    assert directory.topics["orders"] == ORDERS and len(directory.logs) == 2


def test_a_log_that_cannot_be_closed_leaves_no_marker_of_a_clean_stop() -> None:
    disk = FaultyFiles()
    directory = opened(disk)
    make(directory.create_topic(ORDERS, NOW))
    directory.logs["orders", 0].append(batch(b"a"), NOW)
    disk.refuses_sync = True
    with pytest.raises(LogWriteError):
        directory.close()
    disk.refuses_sync = False
    again = opened(disk)
    assert not again.opening.was_clean and again.logs["orders", 0].log_end_offset == 1
