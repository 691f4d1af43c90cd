"""The data directory: every partition's log, which topics there are, and what must be known to open them again.

    directory = DataDirectory.open(DiskFiles(path), now_ms, cluster_id="...", node_id=1)
    directory.create_topic(Topic("orders", topic_id, 3), now_ms)
    directory.logs["orders", 0].append(batch, now_ms)
    directory.close()

It looks like one of Kafka's: a directory a partition, `meta.properties`, checkpoints of log starts and recovery points,
a marker of a clean stop. What Kafka's controllers keep elsewhere, topics and their configs, is in a file of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from coterie.errors import MalformedError
from coterie.log.checkpoints import (
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    encode_offsets,
    encode_partition_metadata,
    encode_properties,
    id_text,
)
from coterie.log.config import LogConfig
from coterie.log.errors import DirectoryError, LogError, LogWriteError
from coterie.log.files import Files, Lock, read_file, replace_file
from coterie.log.partition import PartitionLog
from coterie.log.topics import TOPICS_FILE, Topic, decode_topics, encode_topics, is_legal_name

__all__ = ["DataDirectory", "Opening", "Topic", "remove_directory"]

LOCK_FILE = ".lock"
META_FILE = "meta.properties"
CLEAN_FILE = ".kafka_cleanshutdown"
LOG_STARTS = "log-start-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
PARTITION_FILE = "partition.metadata"
_DELETE, _STRAY = "-delete", "-stray"
_META_VERSION = "1"

Partition = tuple[str, int]


@dataclass(slots=True)
class Opening:
    """How the directory was found."""

    was_clean: bool
    strays: list[str] = field(default_factory=list)
    """Directories of topics that do not exist: set aside under these names, for somebody to look at and delete."""


class DataDirectory:
    def __init__(self, files: Files, config_of: Callable[[Topic], LogConfig]) -> None:
        self._files = files
        self._config_of = config_of
        self._lock: Lock | None = None
        self.meta: dict[str, str] = {}
        self.topics: dict[str, Topic] = {}
        self.logs: dict[Partition, PartitionLog] = {}
        self.opening = Opening(was_clean=False)

    @classmethod
    def open(
        cls,
        files: Files,
        now_ms: int,
        *,
        cluster_id: str,
        node_id: int = 1,
        config_of: Callable[[Topic], LogConfig] = lambda _topic: LogConfig(),
    ) -> DataDirectory:
        """Open or create; `cluster_id` is for a new one, an old one has its own (`meta`)."""
        directory = cls(files, config_of)
        directory._take_lock()
        try:
            directory._open(now_ms, cluster_id, node_id)
        except OSError as error:
            directory.release()
            raise DirectoryError(f"the data directory cannot be opened: {error}") from error
        except BaseException:
            directory.release()
            raise
        return directory

    def _take_lock(self) -> None:
        try:
            self._lock = self._files.lock(LOCK_FILE)
        except BlockingIOError:
            raise DirectoryError(
                "the data directory is in use by another process: stop that one, or take another directory"
            ) from None

    def _open(self, now_ms: int, cluster_id: str, node_id: int) -> None:
        try:
            self.topics = {topic.name: topic for topic in self._read_topics()}
            self.meta = self._read_meta(cluster_id, node_id)
            starts = self._read_offsets(LOG_STARTS)
            recovery_points = self._read_offsets(RECOVERY_POINTS)
        except MalformedError as error:
            raise DirectoryError(f"the data directory cannot be opened: {error}") from None
        was_clean = self._files.exists(CLEAN_FILE)
        if was_clean:
            self._files.delete(CLEAN_FILE)
            self._files.sync_directory()
        self.opening = Opening(was_clean=was_clean)
        self._set_strays_aside()
        for topic in self.topics.values():
            for partition in range(topic.partitions):
                key = topic.name, partition
                self._open_log(
                    topic,
                    partition,
                    now_ms,
                    log_start=starts.get(key, 0),
                    recovery_point=recovery_points.get(key, 0),
                    clean=was_clean,
                )

    def _read_topics(self) -> list[Topic]:
        if self._files.exists(TOPICS_FILE):
            return decode_topics(read_file(self._files, TOPICS_FILE))
        others = [name for name in self._files.names() if name != LOCK_FILE and not name.endswith(".tmp")]
        if others:
            whose = "looks like one of Apache Kafka's" if META_FILE in others else "holds something else"
            raise DirectoryError(
                f"the data directory {whose} (it has {others[0]} and no {TOPICS_FILE}): take an empty or a new one"
            )
        self._write_topics()
        return []

    def _write_topics(self) -> None:
        replace_file(self._files, TOPICS_FILE, encode_topics(self.topics.values()))

    def _read_meta(self, cluster_id: str, node_id: int) -> dict[str, str]:
        if not self._files.exists(META_FILE):
            meta = {"version": _META_VERSION, "cluster.id": cluster_id, "node.id": str(node_id)}
            replace_file(self._files, META_FILE, encode_properties(meta))
            return meta
        meta = decode_properties(read_file(self._files, META_FILE))
        if meta.get("node.id") != str(node_id):
            raise DirectoryError(
                f"the data directory belongs to node {meta.get('node.id')}, this is node {node_id}: "
                "take that node's id or another directory"
            )
        return meta

    def _read_offsets(self, path: str) -> dict[Partition, int]:
        return decode_offsets(read_file(self._files, path), path) if self._files.exists(path) else {}

    # --- partitions' directories --------------------------------------------------------------------------------------

    def _open_log(
        self,
        topic: Topic,
        partition: int,
        now_ms: int,
        *,
        log_start: int = 0,
        recovery_point: int = 0,
        clean: bool = False,
    ) -> None:
        path = _path(topic.name, partition)
        self.logs[topic.name, partition] = PartitionLog.open(
            self._files,
            path,
            self._config_of(topic),
            now_ms,
            log_start=log_start,
            recovery_point=recovery_point,
            clean=clean,
        )
        if not self._files.exists(f"{path}/{PARTITION_FILE}"):
            # Not synced: which topic the directory belongs to follows from the topics' file as well.
            replace_file(self._files, f"{path}/{PARTITION_FILE}", encode_partition_metadata(topic.id), sync=False)

    def _set_strays_aside(self) -> None:
        """A stop in the middle of creating or deleting a topic leaves directories that no topic has."""
        expected = {
            _path(topic.name, partition): topic.id
            for topic in self.topics.values()
            for partition in range(topic.partitions)
        }
        for name in self._files.names():
            if name.endswith(_DELETE):
                remove_directory(self._files, name)
            elif not name.endswith(_STRAY) and self._files.exists(f"{name}/{PARTITION_FILE}"):
                topic_id = self._topic_id_of(name)
                if topic_id is None and name in expected:
                    # A crash of the machine may cost us this file, which is not synced, and must cost no more than it.
                    self._files.delete(f"{name}/{PARTITION_FILE}")
                elif expected.get(name) != topic_id:
                    aside = f"{name[:200]}.{id_text(topic_id) if topic_id else 'unknown'}{_STRAY}"
                    self._files.rename(name, aside)
                    self.opening.strays.append(aside)

    def _topic_id_of(self, path: str) -> UUID | None:
        try:
            return decode_partition_metadata(read_file(self._files, f"{path}/{PARTITION_FILE}"))
        except MalformedError:
            return None

    # --- topics -------------------------------------------------------------------------------------------------------

    def create_topic(self, topic: Topic, now_ms: int) -> None:
        """The topic with its empty logs; it exists when this returns."""
        if not is_legal_name(topic.name):
            raise DirectoryError(
                f"{topic.name!r} is no name for a topic: letters, digits, '.', '_' and '-', at most 249"
            )
        if topic.name in self.topics:
            raise DirectoryError(f"topic {topic.name!r} exists")
        self._grow(topic, 0, now_ms)

    def add_partitions(self, name: str, partitions: int, now_ms: int) -> None:
        """The topic with as many partitions; never fewer than before."""
        topic = self.topics[name]
        if partitions < topic.partitions:
            raise DirectoryError(f"topic {name!r} has {topic.partitions} partitions and cannot have {partitions}")
        self._grow(replace(topic, partitions=partitions), topic.partitions, now_ms)

    def _grow(self, topic: Topic, had: int, now_ms: int) -> None:
        before = self.topics.get(topic.name)
        try:
            for partition in range(had, topic.partitions):
                self._open_log(topic, partition, now_ms)
            self.topics[topic.name] = topic
            self._write_topics()
        except OSError as error:
            self._put_back(topic.name, before)
            for path in self._detach(topic, range(had, topic.partitions)):
                remove_directory(self._files, path)
            raise LogWriteError.of(f"cannot create partitions of {topic.name!r}", error) from error

    def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        before = self.topics[name]
        topic = self.topics[name] = replace(before, configs=dict(configs))
        try:
            self._write_topics()
        except OSError as error:
            self._put_back(name, before)
            raise LogWriteError.of(f"cannot keep the configs of {name!r}", error) from error
        for partition in range(topic.partitions):
            self.logs[name, partition].config = self._config_of(topic)

    def delete_topic(self, name: str) -> list[str]:
        """The topic is gone when this returns; its directories, under new names, are for `remove_directory`."""
        topic = self.topics.pop(name)
        try:
            self._write_topics()
        except OSError as error:
            self._put_back(name, topic)
            raise LogWriteError.of(f"cannot delete {name!r}", error) from error
        return self._detach(topic, range(topic.partitions))

    def _put_back(self, name: str, before: Topic | None) -> None:
        self.topics.pop(name, None)
        if before is not None:
            self.topics[name] = before

    def _detach(self, topic: Topic, partitions: Iterable[int]) -> list[str]:
        paths = []
        for partition in partitions:
            log = self.logs.pop((topic.name, partition), None)
            if log is not None:
                log.release()
            path = _path(topic.name, partition)
            if self._files.exists(path):
                # Not by the topic's name: with it the new one could be longer than file systems allow.
                paths.append(f"{id_text(topic.id)}-{partition}{_DELETE}")
                self._files.rename(path, paths[-1])
        return paths

    # --- what is kept for the next opening ----------------------------------------------------------------------------

    def delete_records(self, partition: Partition, before: int, up_to: int) -> int:
        """As `PartitionLog.delete_records`, and the new start is kept."""
        start = self.logs[partition].delete_records(before, up_to)
        self._keep(LOG_STARTS, {key: log.log_start for key, log in self.logs.items() if log.log_start})
        return start

    def checkpoint(self) -> None:
        """Keep how far each log is durable, so that an opening after a crash need not check what is before."""
        self._keep(LOG_STARTS, {key: log.log_start for key, log in self.logs.items() if log.log_start})
        self._keep(RECOVERY_POINTS, {key: log.durable_end for key, log in self.logs.items()})

    def _keep(self, path: str, offsets: dict[Partition, int]) -> None:
        try:
            replace_file(self._files, path, encode_offsets(offsets))
        except OSError as error:
            raise LogWriteError.of(f"cannot write {path}", error) from error

    # --- closing ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Everything durable, and a marker that says so; if a log cannot be closed, the next opening checks all."""
        failed: LogError | None = None
        try:
            for log in self.logs.values():
                try:
                    log.close()
                except LogError as error:
                    failed = error
            if failed is not None:
                raise failed
            self.checkpoint()
            replace_file(self._files, CLEAN_FILE, b'{"version":0,"brokerEpoch":-1}')
        finally:
            self.release()

    def release(self) -> None:
        """Let go of everything as it is, as if the process had ended."""
        for log in self.logs.values():
            log.release()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def remove_directory(files: Files, path: str) -> None:
    """Delete a partition's directory with all that is in it; on any thread."""
    for name in files.names(path):
        files.delete(f"{path}/{name}")
    files.rmdir(path)


def _path(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"
