"""The state that the next batch needs: all of it now and then, and in between what each batch has changed.

    OUT/state/full-50/groups/...    the whole state after batch 50
    OUT/state/delta-51/groups/...   what batch 51 has changed

The directory of a batch is written last, in one rename: then the batch is done. So a commit writes one row of state,
and not a row for each partition of each group.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the usual name

from coterie.errors import CoterieError
from coterie.spark.pipeline import tables
from coterie.spark.pipeline.hadoop_files import HadoopFiles
from coterie.spark.pipeline.schemas import STATES

FULL_EVERY = 50
"""Each of these batches writes the whole state, so that no more deltas than this are read."""
FULL, DELTA = "full", "delta"
_NAME = re.compile(r"(full|delta)-(\d+)")


class StateStore:
    """The state after each batch, as far back as the last whole one."""

    def __init__(self, spark: SparkSession, files: HadoopFiles) -> None:
        self._spark = spark
        self._files = files

    def last_done(self) -> int | None:
        return max(self._kinds(), default=None)

    def is_done(self, number: int) -> bool:
        return number in self._kinds()

    def load(self, number: int) -> dict[str, DataFrame]:
        """Return the state after that batch; before the first it is empty."""
        if number < 0:
            return {name: self._spark.createDataFrame([], table.ddl) for name, table in STATES.items()}
        kinds = self._kinds()
        first = max((each for each, kind in kinds.items() if kind == FULL and each <= number), default=None)
        if first is None or any(each not in kinds for each in range(first, number + 1)):
            raise CoterieError(
                f"the checkpoint goes on after batch {number}, but {self._files.full('state')} does not have the state "
                "of that batch: tables and checkpoint are not of the same run. Read the log again into an empty "
                "directory"
            )
        return {name: self._merged(name, first, number) for name in STATES}

    def _merged(self, name: str, first: int, last: int) -> DataFrame:
        kinds = self._kinds()
        places = [f"state/{kinds[number]}-{number}/{name}" for number in range(first, last + 1)]
        there = [self._files.full(place) for place in places if self._files.exists(place)]
        return _MERGED[name](self._spark.read.schema(STATES[name].ddl).parquet(*there))

    def put(self, number: int, changed: Mapping[str, DataFrame]) -> None:
        """Store what a batch has changed, or the whole state, in one rename; from then on the batch is done."""
        kind = FULL if number % FULL_EVERY == 0 else DELTA
        aside = f"_aside/state-{number}"
        self._files.delete(aside)
        self._files.make(aside)
        before = self.load(number - 1) if kind == FULL else {}
        for name, table in STATES.items():
            rows = changed.get(name)
            if kind == FULL:
                rows = before[name] if rows is None else _MERGED[name](before[name].unionByName(rows))
                rows = _kept(rows, number - FULL_EVERY) if name == "groups" else rows
            if rows is not None:
                ordered = rows.select(*table.arrow.names)
                ordered.coalesce(1).write.mode("overwrite").parquet(self._files.full(f"{aside}/{name}"))
        self._files.move(aside, f"state/{kind}-{number}")
        if kind == DELTA:
            self._drop_before(number - 1)

    def _drop_before(self, number: int) -> None:
        """Delete what is not needed to load the state after that batch or a later one."""
        kinds = self._kinds()
        first = max((each for each, kind in kinds.items() if kind == FULL and each <= number), default=0)
        for each, kind in kinds.items():
            if each < first:
                self._files.delete(f"state/{kind}-{each}")

    def _kinds(self) -> dict[int, str]:
        found = map(_NAME.fullmatch, self._files.names("state"))
        return {int(one[2]): one[1] for one in found if one}


def _topics(rows: DataFrame) -> DataFrame:
    return rows.distinct()


def _groups(rows: DataFrame) -> DataFrame:
    """Return the last state of each group. One that an earlier release has written has no batch."""
    columns = [column.name for column in STATES["groups"].columns]
    last = F.max_by(F.struct(*columns), F.coalesce("batch", F.lit(-1)))
    return rows.groupBy("group_id").agg(last.alias("last")).select("last.*")


def _kept(groups: DataFrame, last: int) -> DataFrame:
    """Leave out groups that are gone since that batch or longer: names that are used once would stay for ever."""
    is_old = (F.col("state") == "Gone") & (F.coalesce("batch", F.lit(-1)) <= last)
    return groups.where(~is_old)


def _commits(rows: DataFrame) -> DataFrame:
    return tables.last_commits(rows).where(~F.col("tombstone"))


_MERGED = {"commits": _commits, "topics": _topics, "groups": _groups}
