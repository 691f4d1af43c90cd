"""TransactionalSink: each micro-batch of a query is one transaction, and is in its topic once.

    options = {"kafka.bootstrap.servers": "localhost:9092", "topic": "bills"}
    sink = TransactionalSink(options, transactional_id="billing")
    bills.writeStream.foreachBatch(sink).option("checkpointLocation", ...).start()

The driver begins the transaction, and tasks write with its producer id and epoch (`transaction_tasks.py`). Each writes
its own rows, to whatever partition, and no row goes from one task to another. Tasks take turns at a partition, and the
driver gives the turns (`transaction_turns.py`). The number of the micro-batch is committed in the same transaction, as
the offset of a group of its own. So a driver that starts again knows whether a micro-batch is there, and skips it. Its
new epoch fences whatever the old driver and its tasks still send.

The offsets of a source with a group can be a part of the transaction, too (`source_options`). The source says which
they are, and who its member is in the group (`batch_commits.py`). If the member was removed from the group, the group's
coordinator refuses them, and the transaction is aborted.

A task that Spark runs a second time would write its rows twice. So it gets no turn if the first attempt has had one.
The driver commits only if the records of each task are as many as it says, and if no other task has written. Otherwise
it aborts the transaction, and writes the whole batch again in the next epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from html import escape
from shutil import rmtree
from tempfile import mkdtemp
from threading import Lock
from typing import TYPE_CHECKING
from weakref import finalize

from coterie.client.admin.admin import Admin
from coterie.client.admin.results import checked
from coterie.client.producer.producer import Producer
from coterie.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from coterie.errors import ApplicationRecoverableError, CoterieError, ErrorCode, KafkaError, RequestTimedOutError
from coterie.settings import SettingsError
from coterie.spark.batch_commits import BatchCommits, RefusedCommitsError, ask_for_commits
from coterie.spark.options import SinkOptions, admin_settings
from coterie.spark.sink import check_schema
from coterie.spark.transaction_tasks import RESULT, writing
from coterie.spark.transaction_turns import TurnServer

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

__all__ = ["TransactionalSink"]

log = logging.getLogger("coterie.spark")

ATTEMPTS = 3
"""How often a batch is written before the query fails. Spark's own retries come on top, with the next start."""
JOB_DESCRIPTION = "spark.job.description"
MOST_DESCRIBED = 10
"""How many partitions a description has."""
_REMOVED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
_QUERY_ID = "sql.streaming.queryId"


class TransactionalSink:
    """The function of `foreachBatch`. One query has one."""

    def __init__(self, options: Mapping[str, str], *, transactional_id: str, port: int = 0) -> None:
        """Create the sink.

        Args:
            options: The options of format("coterie") for a sink; `topic` is required.
            transactional_id: The name of the query's transactions. It stays the same when the query is started again,
                and no other query has it.
            port: Where the driver listens for its tasks. 0 is any port that is free; set it if there is a firewall
                between executors and the driver.
        """
        given = SinkOptions.of(options, transactional_id)
        if given.topic is None:
            raise SettingsError("the option topic is missing: a transactional sink writes to one topic")
        self._topic = given.topic
        self._transactional_id = transactional_id
        self._settings = given.client
        self._port = port
        self._admin_settings = admin_settings({name.lower(): text for name, text in options.items()})
        self._group = GroupMetadata(f"coterie-sink-{transactional_id}", -1, "", None)
        self._producer: Producer | None = None
        self._admin: Admin | None = None
        self._query: str | None = None
        self._next_batch = 0
        """The number of the first batch that is not in the topic."""
        self._folder: str | None = None
        self._sources: list[str] = []
        """The sockets of the sources whose offsets are part of the transactions."""
        self._lock = Lock()

    def source_options(self) -> dict[str, str]:
        """Return the options of a source with a groupId whose offsets are committed with the rows, by this sink.

            orders = spark.readStream.format("coterie").options(**sink.source_options()).option("groupId", ...)

        Call it once for each such source of the query. It fences the driver before this one: the source must not find
        offsets of a transaction that is still open.

        Returns:
            The option `transactionalSink`.

        Raises:
            KafkaError: The cluster cannot be reached, or refuses the transactional_id.
        """
        with self._lock:
            if self._producer is None:
                self._fence()
            if self._folder is None:
                self._folder = mkdtemp(prefix="coterie-sink-")
                finalize(self, rmtree, self._folder, ignore_errors=True)
            self._sources.append(f"{self._folder}/{len(self._sources)}")
            return {"transactionalSink": self._sources[-1]}

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write a micro-batch, unless it is there already."""
        with self._lock:  # a query that was stopped may be in here while the next one starts
            self._call(rows, batch_id)

    def _call(self, rows: DataFrame, batch_id: int) -> None:
        check_schema(rows.schema, self._topic)
        if rows.sparkSession.sparkContext.getConf().get("spark.speculation", "false") == "true":
            raise SettingsError(
                "spark.speculation is true, and a task of a transaction cannot run twice. Set it to false"
            )
        query = rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID) or ""
        try:
            if self._producer is None or query != self._query:
                self._start(query)
            if batch_id < self._next_batch:
                log.info("batch %d is in topic %s already", batch_id, self._topic)
                rows.write.format("noop").mode("overwrite").save()  # a query with state needs it to be computed
                return
            with self._described(rows.sparkSession.sparkContext, batch_id):
                self._write_until_committed(rows, batch_id)
            self._next_batch = batch_id + 1
        except BaseException:
            self.close()  # a query that goes on begins with a new producer
            raise

    @contextmanager
    def _described(self, context: SparkContext, batch_id: int) -> Iterator[None]:
        """Say in the description of Spark's jobs, which the UI shows, what is written, and what is read in which group.

        The first line is Spark's own. The source says what it reads if its offsets are part of the transaction.
        """
        before = context.getLocalProperty(JOB_DESCRIPTION)
        lines = [before or f"batch = {batch_id}", f"writes {self._topic} in a transaction of {self._transactional_id}"]
        for source in self._sources:
            with suppress(RefusedCommitsError):  # the commit will say so
                lines.append(description_of(ask_for_commits(source)))
        context.setLocalProperty(JOB_DESCRIPTION, "<br/>".join([lines[0], *map(escape, lines[1:])]))
        try:
            yield
        finally:
            context.setLocalProperty(JOB_DESCRIPTION, before)  # type: ignore[arg-type]  # None removes it

    def _write_until_committed(self, rows: DataFrame, batch_id: int) -> None:
        """Write the batch, and again if its transaction was certainly aborted."""
        for _ in range(ATTEMPTS - 1):
            try:
                self._write(rows, batch_id)
            except (ApplicationRecoverableError, RefusedCommitsError):
                raise
            except RequestTimedOutError:
                raise  # of the commit, perhaps: then it goes on, and the next start finds out what became of it
            except Exception as error:  # noqa: BLE001  whatever a task raised: it was aborted
                log.warning("batch %d was aborted, and is written again: %s", batch_id, error)
            else:
                return
        self._write(rows, batch_id)

    def close(self) -> None:
        """Close the connections; an open transaction is aborted."""
        producer, self._producer = self._producer, None
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
        if producer is not None:
            producer.close()

    def _fence(self) -> None:
        """Fence the driver before this one, which aborts its transaction."""
        self.close()
        self._producer, self._query = Producer(self._settings), None
        self._producer.init_transactions()

    def _start(self, query: str) -> None:
        """Look up which batches are in the topic, when no older driver can write any more."""
        if self._producer is None or self._query is not None:
            self._fence()
        self._query = query
        self._admin = self._admin or Admin(self._admin_settings)
        where = TopicPartition(self._topic, 0)
        offsets = self._admin.list_group_offsets(self._group.group_id, [where], require_stable=True)
        found = checked(offsets)[where]
        if found is not None and found.metadata != query:
            raise CoterieError(
                f"transactional.id {self._settings.transactional_id} was used by another query, or by this one with "
                "another checkpoint: batch numbers would be taken for those of the other. Give the query a "
                f"transactional_id of its own, or delete the group {self._group.group_id}"
            )
        self._next_batch = 0 if found is None else found.offset

    def _write(self, rows: DataFrame, batch_id: int) -> None:
        assert self._producer is not None and self._query is not None, "it was started"
        with self._producer.transaction(), _turns(rows.sparkSession.sparkContext, self._port) as turns:
            task = writing(self._settings, self._topic, self._producer.share_transaction(), turns.at)
            results = rows.mapInArrow(task, RESULT).collect()
            turns.end_with({each.attempt: each.records for each in results})
            offset = OffsetAndMetadata(batch_id + 1, self._query)
            self._producer.send_offsets({TopicPartition(self._topic, 0): offset}, self._group)
            for source in self._sources:
                self._commit_for(source)

    def _commit_for(self, source: str) -> None:
        """Add the offsets of a source to the transaction, in the name of its member."""
        assert self._producer is not None, "it was started"
        commits = ask_for_commits(source)
        if not commits.offsets:
            return
        try:
            self._producer.send_offsets(commits.offsets, commits.group)
        except KafkaError as error:
            if error.code not in _REMOVED:
                raise  # of a generation that is over, for example: the next attempt is in the present one
            raise RefusedCommitsError(
                f"the batch was aborted, since the query was removed from group {commits.group.group_id}: {error} "
                "Other members read its records. Start the query again from its checkpoint. A member is removed when a "
                "rebalance waits for its batch longer than kafka.max.poll.interval.ms, or when its heartbeats fail for "
                "kafka.session.timeout.ms"
            ) from error


def description_of(commits: BatchCommits) -> str:
    """Return what a batch reads: the group, its generation, and where the batch ends in each partition."""
    ends = [f"{each} up to {at.offset}" for each, at in sorted(commits.offsets.items())]
    more = [f"{len(ends) - MOST_DESCRIBED} more partitions"] if len(ends) > MOST_DESCRIBED else []
    group = commits.group
    reads = ", ".join([*ends[:MOST_DESCRIBED], *more]) or "nothing"
    return f"reads {reads}, as {group.member_id} of group {group.group_id}, generation {group.generation_id}"


def _turns(context: SparkContext, port: int) -> TurnServer:
    """Return a server where Spark's own driver listens; if tasks run in the driver's process, at this machine alone."""
    master = str(context.master)
    if master.startswith("local") and not master.startswith("local-cluster"):
        return TurnServer("127.0.0.1", "127.0.0.1", port)
    settings = context.getConf()
    host = str(settings.get("spark.driver.host")).strip("[]")  # which Spark always sets, and brackets for IPv6
    return TurnServer(str(settings.get("spark.driver.bindAddress", host)).strip("[]"), host, port)
