"""Partition logs in Kafka's segment format, and the data directory they are in.

The package knows batches and disks, not groups or clients. Only `files.py` touches the disk; time is an argument of a
call. Read `partition_log.py` first (one log), then `segment.py` (its files), `recovery.py` (opening after a crash),
`producer_state.py` (idempotence), `flush.py` (syncs and the journal), `cleanup.py` (retention), `compaction.py`, and
`data_directory.py` (all logs of a broker).
"""

from __future__ import annotations

from coterie.storage.cleanup import Compactable, DeletedSegment, offer, remove_files, rename_files, swap, withdraw
from coterie.storage.compaction import Compaction
from coterie.storage.data_directory import SLICE, Creation, DataDirectory, Opening
from coterie.storage.durable_ends import Damage, DamageError, DurableEnds
from coterie.storage.files import DiskChange, DiskFiles, File, Files, Lock, PreparedWrite, Sync
from coterie.storage.flush import FlushTarget, Journal, JournalTarget
from coterie.storage.log_config import (
    UNLIMITED,
    LogConfig,
    facts_log_config,
    offsets_log_config,
    offsets_topic_configs,
    transaction_state_topic_configs,
)
from coterie.storage.log_errors import (
    DirectoryError,
    DiskError,
    LogError,
    LogOffsetOutOfRangeError,
    LogReadError,
    LogWriteError,
    RefusedError,
    writing,
)
from coterie.storage.memory_files import MemoryFiles
from coterie.storage.metadata_files import StoredTopic
from coterie.storage.partition_log import PartitionLog
from coterie.storage.recovery import Cut, Recovery
from coterie.storage.segment import Segment, TimestampedOffset
from coterie.storage.stray_directories import remove_directory
from coterie.storage.validation import LogAppendInfo, Origin

__all__ = [
    "SLICE",
    "UNLIMITED",
    "Compactable",
    "Compaction",
    "Creation",
    "Cut",
    "Damage",
    "DamageError",
    "DataDirectory",
    "DeletedSegment",
    "DirectoryError",
    "DiskChange",
    "DiskError",
    "DiskFiles",
    "DurableEnds",
    "File",
    "Files",
    "FlushTarget",
    "Journal",
    "JournalTarget",
    "Lock",
    "LogAppendInfo",
    "LogConfig",
    "LogError",
    "LogOffsetOutOfRangeError",
    "LogReadError",
    "LogWriteError",
    "MemoryFiles",
    "Opening",
    "Origin",
    "PartitionLog",
    "PreparedWrite",
    "Recovery",
    "RefusedError",
    "Segment",
    "StoredTopic",
    "Sync",
    "TimestampedOffset",
    "facts_log_config",
    "offer",
    "offsets_log_config",
    "offsets_topic_configs",
    "remove_directory",
    "remove_files",
    "rename_files",
    "swap",
    "transaction_state_topic_configs",
    "withdraw",
    "writing",
]
