"""The data directory: every partition's log, which topics there are, and what must be known to open them again.

    directory = DataDirectory.open(DiskFiles(path), now_ms, cluster_id="...", node_id=1)
    change = directory.create_topic(Topic("orders", topic_id, 3), now_ms)
    change.run()                                 # on any thread; see `disk_changes.py`
    change.done()
    directory.logs["orders", 0].append(batch, now_ms)
    directory.close()

It looks like one of Kafka's: a directory a partition, `meta.properties`, checkpoints of log starts and recovery points,
a marker of a clean stop. What Kafka's controllers keep elsewhere, topics and their configs, is in a file of ours. So is
what the checkpoints say, with a checksum (`durable_ends.py`): Kafka's are written beside, and read if ours is not
there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import UUID

from coterie.errors import MalformedError
from coterie.storage.checkpoints import (
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    encode_offsets,
    encode_partition_metadata,
    encode_properties,
    id_text,
)
from coterie.storage.damage import Damage, DamageError, missing_directory
from coterie.storage.deleted import DeletedSegment, rename_files
from coterie.storage.disk_changes import Change
from coterie.storage.durable_ends import (
    CHECKPOINT,
    WITHIN_SEGMENTS,
    Checkpoint,
    DurableEnds,
    LogState,
    TopicPartition,
    read_checkpoint,
    write_checkpoint,
)
from coterie.storage.files import Files, Lock, read_file, replace_file
from coterie.storage.journal import Journal, journal_key, read_journal, remove_journal
from coterie.storage.layout import LOG, LOG_STARTS
from coterie.storage.log_config import LogConfig
from coterie.storage.log_errors import DamagedFileError, DirectoryError, LogError, LogWriteError
from coterie.storage.own_files import META, TOPICS
from coterie.storage.partition_log import PartitionLog
from coterie.storage.topics_file import Topic, Topics, is_legal_name, read_topics, write_topics

__all__ = ["SLICE", "Creation", "DataDirectory", "Opening", "Topic", "remove_directory"]

LOCK_FILE = ".lock"
CLEAN_FILE = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
COMPACTED = "cleaner-offset-checkpoint"
PARTITION_FILE = "partition.metadata"
_DELETE, _STRAY = "-delete", "-stray"
_META_VERSION = "1"

SLICE = 64
"""Partitions that are created at a time; flushes wait for no more than these."""

Partition = tuple[str, int]


@dataclass(slots=True)
class Opening:
    """How the directory was found."""

    was_clean: bool
    knew_ends: bool = True
    """False for a directory of an earlier release: how far its logs were durable was not written down."""
    strays: list[str] = field(default_factory=list)
    """Directories of topics that do not exist: set aside under these names, for somebody to look at and delete."""


class DataDirectory:
    def __init__(self, files: Files, config_of: Callable[[Topic], LogConfig], *, journaled: bool) -> None:
        self._files = files
        self._config_of = config_of
        self._lock: Lock | None = None
        self.meta: dict[str, str] = {}
        self.topics: dict[str, Topic] = {}
        self._deleted: dict[UUID, str] = {}
        """Topics that are gone, and whose directories may still have their names."""
        self.logs: dict[Partition, PartitionLog] = {}
        self.journal = Journal(files) if journaled else None
        self.ends = DurableEnds(files)
        self._number = 0
        """The number of the last checkpoint."""
        self._gaps_below: dict[TopicPartition, int] = {}
        self.opening = Opening(was_clean=False)
        self._kept: dict[str, dict[Partition, int]] = {LOG_STARTS: {}, RECOVERY_POINTS: {}, COMPACTED: {}}
        """What the checkpoints on disk say."""

    @classmethod
    def open(
        cls,
        files: Files,
        now_ms: int,
        *,
        cluster_id: str,
        node_id: int = 1,
        config_of: Callable[[Topic], LogConfig] = lambda _topic: LogConfig(),
        journaled: bool = False,
    ) -> DataDirectory:
        """Open or create; `cluster_id` is for a new one, an old one has its own (`meta`).

        `journaled`: flushes may go to the `journal`. What an earlier owner left in one is taken in any case.
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
            self.topics, self._deleted = found.topics, found.deleted
            self.meta = self._read_meta(cluster_id, node_id)
            checkpoint = read_checkpoint(self._files)
            self._take_offsets(checkpoint)
        except MalformedError as error:
            raise DirectoryError(f"the data directory cannot be opened: {error}") from None
        was_clean = self._was_clean(checkpoint)
        self.opening = Opening(was_clean=was_clean, knew_ends=checkpoint is not None)
        self._set_strays_aside()
        self._open_logs(checkpoint, now_ms, was_clean=was_clean)
        if was_clean:
            self._files.delete(CLEAN_FILE)
            self._files.sync_directory()
        if checkpoint is None:
            self._gaps_below = {
                (self.topics[name].id, partition): log.log_end
                for (name, partition), log in self.logs.items()
                if log.config.compacts or self.compacted_to((name, partition))
            }
        if was_clean and checkpoint is not None:
            self.ends.follow(checkpoint)
        else:
            self.checkpoint().run()  # what was recovered is durable
        remove_journal(self._files)

    def _take_offsets(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            for path in self._kept:
                self._kept[path] = self._read_offsets(path)
            return
        self._number = checkpoint.number
        for topic in self.topics.values():
            for partition in range(topic.partitions):
                state = checkpoint.logs.get((topic.id, partition))
                if state is not None:
                    key = topic.name, partition
                    self._kept[LOG_STARTS][key] = state.start
                    self._kept[RECOVERY_POINTS][key] = state.end
                    self._kept[COMPACTED][key] = state.compacted
                    self._gaps_below[topic.id, partition] = state.gaps_below

    def _was_clean(self, checkpoint: Checkpoint | None) -> bool:
        """Whether the marker of a clean stop is there, and was written with this checkpoint."""
        if not self._files.exists(CLEAN_FILE):
            return False
        if checkpoint is None:
            return True
        try:
            return bool(json.loads(read_file(self._files, CLEAN_FILE))["checkpoint"] == checkpoint.number)
        except (ValueError, KeyError, TypeError):
            return False

    def _open_logs(self, checkpoint: Checkpoint | None, now_ms: int, *, was_clean: bool) -> None:
        """All logs; `DamageError` names all that is damaged."""
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
                if known is not None and not self._files.exists(_path(*key)):
                    damages.append(missing_directory(_path(*key), known))
                    continue
                try:
                    self.logs[key] = self._open_log(
                        topic,
                        partition,
                        now_ms,
                        log_start=self._kept[LOG_STARTS].get(key, 0),
                        recovery_point=self._kept[RECOVERY_POINTS].get(key, 0),
                        clean=was_clean,
                        journaled=journaled.get(journal_key(topic.id, partition), ()),
                        known=known,
                    )
                except DamageError as error:
                    damages += error.damages
        if damages:
            raise DamageError(damages)
        compacted = self._kept[COMPACTED].items()  # behind where a log was cut back it is not compacted
        self._kept[COMPACTED] = {
            key: end for key, end in compacted if key in self.logs and end <= self.logs[key].log_end
        }

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

    def _write_topics(self, topics: Mapping[str, Topic], deleted: Mapping[UUID, str]) -> None:
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
        journaled: Sequence[bytes] = (),
        known: LogState | None = None,
    ) -> PartitionLog:
        path = _path(topic.name, partition)
        log = PartitionLog.open(
            self._files,
            path,
            self._config_of(topic),
            now_ms,
            log_start=log_start,
            recovery_point=recovery_point,
            clean=clean,
            journaled=journaled,
            known=known,
        )
        log.key = topic.id, partition
        if self.journal is not None:
            log.journal = self.journal.part(journal_key(topic.id, partition))
        if not self._files.exists(f"{path}/{PARTITION_FILE}"):
            # Not synced: which topic the directory belongs to follows from the topics' file as well.
            replace_file(self._files, f"{path}/{PARTITION_FILE}", encode_partition_metadata(topic.id), sync=False)
        return log

    def _set_strays_aside(self) -> None:
        """A stop in the middle of creating or deleting a topic leaves directories that no topic has.

        They are set aside if they hold no records, or belong to a topic that was deleted. Otherwise a file is damaged
        or an old copy, or a person put a directory here: no records are set aside because of that.
        """
        expected = {
            _path(topic.name, partition): topic.id
            for topic in self.topics.values()
            for partition in range(topic.partitions)
        }
        strays = []
        for name in self._files.names():
            path = f"{name}/{PARTITION_FILE}"
            if name.endswith((_DELETE, _STRAY)) or not self._files.exists(path):
                continue
            topic_id = self._topic_id_of(name)
            if topic_id is None and name in expected:
                # A crash of the machine may cost us this file, which is not synced, and must cost no more than it.
                self._files.delete(path)
            elif expected.get(name) != topic_id:
                self._check_stray(name, topic_id, expected.get(name))
                strays.append((name, topic_id))
        for name, topic_id in strays:
            self.opening.strays.append(self._set_aside(name, topic_id))
        for name in self._files.names():
            if name.endswith(_DELETE):
                remove_directory(self._files, name)
        if self._deleted:
            self._files.sync_directory()
            self._write_topics(self.topics, {})
            self._deleted = {}

    def _check_stray(self, name: str, topic_id: UUID | None, expected: UUID | None) -> None:
        was_deleted = topic_id in self._deleted or (topic_id is None and _topic_of(name) in self._deleted.values())
        if was_deleted or not self._has_records(name):
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

    def _has_records(self, path: str) -> bool:
        return any(name.endswith(LOG) and self._files.size(f"{path}/{name}") for name in self._files.names(path))

    def _set_aside(self, name: str, topic_id: UUID | None) -> str:
        begin = aside = f"{name[:200]}.{id_text(topic_id) if topic_id else 'unknown'}"
        number = 1
        while self._files.exists(aside + _STRAY):  # of an earlier attempt that failed, and could not be removed either
            number += 1
            aside = f"{begin}.{number}"
        aside += _STRAY
        self._files.rename(name, aside)
        return aside

    def _topic_id_of(self, path: str) -> UUID | None:
        try:
            return decode_partition_metadata(read_file(self._files, f"{path}/{PARTITION_FILE}"))
        except (FileNotFoundError, MalformedError):
            return None

    # --- topics -------------------------------------------------------------------------------------------------------

    def create_topic(self, topic: Topic, now_ms: int) -> Change[None]:
        """The topic with its empty logs."""
        if not is_legal_name(topic.name):
            raise DirectoryError(
                f"{topic.name!r} is not a topic name: it may have at most 249 letters, digits, '.', '_' and '-'"
            )
        if topic.name in self.topics:
            raise DirectoryError(f"topic {topic.name!r} exists")
        return self._with(topic, range(topic.partitions), f"cannot create {topic.name!r}", now_ms)

    def create(self, topics: Sequence[Topic], now_ms: int) -> Creation:
        """Topics, or the new partitions of those that exist, a slice at a time and durable all at once."""
        known = self.topics
        news = [(one, range(known[one.name].partitions if one.name in known else 0, one.partitions)) for one in topics]
        return Creation(self, news, now_ms)

    def add_partitions(self, name: str, partitions: int, now_ms: int) -> Change[None]:
        """The topic with as many partitions; never fewer than before."""
        topic = self.topics[name]
        if partitions < topic.partitions:
            raise DirectoryError(f"topic {name!r} has {topic.partitions} partitions and cannot have {partitions}")
        new = range(topic.partitions, partitions)
        return self._with(replace(topic, partitions=partitions), new, f"cannot add partitions to {name!r}", now_ms)

    def set_configs(self, name: str, configs: Mapping[str, str], now_ms: int) -> Change[None]:
        topic = replace(self.topics[name], configs=dict(configs))
        return self._with(topic, range(0), f"cannot keep the configs of {name!r}", now_ms)

    def _with(self, topic: Topic, new: range, failing: str, now_ms: int) -> Change[None]:
        """`topic` instead of the one of its name, with logs for its `new` partitions."""
        return Creation(self, [(topic, new)], now_ms, failing).at_once()

    def make_logs(self, topic: Topic, new: Sequence[int], now_ms: int) -> dict[Partition, PartitionLog]:
        """New empty logs; on any thread. If it fails there are none."""
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
                    remove_directory(self._files, _path(topic.name, partition))
            raise
        return logs

    def keep_topics(self, topics: Sequence[Topic], logs: Mapping[Partition, PartitionLog]) -> None:
        """Write the topics file with these topics added, or in place of those with the same name; on any thread."""
        if logs:  # a topic that is named has its directories: who finds none has lost them
            self._files.sync_directory()
        self._write_topics({**self.topics, **{topic.name: topic for topic in topics}}, self._deleted)

    def take_topics(self, topics: Sequence[Topic], logs: Mapping[Partition, PartitionLog]) -> None:
        self.logs |= logs
        for topic in topics:
            self.topics[topic.name] = topic
            config = self._config_of(topic)
            for partition in range(topic.partitions):
                self.logs[topic.name, partition].config = config

    def _make_way(self, name: str, new: Sequence[int]) -> None:
        """What was kept of a topic of this name that is gone must not become part of the new one."""
        for partition in new:
            path = _path(name, partition)
            if self._files.exists(path):
                self._set_aside(path, self._topic_id_of(path))
        stale = {(name, partition) for partition in new}
        for file, offsets in self._kept.items():
            if not stale.isdisjoint(offsets):
                self._keep(file, {key: offset for key, offset in offsets.items() if key not in stale})

    def unmake_logs(self, logs: Mapping[Partition, PartitionLog]) -> None:
        """Remove logs that belong to no topic; on any thread."""
        for log in logs.values():
            log.release()
            with suppress(OSError):  # then it is in the way of the next one, which sets it aside
                remove_directory(self._files, log.path)

    def delete_topic(self, name: str) -> Change[list[PartitionLog]]:
        """The topic is gone when this is done; its logs are for `clear_away`."""
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

        return Change(work, take)

    def clear_away(self, topic: Topic, logs: list[PartitionLog]) -> Change[list[str]]:
        """Free the name of a topic that is gone; its directories, under new names, are for `remove_directory`."""

        def work() -> list[str]:
            # Not by the topic's name: with it the new one could be longer than file systems allow.
            paths = [f"{id_text(topic.id)}-{partition}{_DELETE}" for partition in range(len(logs))]
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

        return Change(work, take)

    # --- what is kept for the next opening ----------------------------------------------------------------------------

    def delete_records(self, partition: Partition, before: int, up_to: int) -> Change[int]:
        """Let a log start at `before`, at most `up_to`; its start."""
        log = self.logs[partition]
        log.check_start(before, up_to)
        starts = {**self._starts(), partition: max(before, log.log_start)}
        states = self._states()
        key = self._key(partition)
        states[key] = states[key]._replace(start=starts[partition])

        def work() -> None:
            self._write_checkpoint(states)
            self._keep(LOG_STARTS, starts)

        return Change(work, lambda _: log.delete_records(before, up_to))

    def remove_segments(self, deleted: list[DeletedSegment]) -> Change[list[DeletedSegment]]:
        """Take segments that logs have dropped out of the directory; what is renamed is for `remove_files`.

        Where the logs start is kept first: a segment that is missing after that start was lost.
        """
        checkpoint = self.checkpoint()

        def work() -> list[DeletedSegment]:
            checkpoint.run()
            rename_files(self._files, deleted)
            return deleted

        return Change(work, lambda found: found)

    def checkpoint(self, gaps_in: Partition | None = None) -> Change[None]:
        """Keep how far each log is durable: what is before is not checked after a crash, and must be there.

        `gaps_in` is about to be compacted: from then on its offsets have gaps.
        """
        starts, ends = self._starts(), {key: log.synced_end for key, log in self.logs.items()}
        states = self._states()
        gaps: dict[TopicPartition, int] = {}
        if gaps_in is not None and not self.has_gaps(gaps_in):
            key = self._key(gaps_in)
            gaps[key] = WITHIN_SEGMENTS
            states[key] = states[key]._replace(gaps_below=WITHIN_SEGMENTS)

        def work() -> None:
            self._write_checkpoint(states)
            self._keep(LOG_STARTS, starts)
            self._keep(RECOVERY_POINTS, ends)

        return Change(work, lambda _: self._gaps_below.update(gaps))

    def has_gaps(self, partition: Partition) -> bool:
        """Whether it is kept that a log may have gaps, because it was compacted."""
        return bool(self._gaps_below.get(self._key(partition)))

    def _key(self, partition: Partition) -> TopicPartition:
        return self.topics[partition[0]].id, partition[1]

    def _states(self) -> dict[TopicPartition, LogState]:
        states = {}
        for (name, partition), log in self.logs.items():
            key = self.topics[name].id, partition
            compacted = self._kept[COMPACTED].get((name, partition), 0)
            states[key] = log.state(LogState(compacted=compacted, gaps_below=self._gaps_below.get(key, 0)))
        return states

    def _write_checkpoint(self, states: Mapping[TopicPartition, LogState]) -> None:
        checkpoint = Checkpoint(self._number + 1, states)
        try:
            write_checkpoint(self._files, checkpoint)
        except OSError as error:
            raise LogWriteError.of(f"cannot write {CHECKPOINT.path}", error) from error
        self._number = checkpoint.number
        self.ends.follow(checkpoint)

    def recovery_point(self, partition: Partition) -> int:
        """Before it an opening checks nothing, and takes nothing from the journal."""
        return self._kept[RECOVERY_POINTS].get(partition, 0)

    def compacted_to(self, partition: Partition) -> int:
        """Up to where a log was compacted, as far as is known."""
        return self._kept[COMPACTED].get(partition, 0)

    def keep_compacted(self, partition: Partition, offset: int) -> Change[None]:
        """A log was compacted up to `offset`: the next time goes on from there."""
        ends = {key: end for key, end in self._kept[COMPACTED].items() if key in self.logs}
        states = self._states()
        key = self._key(partition)
        states[key] = states[key]._replace(compacted=offset)

        def work() -> None:
            self._write_checkpoint(states)
            self._keep(COMPACTED, {**ends, partition: offset})

        return Change(work, lambda _: None)

    def _starts(self) -> dict[Partition, int]:
        return {key: log.log_start for key, log in self.logs.items() if log.log_start}

    def _keep(self, path: str, offsets: dict[Partition, int]) -> None:
        try:
            replace_file(self._files, path, encode_offsets(offsets))
        except OSError as error:
            raise LogWriteError.of(f"cannot write {path}", error) from error
        self._kept[path] = offsets

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
            if self.journal is not None:
                self.journal.release()
                remove_journal(self._files)
            self.checkpoint().run()
            marker = {"version": 0, "brokerEpoch": -1, "checkpoint": self._number}
            replace_file(self._files, CLEAN_FILE, json.dumps(marker).encode())
        finally:
            self.release()

    def release(self) -> None:
        """Let go of everything as it is, as if the process had ended."""
        for log in self.logs.values():
            log.release()
        if self.journal is not None:
            self.journal.release()
        self.ends.release()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


class Creation:
    """Topics and partitions that are being created: some logs with each change, and all of it counts with the last.

    The disk has other things to do in between. If a change fails, or `undo` was run, nothing is left of it.
    """

    def __init__(
        self, directory: DataDirectory, news: Sequence[tuple[Topic, range]], now_ms: int, failing: str = ""
    ) -> None:
        """Each topic with the numbers of its new partitions."""
        self._directory = directory
        self._topics = [topic for topic, _ in news]
        self._todo = [(topic, new[at : at + SLICE]) for topic, new in news for at in range(0, len(new), SLICE)]
        self._now_ms = now_ms
        self._failing = failing or f"cannot create {', '.join(repr(topic.name) for topic in self._topics[:3])}"
        self._logs: dict[Partition, PartitionLog] = {}
        self.is_done = False

    def next(self) -> Change[None]:
        """Return the next change to carry out, while there is one."""
        return Change(self._slice, self._take)

    def at_once(self) -> Change[None]:
        def work() -> None:
            while not self.is_done:
                self._slice()

        return Change(work, self._take)

    def undo(self) -> Change[None]:
        """Instead of what is still to be done."""
        return Change(lambda: self._directory.unmake_logs(self._logs), lambda _: None)

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


def remove_directory(files: Files, path: str) -> None:
    """Delete a partition's directory with all that is in it; on any thread."""
    for name in files.names(path):
        files.delete(f"{path}/{name}")
    files.rmdir(path)


def _path(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def _topic_of(path: str) -> str:
    return path.rpartition("-")[0]
