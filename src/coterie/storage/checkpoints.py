"""The checkpoints of a data directory: where each log starts, and how far it is durable and compacted.

It is in `coterie-checkpoint.json` (`durable_ends.py`), which has a checksum. Kafka's own checkpoint files are written
beside it, and read if it does not exist.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from coterie.storage.durable_ends import (
    CHECKPOINT,
    WITHIN_SEGMENTS,
    DirectoryCheckpoint,
    DurableEnds,
    LogState,
    TopicPartition,
    write_checkpoint,
)
from coterie.storage.files import DiskChange, Files, read_file, replace_file
from coterie.storage.log_errors import LogWriteError
from coterie.storage.metadata_files import StoredTopic, decode_offsets, encode_offsets
from coterie.storage.partition_log import PartitionLog
from coterie.storage.segment_files import LOG_STARTS

CLEAN_FILE = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
COMPACTED = "cleaner-offset-checkpoint"

Partition = tuple[str, int]


class Checkpoints:
    """Writes and remembers the checkpoints of one data directory, whose topics and logs it is given."""

    def __init__(
        self, files: Files, topics: Mapping[str, StoredTopic], logs: Mapping[Partition, PartitionLog], ends: DurableEnds
    ) -> None:
        self._files = files
        self._topics = topics
        self._logs = logs
        self._ends = ends
        self._number = 0
        """The number of the last checkpoint."""
        self._gaps_below: dict[TopicPartition, int] = {}
        self._kept: dict[str, dict[Partition, int]] = {LOG_STARTS: {}, RECOVERY_POINTS: {}, COMPACTED: {}}
        """The contents of the checkpoints on disk, by file name."""

    # --- opening ------------------------------------------------------------------------------------------------------

    def restore(self, checkpoint: DirectoryCheckpoint | None) -> None:
        """Take what was kept; with no checkpoint, read Kafka's files. Raises `MalformedError`."""
        if checkpoint is None:
            for path in self._kept:
                exists = self._files.exists(path)
                self._kept[path] = decode_offsets(read_file(self._files, path), path) if exists else {}
            return
        self._number = checkpoint.number
        for topic in self._topics.values():
            for partition in range(topic.partitions):
                state = checkpoint.logs.get((topic.id, partition))
                if state is not None:
                    key = topic.name, partition
                    self._kept[LOG_STARTS][key] = state.start
                    self._kept[RECOVERY_POINTS][key] = state.end
                    self._kept[COMPACTED][key] = state.compacted
                    self._gaps_below[topic.id, partition] = state.gaps_below

    def was_clean(self, checkpoint: DirectoryCheckpoint | None) -> bool:
        """Return whether the marker of a clean shutdown exists and was written with this checkpoint."""
        if not self._files.exists(CLEAN_FILE):
            return False
        if checkpoint is None:
            return True
        try:
            return bool(json.loads(read_file(self._files, CLEAN_FILE))["checkpoint"] == checkpoint.number)
        except (ValueError, KeyError, TypeError):
            return False

    def mark_clean(self) -> None:
        """Write the marker of a clean shutdown."""
        marker = {"version": 0, "brokerEpoch": -1, "checkpoint": self._number}
        replace_file(self._files, CLEAN_FILE, json.dumps(marker).encode())

    def forget_lost(self) -> None:
        """Forget how far logs were compacted that do not reach so far any more."""
        self._kept[COMPACTED] = {
            key: end
            for key, end in self._kept[COMPACTED].items()
            if key in self._logs and end <= self._logs[key].log_end_offset
        }

    def expect_gaps(self) -> None:
        """Expect gaps in all compacted logs of a directory of an earlier release, which did not keep it."""
        self._gaps_below = {
            (self._topics[name].id, partition): log.log_end_offset
            for (name, partition), log in self._logs.items()
            if log.config.compacts or self.compacted_to((name, partition))
        }

    # --- what is kept -------------------------------------------------------------------------------------------------

    def log_start_offset(self, partition: Partition) -> int:
        return self._kept[LOG_STARTS].get(partition, 0)

    def recovery_point(self, partition: Partition) -> int:
        """Return the offset before which an opening checks nothing, and takes nothing from the journal."""
        return self._kept[RECOVERY_POINTS].get(partition, 0)

    def compacted_to(self, partition: Partition) -> int:
        """Return up to where a log was compacted, as far as is known."""
        return self._kept[COMPACTED].get(partition, 0)

    def has_gaps(self, partition: Partition) -> bool:
        """Return whether it is kept that a log may have gaps, because it was compacted."""
        return bool(self._gaps_below.get(self._key(partition)))

    # --- writing ------------------------------------------------------------------------------------------------------

    def write(self, gaps_in: Partition | None = None) -> DiskChange[None]:
        """Keep how far each log is durable: what is before is not checked after a crash, and must be there.

        `gaps_in` is about to be compacted: from then on its offsets have gaps.
        """
        starts, ends = self._starts(), {key: log.synced_end for key, log in self._logs.items()}
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

        return DiskChange(work, lambda _: self._gaps_below.update(gaps))

    def delete_records(self, partition: Partition, before: int, high_watermark: int) -> DiskChange[int]:
        """Let a log start at `before`, at most `high_watermark`, and keep that; `done` returns its start."""
        log = self._logs[partition]
        log.check_start(before, high_watermark)
        starts = {**self._starts(), partition: max(before, log.log_start_offset)}
        states = self._states()
        key = self._key(partition)
        states[key] = states[key]._replace(start=starts[partition])

        def work() -> None:
            self._write_checkpoint(states)
            self._keep(LOG_STARTS, starts)

        return DiskChange(work, lambda _: log.delete_records(before, high_watermark))

    def keep_compacted(self, partition: Partition, offset: int) -> DiskChange[None]:
        """Keep that a log was compacted up to `offset`, where the next compaction begins."""
        ends = {key: end for key, end in self._kept[COMPACTED].items() if key in self._logs}
        states = self._states()
        key = self._key(partition)
        states[key] = states[key]._replace(compacted=offset)

        def work() -> None:
            self._write_checkpoint(states)
            self._keep(COMPACTED, {**ends, partition: offset})

        return DiskChange(work, lambda _: None)

    def forget(self, name: str, partitions: Sequence[int]) -> None:
        """Remove what Kafka's files say of partitions that are about to be created; on any thread."""
        stale = {(name, partition) for partition in partitions}
        for file, offsets in self._kept.items():
            if not stale.isdisjoint(offsets):
                self._keep(file, {key: offset for key, offset in offsets.items() if key not in stale})

    def _key(self, partition: Partition) -> TopicPartition:
        return self._topics[partition[0]].id, partition[1]

    def _starts(self) -> dict[Partition, int]:
        return {key: log.log_start_offset for key, log in self._logs.items() if log.log_start_offset}

    def _states(self) -> dict[TopicPartition, LogState]:
        states = {}
        for (name, partition), log in self._logs.items():
            key = self._topics[name].id, partition
            compacted = self._kept[COMPACTED].get((name, partition), 0)
            states[key] = log.state(LogState(compacted=compacted, gaps_below=self._gaps_below.get(key, 0)))
        return states

    def _write_checkpoint(self, states: Mapping[TopicPartition, LogState]) -> None:
        checkpoint = DirectoryCheckpoint(self._number + 1, states)
        try:
            write_checkpoint(self._files, checkpoint)
        except OSError as error:
            raise LogWriteError.of(f"cannot write {CHECKPOINT.path}", error) from error
        self._number = checkpoint.number
        self._ends.follow(checkpoint)

    def _keep(self, path: str, offsets: dict[Partition, int]) -> None:
        try:
            replace_file(self._files, path, encode_offsets(offsets))
        except OSError as error:
            raise LogWriteError.of(f"cannot write {path}", error) from error
        self._kept[path] = offsets
