"""The ledger on disk: what `coterie watch` has read, in one SQLite file of a directory.

It stores the sources themselves: the records of groups, the facts of a Coterie broker, samples, and lines of broker
logs. Histories are made from them when the ledger is read, so a later release can explain more of an old ledger.
Positions in the topics are stored in the transaction that stores the records: nothing is missed or read twice.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from coterie.diagnosis.broker_log import BrokerLog
from coterie.diagnosis.evidence import Grade
from coterie.diagnosis.from_facts import HistoryBuilder
from coterie.diagnosis.merge import merge_all
from coterie.diagnosis.model import GroupHistory, GroupSample, PartitionLag
from coterie.diagnosis.records import OffsetsTopic
from coterie.diagnosis.samples import SampledMember, history_of_samples
from coterie.errors import CoterieError, MalformedError
from coterie.ledger import read_fact
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.structs import asdict

FILE = "groups.sqlite"
VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS positions (
    topic TEXT NOT NULL, partition INTEGER NOT NULL, next_offset INTEGER NOT NULL, PRIMARY KEY (topic, partition));
CREATE TABLE IF NOT EXISTS records (
    partition INTEGER NOT NULL, offset INTEGER NOT NULL, at_ms INTEGER NOT NULL, group_id TEXT NOT NULL,
    key BLOB NOT NULL, value BLOB, PRIMARY KEY (partition, offset)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS commits (
    group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, committed INTEGER, at_ms INTEGER NOT NULL,
    count INTEGER NOT NULL, PRIMARY KEY (group_id, topic, partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (
    offset INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, group_id TEXT NOT NULL, fact BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS samples (
    at_ms INTEGER NOT NULL, group_id TEXT NOT NULL, group_type TEXT NOT NULL, sample BLOB NOT NULL,
    PRIMARY KEY (group_id, at_ms)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS members (
    group_id TEXT NOT NULL, member_id TEXT NOT NULL, about TEXT NOT NULL, PRIMARY KEY (group_id, member_id));
CREATE TABLE IF NOT EXISTS topics (id BLOB PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS lines (
    source TEXT PRIMARY KEY, number INTEGER NOT NULL, line TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS records_of_group ON records (group_id);
CREATE INDEX IF NOT EXISTS facts_of_group ON facts (group_id);
"""

RecordRow = tuple[int, int, int, str, bytes, bytes | None]
"""Partition, offset, time, group, key and value of a record."""
CommitRow = tuple[str, str, int, int | None, int, int]
"""Group, topic, partition, the last committed offset (None if it was deleted), its time, and the number of commits."""
FactRow = tuple[int, int, str, bytes]
"""Offset, time, group and JSON of a fact."""
Positions = Mapping[tuple[str, int], int]
"""The next offset to read, by topic and partition."""


class LedgerFile:
    """The ledger of one cluster."""

    def __init__(self, directory: Path, *, create: bool = False) -> None:
        self.directory = directory
        file = directory / FILE
        if create:
            directory.mkdir(parents=True, exist_ok=True)
        elif not file.is_file():
            raise CoterieError(
                f"{directory} is not a ledger (no {FILE}): make one with coterie watch --ledger {directory}"
            )
        with self._errors():
            self._db = sqlite3.connect(file, timeout=30)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            if create:
                self._db.executescript(_SCHEMA)
            version = int(self.about("version") or VERSION)
        if version > VERSION:
            raise CoterieError(f"{file} was written by a later release (format {version}; this one reads {VERSION})")
        if create:
            self.set_about("version", str(VERSION))

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise CoterieError(f"{self.directory / FILE} cannot be used: {error}") from None

    # --- about the cluster

    def about(self, name: str) -> str | None:
        with self._errors():
            row = self._db.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def set_about(self, name: str, value: str) -> None:
        with self._errors(), self._db:
            self._db.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (name, value))

    def check_cluster(self, cluster_id: str) -> None:
        """Note the cluster, or refuse another one: offsets of two clusters must not be mixed."""
        known = self.about("cluster")
        if known is None:
            self.set_about("cluster", cluster_id)
        elif known != cluster_id:
            raise CoterieError(
                f"{self.directory} is the ledger of cluster {known}, not of {cluster_id}: give another directory"
            )

    # --- writing

    def add_records(
        self,
        rows: Iterable[RecordRow],
        facts: Iterable[FactRow],
        positions: Positions,
        commits: Iterable[CommitRow] = (),
    ) -> None:
        """Store what was read, and how far, in one transaction: so each commit is counted once."""
        with self._errors(), self._db:
            packed = ((*row[:4], row[4], _packed(row[5])) for row in rows)
            self._db.executemany("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, ?, ?)", packed)
            self._db.executemany("INSERT OR IGNORE INTO facts VALUES (?, ?, ?, ?)", facts)
            self._db.executemany(
                "INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "committed = excluded.committed, at_ms = excluded.at_ms, count = count + excluded.count",
                commits,
            )
            self._db.executemany(
                "INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", [(*place, at) for place, at in positions.items()]
            )

    def add_samples(
        self, samples: Iterable[tuple[str, str, GroupSample]], members: Iterable[tuple[str, SampledMember]]
    ) -> None:
        """Store samples, each with its group and the type of the group, and the members that they show."""
        with self._errors(), self._db:
            self._db.executemany(
                "INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?)",
                [(one.at_ms, group_id, kind, _packed(_sample_json(one))) for group_id, kind, one in samples],
            )
            self._db.executemany(
                "INSERT OR REPLACE INTO members VALUES (?, ?, ?)",
                [(group_id, one.member_id, json.dumps(asdict(one))) for group_id, one in members],
            )

    def add_topics(self, names: Mapping[UUID, str]) -> None:
        with self._errors(), self._db:
            rows = [(id_.bytes, name) for id_, name in names.items()]
            self._db.executemany("INSERT OR REPLACE INTO topics VALUES (?, ?)", rows)

    def add_lines(self, lines: Iterable[tuple[str, int, str]]) -> None:
        """Store lines of broker logs, each with its place and number. A line that is there is not stored again."""
        with self._errors(), self._db:
            self._db.executemany("INSERT OR IGNORE INTO lines VALUES (?, ?, ?)", lines)

    def prune(self, before_ms: int) -> None:
        """Delete what is older, except the last record for each key, from which a group's state is known."""
        with self._errors(), self._db:
            self._db.execute("DELETE FROM samples WHERE at_ms < ?", (before_ms,))
            self._db.execute("DELETE FROM facts WHERE at_ms < ?", (before_ms,))
            self._db.execute("DELETE FROM commits WHERE at_ms < ? AND committed IS NULL", (before_ms,))
            self._db.execute(
                "DELETE FROM records WHERE at_ms < ? AND EXISTS (SELECT 1 FROM records AS later WHERE "
                "later.partition = records.partition AND later.offset > records.offset AND later.key = records.key)",
                (before_ms,),
            )

    # --- reading

    def positions(self) -> dict[tuple[str, int], int]:
        with self._errors():
            rows = self._db.execute("SELECT topic, partition, next_offset FROM positions").fetchall()
        return {(topic, partition): at for topic, partition, at in rows}

    def topics(self) -> dict[UUID, str]:
        with self._errors():
            rows = self._db.execute("SELECT id, name FROM topics").fetchall()
        return {UUID(bytes=id_): name for id_, name in rows}

    def records(self, group_id: str | None = None) -> Iterator[RecordRow]:
        """Return the records of groups in the order of the log."""
        for *row, value in self._rows("records", "partition, offset", group_id):
            yield (*row, _unpacked(value))

    def commits(self, group_id: str | None = None) -> Iterator[CommitRow]:
        """Return the last commit of each partition, and how many there were."""
        for row in self._rows("commits", "group_id, topic, partition", group_id):
            yield (*row,)

    def histories(self, group_id: str | None = None) -> dict[str, GroupHistory]:
        """Return the history of each group, or of one, merged from all sources."""
        topic = OffsetsTopic(self.topics())
        for partition, offset, at_ms, _, key, value in self.records(group_id):
            topic.add(partition, offset, at_ms, key, value)
        sources = [topic.histories(), self._observed(group_id), self._sampled(group_id), self._logged(group_id)]
        return merge_all(sources)

    def _observed(self, group_id: str | None) -> dict[str, GroupHistory]:
        builder = HistoryBuilder(Grade.OBSERVED)
        for offset, _, _, data in self._rows("facts", "offset", group_id):
            try:
                fact = read_fact(data)
            except MalformedError:
                continue
            if fact is not None:
                builder.add(fact, f"{FACTS_TOPIC}-0@{offset}")
        return builder.histories()

    def _sampled(self, group_id: str | None) -> dict[str, GroupHistory]:
        members: dict[str, dict[str, SampledMember]] = {}
        for group, member_id, about in self._rows("members", "group_id", group_id):
            found = json.loads(about)
            topics = found.pop("topics", None)
            one = SampledMember(**found, topics=None if topics is None else tuple(topics))
            members.setdefault(group, {})[member_id] = one
        samples: dict[str, list[GroupSample]] = {}
        kinds: dict[str, str] = {}
        for _, group, kind, data in self._rows("samples", "group_id, at_ms", group_id):
            samples.setdefault(group, []).append(_read_sample(_unpacked(data) or b""))
            kinds[group] = kind
        return {
            group: history_of_samples(group, some, members.get(group, {}), kinds[group])
            for group, some in samples.items()
        }

    def _logged(self, group_id: str | None) -> dict[str, GroupHistory]:
        log = BrokerLog()
        with self._errors(), closing(self._db.cursor()) as cursor:
            for source, line in cursor.execute("SELECT source, line FROM lines ORDER BY number"):
                log.add(line, source)
        found = log.histories()
        return found if group_id is None else {name: one for name, one in found.items() if name == group_id}

    def _rows(self, table: str, order: str, group_id: str | None) -> Iterator[Sequence[Any]]:
        where, values = ("WHERE group_id = ?", (group_id,)) if group_id is not None else ("", ())
        with self._errors(), closing(self._db.cursor()) as cursor:
            yield from cursor.execute(f"SELECT * FROM {table} {where} ORDER BY {order}", values)  # noqa: S608  our names


# --- the form of large values -----------------------------------------------------------------------------------------


def _packed(data: bytes | None) -> bytes | None:
    """Compress a value: its first byte says whether it is compressed."""
    if data is None:
        return None
    small = zlib.compress(data, 1) if len(data) > 200 else data
    return b"z" + small if len(small) < len(data) else b"-" + data


def _unpacked(data: bytes | None) -> bytes | None:
    if data is None:
        return None
    try:
        return zlib.decompress(data[1:]) if data[:1] == b"z" else data[1:]
    except zlib.error as error:
        raise CoterieError(f"a value in the ledger is damaged: {error}") from None


def _sample_json(sample: GroupSample) -> bytes:
    partitions = [[one.topic, one.partition, one.committed, one.end, one.owner] for one in sample.partitions]
    about = [sample.at_ms, sample.state, sample.number, list(sample.members), sample.coordinator, partitions]
    return json.dumps(about, separators=(",", ":")).encode()


def _read_sample(data: bytes) -> GroupSample:
    try:
        at_ms, state, number, members, coordinator, partitions = json.loads(data)
        lags = tuple(PartitionLag(*one) for one in partitions)
        return GroupSample(at_ms, state, number, tuple(members), coordinator, lags)
    except (ValueError, TypeError) as error:
        raise CoterieError(f"a sample in the ledger is damaged: {error}") from None
