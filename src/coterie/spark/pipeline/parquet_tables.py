"""Tables as directories of Parquet, which any reader of Parquet can read while they are written.

    OUT/commits/date=2026-11-18/batch-12/*.parquet   the rows of batch 12, all of them or none
    OUT/lag/date=2026-11-18/at-1794807724027/...     the rows of one measurement
    OUT/lag/date=2026-11-17/compacted/...            a day that is over: its small files are merged into few
    OUT/_aside/...                                   what is being written

What is written at once is an `Entry`. It is written aside and renamed, so a reader sees all of it or nothing. An entry
that is written again replaces itself. The date is the day (UTC) on which rows are written, so a day that is over never
gets rows again: late and out-of-order records are in the day on which they were read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from math import ceil
from typing import NamedTuple, Protocol

from pyspark.sql import DataFrame, SparkSession

from coterie.spark.pipeline.hadoop_files import HadoopFiles

COMPACTED = "compacted"
FILE_BYTES = 256 * 1024 * 1024
"""A compacted day has a file for each of these bytes."""
COMPRESSION = "zstd"
_DATE = re.compile(r"date=(\d{4}-\d{2}-\d{2})")
_OLD = "old,"
DAY_MS = 86_400_000


def day_of(at_ms: int) -> date:
    """Return the day of a time, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).date()


class Entry(NamedTuple):
    """The name of rows that are written at once."""

    kind: str
    """`batch` or `at`, for a measurement."""
    number: int
    """The number of the batch, or the time of the measurement in milliseconds."""
    day: date

    def __str__(self) -> str:
        return f"{self.kind}-{self.number}"


class Tables(Protocol):
    """What a pipeline needs of its tables: each entry is stored whole and once, also if it is put again."""

    def put(self, table: str, entry: Entry, rows: DataFrame, *, files: int = 1) -> None:
        """Store the rows of an entry."""
        ...

    def replace(self, table: str, entry: Entry, rows: DataFrame) -> None:
        """Store the rows of an entry in place of all others: the table shows how things are now."""
        ...

    def clear(self, table: str, entry: Entry) -> None:
        """Delete the rows of an earlier attempt: the entry has none."""
        ...

    def expire(self, table: str, before: date) -> int:
        """Delete the rows of all days before that one; return how many days these were."""
        ...

    def compact(self, table: str, today: date, order: Sequence[str], *, last_done: int) -> int:
        """Merge the small files of days that are over, rows sorted by `order`; return how many days these were."""
        ...

    def recover(self) -> None:
        """Undo what was not finished when the process was killed."""
        ...


class ParquetTables:
    """Tables as directories of Parquet."""

    def __init__(self, spark: SparkSession, files: HadoopFiles) -> None:
        self._spark = spark
        self._files = files

    def put(self, table: str, entry: Entry, rows: DataFrame, *, files: int = 1) -> None:
        aside = f"_aside/{table}-{entry}"
        self._write(rows.coalesce(files), aside)
        place = f"{table}/date={entry.day}/{entry}"
        for earlier in self._places(table, entry):
            if earlier != place:  # the attempt before was on another day
                self._files.delete(earlier)
        self._files.move(aside, place)

    def replace(self, table: str, entry: Entry, rows: DataFrame) -> None:
        self.put(table, entry, rows)
        for day in self._days(table):
            for name in self._files.names(f"{table}/date={day}"):
                if name != str(entry):
                    self._files.delete(f"{table}/date={day}/{name}")
            if day != entry.day:
                self._files.delete(f"{table}/date={day}")

    def clear(self, table: str, entry: Entry) -> None:
        for place in self._places(table, entry):
            self._files.delete(place)

    def expire(self, table: str, before: date) -> int:
        old = [day for day in self._days(table) if day < before]
        for day in old:
            self._files.delete(f"{table}/date={day}")
        return len(old)

    def compact(self, table: str, today: date, order: Sequence[str], *, last_done: int) -> int:
        done = 0
        for day in self._days(table):
            folder = f"{table}/date={day}"
            names = self._files.names(folder)
            is_open = day >= today or any(_is_unfinished(name, last_done) for name in names)
            if not names:  # a batch that was put again on another day
                self._files.delete(folder)
            elif not is_open and names != [COMPACTED]:
                self._compact_day(table, day, order)
                done += 1
        return done

    def _compact_day(self, table: str, day: date, order: Sequence[str]) -> None:
        folder = f"{table}/date={day}"
        new, old = f"_aside/{COMPACTED},{table},date={day}", f"_aside/{old_name(folder)}"
        every_file = self._spark.read.option("recursiveFileLookup", True).option("mergeSchema", True)
        rows = every_file.parquet(self._files.full(folder))
        count = ceil(self._files.size(folder) / FILE_BYTES) or 1
        spread = rows.coalesce(1) if count == 1 else rows.repartitionByRange(count, *order)
        self._write(spread.sortWithinPartitions(*order), f"{new}/{COMPACTED}")
        self._files.move(folder, old)
        self._files.move(new, folder)
        self._files.delete(old)

    def recover(self) -> None:
        """Undo a compaction that was killed between its two renames, and delete what was being written."""
        for name in self._files.names("_aside"):
            place = name.removeprefix(_OLD).replace(",", "/")
            if name.startswith(_OLD) and not self._files.exists(place):
                self._files.move(f"_aside/{name}", place)
        self._files.delete("_aside")

    def numbers(self, table: str, kind: str) -> list[int]:
        """Return the numbers of the entries of a kind, as far as they are not compacted."""
        names = [name for day in self._days(table) for name in self._files.names(f"{table}/date={day}")]
        return sorted(int(name.removeprefix(f"{kind}-")) for name in names if name.startswith(f"{kind}-"))

    def entries(self, table: str, entries: Sequence[Entry]) -> DataFrame:
        """Return the rows of some entries."""
        places = [f"{table}/date={entry.day}/{entry}" for entry in entries]
        return self._spark.read.parquet(*map(self._files.full, places))

    def _write(self, rows: DataFrame, name: str) -> None:
        rows.write.mode("overwrite").option("compression", COMPRESSION).parquet(self._files.full(name))

    def _days(self, table: str) -> list[date]:
        found = map(_DATE.fullmatch, self._files.names(table))
        return [date.fromisoformat(one[1]) for one in found if one]

    def _places(self, table: str, entry: Entry) -> list[str]:
        """Return where an entry is; an attempt before midnight is in another day than the next one."""
        places = [f"{table}/date={day}/{entry}" for day in self._days(table)]
        return [place for place in places if self._files.exists(place)]


def _is_unfinished(name: str, last_done: int) -> bool:
    """Return whether an entry is of a batch that will be put again."""
    kind, _, number = name.partition("-")
    return kind == "batch" and int(number) > last_done


def old_name(place: str) -> str:
    """Return the name, in `_aside`, of a directory that another one replaces; `recover` knows it."""
    return _OLD + place.replace("/", ",")


def first_kept_day(today: date, days: int) -> date:
    """Return the first day that is kept, if `days` whole days before today are."""
    return today - timedelta(days=days)
