"""The data directory: every partition's log, which topics there are, and what must be known to open them again.

    directory = DataDirectory.open(DiskFiles(path), now_ms, cluster_id="...", node_id=1)
    change = directory.create_topic(StoredTopic("orders", topic_id, 3), now_ms)
    change.run()                                 # on any thread; see `DiskChange`
    change.done()
    directory.logs["orders", 0].append(batch, now_ms)
    directory.close()

It looks like one of Kafka's: a directory a partition, `meta.properties`, checkpoints of log starts and recovery points,
a marker of a clean shutdown. Topics and their configs, which Kafka's controllers keep elsewhere, are in
`coterie-topics.json` (`metadata_files.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from coterie.errors import MalformedError
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage.checkpoints import CLEAN_FILE, Checkpoints, Partition
from coterie.storage.cleanup import DeletedSegment, rename_files
from coterie.storage.durable_ends import (
    Damage,
    DamageError,
    DirectoryCheckpoint,
    DurableEnds,
    LogState,
    missing_directory,
    read_checkpoint,
)
from coterie.storage.files import DiskChange, Files, Lock, replace_file
from coterie.storage.flush import Journal, journal_key, read_journal, remove_journal
from coterie.storage.log_config import LogConfig
from coterie.storage.log_errors import DamagedFileError, DirectoryError, LogError, LogWriteError
from coterie.storage.metadata_files import (
    META,
    TOPICS,
    StoredTopic,
    Topics,
    decode_properties,
    encode_partition_metadata,
    encode_properties,
    id_text,
    is_legal_name,
    read_topics,
    write_topics,
)
from coterie.storage.partition_log import PartitionLog
from coterie.storage.stray_directories import (
    DELETE,
    PARTITION_FILE,
    partition_path,
    remove_deleted_directories,
    remove_directory,
    set_aside,
    set_strays_aside,
)
from coterie.structs import DataStruct, field, replace

_DEFAULTS = BrokerSettings()
LOCK_FILE = ".lock"
_META_VERSION = "1"

SLICE = 64
"""The number of partitions that are created at a time; flushes wait no longer than that takes."""


class Opening(DataStruct):
    """The condition of the directory when it was opened."""

    was_clean: bool
    knew_ends: bool = True
    """False for a directory of an earlier release, which did not save how far its logs were durable."""
    strays: list[str] = field(default_factory=list)
    """New names of directories that belonged to no topic; the operator may delete them."""


class DataDirectory:
    """All logs of a broker, and its topics."""

    def __init__(self, files: Files, config_of: Callable[[StoredTopic], LogConfig], *, journaled: bool) -> None:
        self._files = files
        self._config_of = config_of
        self._lock: Lock | None = None
        self.meta: dict[str, str] = {}
        self.topics: dict[str, StoredTopic] = {}
        self._deleted: dict[UUID, str] = {}
        """Deleted topics whose directories may still have their names."""
        self.logs: dict[Partition, PartitionLog] = {}
        self.journal = Journal(files) if journaled else None
        self.ends = DurableEnds(files)
        self.checkpoints = Checkpoints(files, self.topics, self.logs, self.ends)
        self.opening = Opening(was_clean=False)

    @classmethod
    def open(
        cls,
        files: Files,
        now_ms: int,
        *,
        cluster_id: str,
        node_id: int = _DEFAULTS.node_id,
        config_of: Callable[[StoredTopic], LogConfig] = lambda _topic: LogConfig(),
        journaled: bool = False,
    ) -> DataDirectory:
        """Open or create a directory; `cluster_id` is for a new one, an old one has its own (`meta`).

        `journaled`: flushes may go to the `journal`. What an earlier process left in one is used in any case.
        """
        directory = cls(files, config_of, journaled=journaled)
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
            found = self._read_topics()
            self.topics.update(found.topics)
            self._deleted = found.deleted
            self.meta = self._read_meta(cluster_id, node_id)
            checkpoint = read_checkpoint(self._files)
            self.checkpoints.restore(checkpoint)
        except MalformedError as error:
            raise DirectoryError(f"the data directory cannot be opened: {error}") from None
        was_clean = self.checkpoints.was_clean(checkpoint)
        self.opening = Opening(was_clean=was_clean, knew_ends=checkpoint is not None)
        self._set_strays_aside()
        self._open_logs(checkpoint, now_ms, was_clean=was_clean)
        if was_clean:
            self._files.delete(CLEAN_FILE)
            self._files.sync_directory()
        if checkpoint is None:
            self.checkpoints.expect_gaps()
        if was_clean and checkpoint is not None:
            self.ends.follow(checkpoint)
        else:
            self.checkpoints.write().run()  # what was recovered is durable
        remove_journal(self._files)

    def _open_logs(self, checkpoint: DirectoryCheckpoint | None, now_ms: int, *, was_clean: bool) -> None:
        """Open all logs; `DamageError` lists all damage."""
        journaled = {} if was_clean else read_journal(self._files)
        ends = self.ends.read()
        damages: list[Damage] = []
        for topic in self.topics.values():
            for partition in range(topic.partitions):
                key = topic.name, partition
                known = None
                if checkpoint is not None:
                    known = checkpoint.logs.get((topic.id, partition), LogState())
                    known = known._replace(end=max(known.end, ends.get((topic.id, partition), 0)))
                if known is not None and not self._files.exists(partition_path(*key)):
                    damages.append(missing_directory(partition_path(*key), known))
                    continue
                try:
                    self.logs[key] = self._open_log(
                        topic,
                        partition,
                        now_ms,
                        log_start_offset=self.checkpoints.log_start_offset(key),
                        recovery_point=self.checkpoints.recovery_point(key),
                        clean=was_clean,
                        journaled=journaled.get(journal_key(topic.id, partition), ()),
                        known=known,
                    )
                except DamageError as error:
                    damages += error.damages
        if damages:
            raise DamageError(damages)
        self.checkpoints.forget_lost()

    def _read_topics(self) -> Topics:
        if self._files.exists(TOPICS.path):
            return read_topics(self._files)
        others = [name for name in self._files.names() if name != LOCK_FILE and not name.endswith(".tmp")]
        if any(name.startswith("coterie-") for name in others) or (META.path in others and self._meta_is_ours()):
            raise TOPICS.damaged("is missing")
        if others:
            whose = "looks like one of Apache Kafka's" if META.path in others else "holds something else"
            raise DirectoryError(
                f"the data directory {whose} (it has {others[0]} and no {TOPICS.path}): take an empty or a new one"
            )
        self._write_topics({}, {})
        return Topics()

    def _meta_is_ours(self) -> bool:
        try:
            return META.read(self._files).version == META.version
        except DamagedFileError:
            return False

    def _write_topics(self, topics: Mapping[str, StoredTopic], deleted: Mapping[UUID, str]) -> None:
        write_topics(self._files, topics.values(), deleted)

    def _read_meta(self, cluster_id: str, node_id: int) -> dict[str, str]:
        if not self._files.exists(META.path):
            if self.topics:  # it is written before the first topic is
                raise META.damaged("is missing")
            meta = {"version": _META_VERSION, "cluster.id": cluster_id, "node.id": str(node_id)}
            META.write(self._files, encode_properties(meta))
            return meta
        content = META.read(self._files)
        try:
            meta = decode_properties(content.payload)
        except MalformedError as error:
            raise META.damaged(f"is not what we write: {error}") from None
        if "cluster.id" not in meta or "node.id" not in meta:
            raise META.damaged("has no cluster.id or no node.id")
        META.renew(self._files, content)
        if meta["node.id"] != str(node_id):
            raise DirectoryError(
                f"the data directory belongs to node {meta['node.id']}, this is node {node_id}: "
                "take that node's id or another directory"
            )
        return meta

    # --- partitions' directories --------------------------------------------------------------------------------------

    def _open_log(
        self,
        topic: StoredTopic,
        partition: int,
        now_ms: int,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        clean: bool = False,
        journaled: Sequence[bytes] = (),
        known: LogState | None = None,
    ) -> PartitionLog:
        path = partition_path(topic.name, partition)
        log = PartitionLog.open(
            self._files,
            path,
            self._config_of(topic),
            now_ms,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=clean,
            journaled=journaled,
            known=known,
        )
        log.key = topic.id, partition
        if self.journal is not None:
            log.journal = self.journal.part(journal_key(topic.id, partition))
        if not self._files.exists(f"{path}/{PARTITION_FILE}"):
            # It is not synced: the topics file also says which topic the directory belongs to.
            replace_file(self._files, f"{path}/{PARTITION_FILE}", encode_partition_metadata(topic.id), sync=False)
        return log

    def _set_strays_aside(self) -> None:
        self.opening.strays += set_strays_aside(self._files, self.topics.values(), self._deleted)
        remove_deleted_directories(self._files)
        if self._deleted:
            self._files.sync_directory()
            self._write_topics(self.topics, {})
            self._deleted = {}

    # --- topics -------------------------------------------------------------------------------------------------------

    def create_topic(self, topic: StoredTopic, now_ms: int) -> DiskChange[None]:
        """Create a topic with empty logs."""
        if not is_legal_name(topic.name):
            raise DirectoryError(
                f"{topic.name!r} is not a topic name: it may have at most 249 letters, digits, '.', '_' and '-'"
            )
        if topic.name in self.topics:
            raise DirectoryError(f"topic {topic.name!r} exists")
        return self._with(topic, range(topic.partitions), f"cannot create {topic.name!r}", now_ms)

    def create(self, topics: Sequence[StoredTopic], now_ms: int) -> Creation:
        """Create topics, or new partitions of topics that exist, some at a time, and make all durable at once."""
        known = self.topics
        news = [(one, range(known[one.name].partitions if one.name in known else 0, one.partitions)) for one in topics]
        return Creation(self, news, now_ms)

    def add_partitions(self, name: str, partitions: int, now_ms: int) -> DiskChange[None]:
        """Raise the number of partitions of a topic; it cannot be lowered."""
        topic = self.topics[name]
        if partitions < topic.partitions:
            raise DirectoryError(f"topic {name!r} has {topic.partitions} partitions and cannot have {partitions}")
        new = range(topic.partitions, partitions)
        return self._with(replace(topic, partitions=partitions), new, f"cannot add partitions to {name!r}", now_ms)

    def set_configs(self, name: str, configs: Mapping[str, str], now_ms: int) -> DiskChange[None]:
        topic = replace(self.topics[name], configs=dict(configs))
        return self._with(topic, range(0), f"cannot keep the configs of {name!r}", now_ms)

    def _with(self, topic: StoredTopic, new: range, failing: str, now_ms: int) -> DiskChange[None]:
        """Replace the topic of the same name by `topic`, with logs for its `new` partitions."""
        return Creation(self, [(topic, new)], now_ms, failing).at_once()

    def make_logs(self, topic: StoredTopic, new: Sequence[int], now_ms: int) -> dict[Partition, PartitionLog]:
        """Make empty logs, or none if it fails; on any thread."""
        logs: dict[Partition, PartitionLog] = {}
        try:
            self._make_way(topic.name, new)
            for partition in new:
                log = logs[topic.name, partition] = self._open_log(topic, partition, now_ms, known=LogState())
                log.lead(0)()
        except OSError:
            self.unmake_logs(logs)
            for partition in new:
                with suppress(OSError):
                    remove_directory(self._files, partition_path(topic.name, partition))
            raise
        return logs

    def keep_topics(self, topics: Sequence[StoredTopic], logs: Mapping[Partition, PartitionLog]) -> None:
        """Write the topics file with these topics added, or in place of those with the same name; on any thread."""
        if logs:  # a topic in the file has its directories: if one is missing, it was lost
            self._files.sync_directory()
        self._write_topics({**self.topics, **{topic.name: topic for topic in topics}}, self._deleted)

    def take_topics(self, topics: Sequence[StoredTopic], logs: Mapping[Partition, PartitionLog]) -> None:
        self.logs |= logs
        for topic in topics:
            self.topics[topic.name] = topic
            config = self._config_of(topic)
            for partition in range(topic.partitions):
                self.logs[topic.name, partition].config = config

    def _make_way(self, name: str, new: Sequence[int]) -> None:
        """Set aside what is left of a deleted topic of this name, so that it does not become part of the new one."""
        for partition in new:
            path = partition_path(name, partition)
            if self._files.exists(path):
                set_aside(self._files, path)
        self.checkpoints.forget(name, new)

    def unmake_logs(self, logs: Mapping[Partition, PartitionLog]) -> None:
        """Remove logs that belong to no topic; on any thread."""
        for log in logs.values():
            log.release()
            with suppress(OSError):  # then the next creation sets it aside
                remove_directory(self._files, log.path)

    def delete_topic(self, name: str) -> DiskChange[list[PartitionLog]]:
        """Delete a topic; `done` returns its logs, for `clear_away`."""
        topic = self.topics[name]
        left = {other: kept for other, kept in self.topics.items() if other != name}
        deleted = {**self._deleted, topic.id: name}

        def work() -> None:
            try:
                self._write_topics(left, deleted)
            except OSError as error:
                raise LogWriteError.of(f"cannot delete {name!r}", error) from error

        def take(_: None) -> list[PartitionLog]:
            del self.topics[name]
            self._deleted[topic.id] = name
            return [self.logs.pop((name, partition)) for partition in range(topic.partitions)]

        return DiskChange(work, take)

    def clear_away(self, topic: StoredTopic, logs: list[PartitionLog]) -> DiskChange[list[str]]:
        """Rename the directories of a deleted topic; `done` returns the new names, for `remove_directory`."""

        def work() -> list[str]:
            # The new names have the topic's id, because with its name they could be longer than file systems allow.
            paths = [f"{id_text(topic.id)}-{partition}{DELETE}" for partition in range(len(logs))]
            try:
                for log, path in zip(logs, paths, strict=True):
                    log.release()
                    self._files.rename(log.path, path)
                self._files.sync_directory()
            except OSError as error:
                raise LogWriteError.of(f"cannot clear {topic.name!r} away", error) from error
            return paths

        def take(paths: list[str]) -> list[str]:
            del self._deleted[topic.id]  # the next time that the topics are written
            return paths

        return DiskChange(work, take)

    def remove_segments(self, deleted: list[DeletedSegment]) -> DiskChange[list[DeletedSegment]]:
        """Rename the files of deleted segments; `done` returns them, for `remove_files`.

        The logs' starts are saved first: a segment that is missing after the start of its log was lost.
        """
        checkpoint = self.checkpoints.write()

        def work() -> list[DeletedSegment]:
            checkpoint.run()
            rename_files(self._files, deleted)
            return deleted

        return DiskChange(work, lambda found: found)

    # --- closing ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close all logs and mark the shutdown as clean; if a log cannot be closed, the next opening checks all."""
        failed: LogError | None = None
        try:
            for log in self.logs.values():
                try:
                    log.close()
                except LogError as error:
                    failed = error
            if failed is not None:
                raise failed
            if self.journal is not None:
                self.journal.release()
                remove_journal(self._files)
            self.checkpoints.write().run()
            self.checkpoints.mark_clean()
        finally:
            self.release()

    def release(self) -> None:
        """Close all files as they are, as if the process had ended."""
        for log in self.logs.values():
            log.release()
        if self.journal is not None:
            self.journal.release()
        self.ends.release()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


class Creation:
    """Creates topics and partitions: some logs with each change, and all of them exist with the last.

    Between two changes other work can use the disk. If a change fails, or `undo` was run, nothing is left.
    """

    def __init__(
        self, directory: DataDirectory, news: Sequence[tuple[StoredTopic, range]], now_ms: int, failing: str = ""
    ) -> None:
        """Each topic with the numbers of its new partitions."""
        self._directory = directory
        self._topics = [topic for topic, _ in news]
        self._todo = [(topic, new[at : at + SLICE]) for topic, new in news for at in range(0, len(new), SLICE)]
        self._now_ms = now_ms
        self._failing = failing or f"cannot create {', '.join(repr(topic.name) for topic in self._topics[:3])}"
        self._logs: dict[Partition, PartitionLog] = {}
        self.is_done = False

    def next(self) -> DiskChange[None]:
        """Return the next change to carry out, while there is one."""
        return DiskChange(self._slice, self._take)

    def at_once(self) -> DiskChange[None]:
        def work() -> None:
            while not self.is_done:
                self._slice()

        return DiskChange(work, self._take)

    def undo(self) -> DiskChange[None]:
        """Remove what was created so far."""
        return DiskChange(lambda: self._directory.unmake_logs(self._logs), lambda _: None)

    def _slice(self) -> None:
        try:
            made = 0
            while self._todo and (not made or made + len(self._todo[0][1]) <= SLICE):
                topic, new = self._todo.pop(0)
                self._logs |= self._directory.make_logs(topic, new, self._now_ms)
                made += len(new)
            if not self._todo:
                self._directory.keep_topics(self._topics, self._logs)
                self.is_done = True
        except OSError as error:
            self._directory.unmake_logs(self._logs)
            raise LogWriteError.of(self._failing, error) from error

    def _take(self, _: None) -> None:
        if self.is_done:
            self._directory.take_topics(self._topics, self._logs)
