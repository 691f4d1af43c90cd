"""Every table of the pipeline: its columns, their types, and a sentence for each.

docs/tables.md is generated from here, the rows are made by it, and the Parquet files are checked against it. Times are
milliseconds since 1970, as in Kafka's own records: nothing a record can hold is too large for the column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: Any
    doc: str


@dataclass(frozen=True, slots=True)
class TableSchema:
    name: str
    doc: str
    columns: Sequence[Column]
    is_snapshot: bool = False
    """It shows how things are now: a new batch replaces the one before."""

    @property
    def arrow(self) -> Any:
        return pa.schema([(column.name, column.type) for column in self.columns])

    @property
    def ddl(self) -> str:
        """Return the schema as Spark writes it."""
        return ", ".join(f"`{column.name}` {spark_type(column.type)}" for column in self.columns)

    @property
    def struct(self) -> Any:
        return pa.struct([(column.name, column.type) for column in self.columns])


_TEXT, _INT, _LONG, _REAL, _FLAG = pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.bool_()
_PLACE = pa.struct([("topic", _TEXT), ("partition", _INT)])
_MOVE = pa.struct(
    [("topic", _TEXT), ("partition", _INT), ("old_owner", _TEXT), ("new_owner", _TEXT), ("unassigned_ms", _LONG)]
)
_AFTER = pa.struct([("member_id", _TEXT), ("after_ms", _LONG)])
_REGEX = pa.struct([("regex", _TEXT), ("topics", pa.list_(_TEXT))])
_MEMBER = pa.struct(
    [
        ("member_id", _TEXT),
        ("instance_id", _TEXT),
        ("client_id", _TEXT),
        ("client_host", _TEXT),
        ("rebalance_timeout_ms", _INT),
        ("session_timeout_ms", _INT),
        ("topics", pa.list_(_TEXT)),
        ("pattern", _TEXT),
        ("assignment", pa.list_(_PLACE)),
        ("rack_id", _TEXT),
        ("assignor", _TEXT),
        ("type", _TEXT),
        ("epoch", _INT),
        ("state", _TEXT),
        ("pending_revocation", pa.list_(_PLACE)),
        ("target", pa.list_(_PLACE)),
    ]
)
_SPARK_NAMES: Mapping[Any, str] = {
    _TEXT: "string",
    _INT: "int",
    _LONG: "bigint",
    _REAL: "double",
    _FLAG: "boolean",
    pa.binary(): "binary",
}


def spark_type(kind: Any) -> str:
    if pa.types.is_struct(kind):
        return "struct<" + ", ".join(f"{field.name}: {spark_type(field.type)}" for field in kind) + ">"
    if pa.types.is_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    return _SPARK_NAMES[kind]


_GROUP = Column("group_id", _TEXT, "The group.")
_TOPIC = Column("topic", _TEXT, "The topic, or its id if its name is not known.")
_PARTITION = Column("partition", _INT, "The partition of the topic.")
_LOG = (
    Column("log_partition", _INT, "The partition of the log that the record is in."),
    Column("log_offset", _LONG, "The offset of the record in that partition."),
    Column("log_ms", _LONG, "When the record was written, by the coordinator's clock."),
)
_HELD = (
    _GROUP,
    _TOPIC,
    _PARTITION,
    Column("member_id", _TEXT, "The member that owned it."),
    Column("instance_id", _TEXT, "The group.instance.id of a static member."),
    Column("client_id", _TEXT, "The client id of the member."),
    Column("began_ms", _LONG, "When the assignment was stored."),
    Column("first_generation", _INT, "The generation or epoch in which it began."),
)

COMMITS = TableSchema(
    "commits",
    "An offset commit, or the tombstone of one, in the order of the log.",
    (
        _GROUP,
        _TOPIC,
        _PARTITION,
        Column("offset", _LONG, "The committed offset; null in a tombstone, like the next five columns."),
        Column("leader_epoch", _INT, "The leader epoch of the commit; -1 if the client sent none."),
        Column("metadata", _TEXT, "The metadata that the client committed."),
        Column("commit_ms", _LONG, "When it was committed."),
        Column("expire_ms", _LONG, "When it expires, if the commit had its own retention time."),
        Column("topic_id", _TEXT, "The topic's id as Kafka prints it; older Kafka did not write it."),
        Column("tombstone", _FLAG, "Whether it deletes the offset: expired, deleted on request, or with its topic."),
        *_LOG,
    ),
)

GENERATIONS = TableSchema(
    "generations",
    "A group at a generation, or at an epoch if the group is of the new protocol (KIP-848).",
    (
        _GROUP,
        Column("protocol", _TEXT, "classic or consumer (KIP-848)."),
        Column("generation", _INT, "The generation or epoch; null in a tombstone, which deletes the group."),
        Column("previous_generation", _INT, "The generation of the record before; null if there is none."),
        Column(
            "missing", _INT, "How many generations between the two are not in the log: compacted, or never completed."
        ),
        Column("protocol_type", _TEXT, "consumer, connect, or another type that the members have."),
        Column("assignment_epoch", _INT, "The epoch of the target assignment; null in a classic group."),
        Column(
            "assignor", _TEXT, "The assignor; in the new protocol, the one that most members name, null if none does."
        ),
        Column("leader", _TEXT, "The leader, which assigned the partitions; null in the new protocol."),
        Column("state_ms", _LONG, "When the group entered its state: for a classic group, when all had joined."),
        Column(
            "members",
            pa.list_(_MEMBER),
            "The members, with their subscriptions and assignments. In the new protocol also the type of each (classic "
            "or consumer), its epoch and state, its target assignment, and what it has yet to give up of its "
            "assignment.",
        ),
        Column("regexes", pa.list_(_REGEX), "Regular expressions of subscriptions that the broker resolved."),
        Column(
            "settled",
            _FLAG,
            "Whether every member has what it was assigned, which in the new protocol may take a while.",
        ),
        Column("tombstone", _FLAG, "Whether this record deletes the group."),
        Column("note", _TEXT, "Anything unusual, or what could not be read."),
        *_LOG,
    ),
)

OWNERSHIP = TableSchema(
    "ownership",
    "An interval in which a member owned a partition, once it has ended. Intervals that last are in `owners`.",
    (
        *_HELD,
        Column("ended_ms", _LONG, "When the member no longer owned it."),
        Column("held_ms", _LONG, "How long the member owned it."),
        Column("last_generation", _INT, "The generation or epoch that ended it."),
        Column("ended_by", _TEXT, "moved, given up, member gone, group empty or group gone."),
    ),
)

OWNERS = TableSchema("owners", "A partition that a member owns now.", _HELD, is_snapshot=True)

REBALANCES = TableSchema(
    "rebalances",
    "A rebalance: the change from one generation to the next.",
    (
        _GROUP,
        Column(
            "evidence", _TEXT, "derived (from records of the group) or observed (recorded by Coterie's own broker)."
        ),
        Column("protocol", _TEXT, "classic or consumer (KIP-848)."),
        Column("from_generation", _INT, "The generation before it."),
        Column("generation", _INT, "The generation it ended in; null if it did not end in one."),
        Column("missing", _INT, "How many generations between the two are not in the log."),
        Column("cause", _TEXT, "Why it happened, as far as the evidence shows."),
        Column("culprit", _TEXT, "The member that caused it; only observed."),
        Column("reason", _TEXT, "The reason that the client gave, if any; only observed."),
        Column("outcome", _TEXT, "stable, empty, superseded by the next rebalance, or lost with its coordinator."),
        Column("began_ms", _LONG, "When it began; null if the log does not say."),
        Column("ended_ms", _LONG, "When it ended."),
        Column("duration_ms", _LONG, "How long it took, as far as known."),
        Column("duration_is", _TEXT, "Which part of the rebalance the duration covers."),
        Column("members", _INT, "How many members there were at its end; null if unknown."),
        Column("came", pa.list_(_TEXT), "Members that joined."),
        Column("left", pa.list_(_TEXT), "Members that left or were removed."),
        Column(
            "joined_ms",
            _LONG,
            "When all had joined or, in the new protocol, when the target assignment was computed; null if unknown.",
        ),
        Column(
            "joined_after",
            pa.list_(_AFTER),
            "How long after the begin each member joined or, in the new protocol, had all of its target assignment; "
            "null if unknown.",
        ),
        Column("last_to_join", _TEXT, "The last of these, which all others waited for."),
        Column(
            "revoked_after",
            pa.list_(_AFTER),
            "Members that had to give up partitions, for which others waited, and how long after the begin each had; "
            "the time is null if it never did. Only in the new protocol.",
        ),
        Column(
            "moved",
            pa.list_(_MOVE),
            "Partitions whose owner is not their last one, and how long each had none; a partition that never had an "
            "owner has no old one, and null.",
        ),
        Column("kept", _INT, "Number of partitions whose owner stayed the same."),
        Column(
            "unassigned_ms",
            _LONG,
            "Unassigned partition-milliseconds that it ended. Derived: at least this many; null if the log does not "
            "say.",
        ),
        *_LOG,
    ),
)

LAG = TableSchema(
    "lag",
    "The lag of a group in a partition at a time.",
    (
        Column("at_ms", _LONG, "When it was measured."),
        _GROUP,
        _TOPIC,
        _PARTITION,
        Column("member_id", _TEXT, "The member that owned it, as far as the log says."),
        Column("committed", _LONG, "The committed offset."),
        Column("commit_ms", _LONG, "When it was committed."),
        Column("log_end", _LONG, "The end of the partition; null if it does not exist any more."),
        Column("records_behind", _LONG, "The lag: the end offset minus the committed offset."),
        Column("seconds_behind", _REAL, "The age of the next record to read; 0 if there is none."),
        Column(
            "seconds_from",
            _TEXT,
            "What that is from: nothing waits, record (its time), or commit (its age, if the record was not found).",
        ),
    ),
)

GROUP_LAG = TableSchema(
    "group_lag",
    "The lag of a group at a time, over all its partitions.",
    (
        Column("at_ms", _LONG, "When it was measured."),
        _GROUP,
        Column("partitions", _INT, "The number of partitions with a committed offset."),
        Column("owned", _INT, "How many of them a member owned, as far as the log says."),
        Column("committed", _LONG, "The sum of the committed offsets: its increase is the number of records read."),
        Column("log_end", _LONG, "The sum of the ends: its increase is the number of records written."),
        Column("records_behind", _LONG, "The total lag."),
        Column("most_behind", _LONG, "The lag of the partition with the most."),
        Column("seconds_behind", _REAL, "The maximum of its partitions, in tenths of a second."),
    ),
)

LAG_HOURS = TableSchema(
    "lag_hours",
    "The lag of a group in a partition in an hour that is over.",
    (
        Column("hour_ms", _LONG, "When the hour began."),
        _GROUP,
        _TOPIC,
        _PARTITION,
        Column("measurements", _INT, "How many measurements there were."),
        Column("committed", _LONG, "The committed offset in the last of them."),
        Column("log_end", _LONG, "The end of the partition in the last of them."),
        Column("records_behind_max", _LONG, "The maximum lag."),
        Column("records_behind_avg", _REAL, "The average lag."),
        Column("seconds_behind_max", _REAL, "The maximum age of the next record to read, in tenths of a second."),
    ),
)

HEALTH = TableSchema(
    "health",
    "How a group is now.",
    (
        Column("at_ms", _LONG, "When it was measured."),
        _GROUP,
        Column("protocol", _TEXT, "classic, consumer (KIP-848), or simple (offsets but never a member)."),
        Column(
            "state",
            _TEXT,
            "Stable, Empty or, in the new protocol, Assigning or Reconciling; as last written to the log.",
        ),
        Column("generation", _INT, "The generation or epoch."),
        Column("members", _INT, "The number of members."),
        Column("partitions", _INT, "The number of partitions with a committed offset."),
        Column("records_behind", _LONG, "The total lag of its partitions."),
        Column("seconds_behind", _REAL, "The maximum of its partitions."),
        Column("last_commit_ms", _LONG, "When it last committed."),
        Column("rebalances_last_hour", _INT, "The number of rebalances that ended in the last hour."),
        Column(
            "unassigned_s_last_hour",
            _REAL,
            "Unassigned partition-seconds that these ended, at least; null if unknown for all of them.",
        ),
        Column("verdict", _TEXT, "How the group is doing, in words."),
    ),
    is_snapshot=True,
)

SKIPPED = TableSchema(
    "skipped",
    "How many records were skipped.",
    (
        Column("kind", _TEXT, "type N for records of other kinds, garbage for records that cannot be read."),
        Column("reason", _TEXT, "The reason for the first of them."),
        Column("records", _LONG, "The number of records."),
        Column("log_topic", _TEXT, "The topic they are in."),
        Column("log_partition", _INT, "The partition of the topic."),
        Column("first_offset", _LONG, "The offset of the first."),
        Column("last_offset", _LONG, "The offset of the last."),
    ),
)

_ALL = (COMMITS, GENERATIONS, OWNERSHIP, OWNERS, REBALANCES, LAG, GROUP_LAG, LAG_HOURS, HEALTH, SKIPPED)
BATCH = Column(
    "batch",
    _LONG,
    "The batch of the pipeline that wrote the row or, for a measurement, the last one before it; null if unknown.",
)
TABLES: Mapping[str, TableSchema] = {
    table.name: TableSchema(table.name, table.doc, (*table.columns, BATCH), table.is_snapshot) for table in _ALL
}
"""The tables as they are stored."""
SCHEMA_VERSION = 2
"""The version of tables and state in a directory. 1 had no dates and no column `batch`."""

# --- between the steps ------------------------------------------------------------------------------------------------

_OTHER = pa.struct([("kind", _TEXT), ("reason", _TEXT), ("key", pa.binary()), ("value", pa.binary())])
DECODED = TableSchema(
    "decoded",
    "A record of the log, read as far as it can be without the ones before it.",
    (
        # As few as possible: a row costs what its columns cost on the way into Spark.
        *(column for column in COMMITS.columns if column.name != "tombstone"),
        Column(
            "other",
            _OTHER,
            "For records that are no commits: group, fact, type N or garbage; why it is garbage; its bytes.",
        ),
    ),
)

COMMITS_STATE = TableSchema("commits", "The last commit of each group and partition.", COMMITS.columns)
TOPICS_STATE = TableSchema(
    "topics",
    "Names of topics by their ids.",
    (Column("topic_id", _TEXT, "As Kafka prints it."), Column("topic", _TEXT, "Its name.")),
)
_RECENT = pa.struct([("ended_ms", _LONG), ("unassigned_ms", _LONG)])
GROUPS_STATE = TableSchema(
    "groups",
    "The state of a group, rebuilt from the log so far.",
    (
        _GROUP,
        Column("protocol", _TEXT, "classic or consumer."),
        Column("state", _TEXT, "Stable, Empty, Assigning, Reconciling or Gone."),
        Column("generation", _INT, "The last one."),
        Column("members", _INT, "The number of records."),
        Column("recent", pa.list_(_RECENT), "Its latest rebalances."),
        Column("owners", pa.list_(OWNERS.struct), "The intervals of ownership that last."),
        Column("memory", _TEXT, "What is needed to read on, as JSON."),
        Column("batch", _LONG, "The batch that has changed it last."),
    ),
)
STATES: Mapping[str, TableSchema] = {table.name: table for table in (COMMITS_STATE, TOPICS_STATE, GROUPS_STATE)}

FOLDED = TableSchema(
    "folded",
    "What the records of one group say: in each row one column is not null.",
    (
        Column("generation", GENERATIONS.struct, "A generation."),
        Column("interval", OWNERSHIP.struct, "An interval that ended."),
        Column("rebalance", REBALANCES.struct, "A rebalance."),
        Column("skipped", SKIPPED.struct, "Records that could not be read."),
        Column("state", GROUPS_STATE.struct, "The group at the end of the batch."),
    ),
)
