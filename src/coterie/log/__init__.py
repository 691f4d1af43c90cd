"""Partition logs in Kafka's segment format, and the data directory they are in.

Knows batches and disks, not topics' meaning, groups or clients. Only `files.py` touches the disk; time comes in with
the call. Read `partition.py` first (one log), then `segment.py` (its files), `recovery.py` (opening after a crash),
`producers.py` (idempotence), `journal.py` (many small writes, one sync), `compacting.py` (of each key the last record)
and `directory.py` (all logs of a broker).
"""

from __future__ import annotations

from coterie.log.appended import Appended
from coterie.log.changes import Change
from coterie.log.compacting import Compaction
from coterie.log.compaction import Compactable
from coterie.log.config import UNLIMITED, LogConfig
from coterie.log.damage import Damage, DamageError
from coterie.log.deleted import DeletedSegment, remove_files, rename_files
from coterie.log.directory import SLICE, Creation, DataDirectory, Opening, Topic, remove_directory
from coterie.log.durable import DurableEnds
from coterie.log.errors import (
    DirectoryError,
    DiskError,
    LogError,
    LogReadError,
    LogWriteError,
    OffsetOutOfRangeError,
    RefusedError,
    writing,
)
from coterie.log.files import DiskFiles, File, Files, Lock, Sync
from coterie.log.flushing import FlushTarget, JournalTarget
from coterie.log.journal import Journal
from coterie.log.memory import MemoryFiles
from coterie.log.partition import PartitionLog
from coterie.log.recovery import Cut, Recovery
from coterie.log.segment import Segment, TimestampedOffset
from coterie.log.swapping import offer, swap, withdraw
from coterie.log.validation import Origin

__all__ = [
    "SLICE",
    "UNLIMITED",
    "Appended",
    "Change",
    "Compactable",
    "Compaction",
    "Creation",
    "Cut",
    "Damage",
    "DamageError",
    "DataDirectory",
    "DeletedSegment",
    "DirectoryError",
    "DiskError",
    "DiskFiles",
    "DurableEnds",
    "File",
    "Files",
    "FlushTarget",
    "Journal",
    "JournalTarget",
    "Lock",
    "LogConfig",
    "LogError",
    "LogReadError",
    "LogWriteError",
    "MemoryFiles",
    "OffsetOutOfRangeError",
    "Opening",
    "Origin",
    "PartitionLog",
    "Recovery",
    "RefusedError",
    "Segment",
    "Sync",
    "TimestampedOffset",
    "Topic",
    "offer",
    "remove_directory",
    "remove_files",
    "rename_files",
    "swap",
    "withdraw",
    "writing",
]
