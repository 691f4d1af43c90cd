"""Spark's checkpoint and the group's committed offsets: which of the two says where a query goes on.

Both record how far a query is. They differ while a batch runs, and after a crash nothing else says why. So the query
writes its name into the metadata of every offset that it commits: `spark query 5f0c plan 7`. Any other member that
commits in between overwrites this note, and then the group is right.

| the note on a committed offset            | who is right                              | a batch to be repeated  |
|-------------------------------------------|-------------------------------------------|-------------------------|
| this query, a plan before this one        | the checkpoint: no other member read here | is read again, the same |
| this query, this plan or a later one      | the group: the plan is done, and more     | (there is none)         |
| this query, "released": it left the batch | the group: others read on from the        | is left to them         |
| to other members when it was stopped      | committed offset                          |                         |
| another query's, or none                  | the group: others read on from there      | is left to them         |
| no offset is committed at all             | the checkpoint                            | is read again, the same |

If a `TransactionalSink` commits the offsets together with the rows, the group is always right (`in_transaction`), and
the notes end with "in transaction", so that it is right for a later start without such a sink, too:

| the note on a committed offset            | a batch to be repeated                                              |
|-------------------------------------------|---------------------------------------------------------------------|
| this query, this plan                     | is in the topic: it is read again for Spark's state, and not written |
| any other                                 | was aborted: it is empty, and the next batches begin at the offset  |

No record is missing: what is left to other members begins at the offset that this query committed. A batch that was
left to others never becomes this query's again, so that a sink that remembers batches by number remembers the right
one. A batch that ran when its query crashed is read twice, and nothing else is.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any

from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.spark.batch_plan import BatchPlan, Span, name_of_plan

__all__ = ["CheckpointThread", "CommitNote", "SparkCheckpoint", "next_offset", "spans_to_repeat"]

log = logging.getLogger("coterie.spark")

CommittedOffsets = Mapping[TopicPartition, OffsetAndMetadata]
_NOTE = re.compile(r"spark query ([0-9a-f]{1,64}) plan ([0-9]{1,18})( released| in transaction)?")


@dataclass(frozen=True, slots=True)
class CommitNote:
    """The metadata of an offset that a query commits: everything up to this plan is done."""

    query: str
    plan: int
    is_released: bool = False
    """The plan after this one was begun and not finished, and there were other members to read it."""
    in_transaction: bool = False
    """The offset and the rows up to it are committed in one transaction."""

    def __str__(self) -> str:
        more = " released" if self.is_released else " in transaction" if self.in_transaction else ""
        return f"spark query {self.query} plan {self.plan}{more}"

    @classmethod
    def parse(cls, text: str) -> CommitNote | None:
        found = _NOTE.fullmatch(text)
        if found is None:
            return None
        return cls(found[1], int(found[2]), found[3] == " released", found[3] == " in transaction")


def next_offset(
    partition: TopicPartition, done: BatchPlan, committed: CommittedOffsets, *, in_transaction: bool = False
) -> int | None:
    """Return where a partition goes on after the plan `done`; None if neither the group nor the checkpoint knows it."""
    in_group = committed.get(partition)
    in_checkpoint = done.spans.get(partition)
    if in_group is None:
        return in_checkpoint.until_offset if in_checkpoint else None
    if in_transaction or in_checkpoint is None or not _is_checkpoint_right(done, in_group):
        return in_group.offset
    return in_checkpoint.until_offset


def spans_to_repeat(
    plan: BatchPlan, committed: CommittedOffsets, *, in_transaction: bool = False
) -> dict[TopicPartition, Span]:
    """Return what to read of a plan that Spark has begun and not finished."""
    if in_transaction:
        return {
            partition: span
            for partition, span in plan.to_read().items()
            if partition in committed and _is_in_topic(plan, committed[partition])
        }
    return {
        partition: span
        for partition, span in plan.to_read().items()
        if partition not in committed or _is_checkpoint_right(plan, committed[partition])
    }


def _is_checkpoint_right(plan: BatchPlan, committed: OffsetAndMetadata) -> bool:
    note = CommitNote.parse(committed.metadata)
    if note is None or note.is_released or note.in_transaction:
        return False
    return note.query == plan.query and note.plan < plan.number


def _is_in_topic(plan: BatchPlan, committed: OffsetAndMetadata) -> bool:
    """Return whether the transaction of this plan was committed."""
    return CommitNote.parse(committed.metadata) == CommitNote(plan.query, plan.number, in_transaction=True)


class SparkCheckpoint:
    """Looks into the checkpoint for batches that are done, as Spark says so to a source only with the next batch.

        CHECKPOINT/offsets/7   a line with the version, a line about the batch, then a line of JSON for each source
        CHECKPOINT/commits/7   exists as soon as batch 7 is done

    The location can be on any file system that pyarrow knows: a path, file:, s3:, gs:, abfs:, hdfs:.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._files: Any = None
        self._root = ""

    def has_done(self, plan: BatchPlan) -> bool | None:
        """Return whether the batch of this plan is done; None if the checkpoint cannot be read, which is logged."""
        try:
            return self._has_done(plan)
        except (OSError, ValueError, ImportError) as error:
            log.warning("the checkpoint at %s cannot be read: %s", self._location, error)
            return None

    def _has_done(self, plan: BatchPlan) -> bool:
        """A batch in which this source had nothing new repeats the plan of the batch before."""
        newest = self._newest("offsets")
        if newest is None:
            return False
        logged = self._number(newest, plan.query)
        if logged is None or logged != plan.number:
            return logged is not None and logged > plan.number
        return self._is_there(f"commits/{newest}") or self._number(newest - 1, plan.query) == plan.number

    def _number(self, batch: int, query: str) -> int | None:
        return dict(self._plans(batch)).get(query)

    def _newest(self, folder: str) -> int | None:
        from pyarrow.fs import FileSelector

        self._open()
        found = self._files.get_file_info(FileSelector(f"{self._root}/{folder}", allow_not_found=True))
        return max((int(info.base_name) for info in found if info.base_name.isdigit()), default=None)

    def _plans(self, batch: int) -> list[tuple[str, int]]:
        """Return query and number of the plans of all sources that are format("coterie")."""
        if not self._is_there(f"offsets/{batch}"):
            return []
        with self._files.open_input_stream(f"{self._root}/offsets/{batch}") as stream:
            lines = stream.read().decode().splitlines()[1:]
        names = [name_of_plan(json.loads(line)) for line in lines if line.startswith("{")]
        return [name for name in names if name is not None]

    def _is_there(self, path: str) -> bool:
        from pyarrow.fs import FileType

        return bool(self._files.get_file_info(f"{self._root}/{path}").type is FileType.File)

    def _open(self) -> None:
        if self._files is None:
            from pyarrow.fs import FileSystem, LocalFileSystem

            if ":" in self._location:
                self._files, self._root = FileSystem.from_uri(self._location)
            else:
                self._files, self._root = LocalFileSystem(), self._location
            self._root = self._root.rstrip("/")


class CheckpointThread:
    """Looks into a checkpoint on a thread of its own, since its store may be slow and the event loop sends heartbeats.

    The thread is started here: a process that is about to end cannot start one, and that is when a query looks last.
    It is a daemon, so that a store that does not answer keeps no process from ending.
    """

    def __init__(self, checkpoint: SparkCheckpoint) -> None:
        self._checkpoint = checkpoint
        self._asked: SimpleQueue[tuple[BatchPlan, Future[bool | None]] | None] = SimpleQueue()
        Thread(target=self._run, name="coterie-checkpoint", daemon=True).start()

    async def has_done(self, plan: BatchPlan) -> bool | None:
        """Return what `SparkCheckpoint.has_done` returns."""
        answer: Future[bool | None] = Future()
        self._asked.put((plan, answer))
        return await asyncio.wrap_future(answer)

    def close(self) -> None:
        """End the thread, as soon as its store has answered."""
        self._asked.put(None)

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            plan, answer = asked
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(self._checkpoint.has_done(plan))
            except BaseException as error:  # noqa: BLE001  raised where it is awaited
                answer.set_exception(error)
