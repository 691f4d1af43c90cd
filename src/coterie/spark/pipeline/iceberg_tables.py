"""Tables of Apache Iceberg. They need the package `iceberg-spark-runtime`, which exists for Spark 4.0 and 4.1.

Each entry is one commit of Iceberg, and the snapshot has the name of the entry. An entry that is put again is found by
it and skipped, so a batch is in the table exactly once. The catalog is the directory of the tables itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from zlib import crc32

from pyspark.sql import DataFrame, DataFrameWriterV2, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the usual name

from coterie.errors import CoterieError
from coterie.spark.pipeline.hadoop_files import HadoopFiles
from coterie.spark.pipeline.parquet_tables import Entry
from coterie.spark.pipeline.value_formats import has_class

SETTINGS = {"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"}
"""Settings of the session that Iceberg needs."""
PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
KEPT_SNAPSHOTS, KEPT_DAYS = 100, 7
"""An older snapshot is deleted when files are merged, with the files that no other one has, but the last ones stay."""
_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_ENTRY = "coterie-entry"
_PROPERTIES = {
    "format-version": "2",
    "write.distribution-mode": "none",  # the pipeline has sorted the rows and decided the number of files
    "write.spark.accept-any-schema": "true",  # with mergeSchema: columns can be added
}


class IcebergTables:
    """Tables of Iceberg, each in a directory of its name."""

    def __init__(self, spark: SparkSession, files: HadoopFiles) -> None:
        if not has_class(spark, _CATALOG):
            raise CoterieError(
                f"--tables iceberg needs the package iceberg-spark-runtime, which is not there. This is Spark "
                f"{spark.version}; Iceberg has packages for Spark 4.0 and 4.1. With pyspark 4.1 give --source kafka "
                f"--conf spark.jars.packages={PACKAGE} and the package of Spark's own Kafka source"
            )
        self._spark = spark
        self._files = files
        self.catalog = f"coterie_{crc32(files.uri.encode()):08x}"
        spark.conf.set(f"spark.sql.catalog.{self.catalog}", _CATALOG)
        spark.conf.set(f"spark.sql.catalog.{self.catalog}.type", "hadoop")
        spark.conf.set(f"spark.sql.catalog.{self.catalog}.warehouse", files.uri)
        spark.conf.set(f"spark.sql.catalog.{self.catalog}.cache-enabled", "false")

    def put(self, table: str, entry: Entry, rows: DataFrame, *, files: int = 1) -> None:
        name, dated = self._name(table), rows.withColumn("date", F.lit(entry.day)).coalesce(files)
        if not self._exists(table):
            creation = dated.limit(0).writeTo(name).using("iceberg").partitionedBy("date")
            for key, value in _PROPERTIES.items():
                creation = creation.tableProperty(key, value)
            creation.create()
        elif self._has(table, entry):
            return
        writer = self._writer(name, entry, dated).option("mergeSchema", "true")
        writer.option("check-ordering", "false").append()  # a new column is behind the date in the table

    def replace(self, table: str, entry: Entry, rows: DataFrame) -> None:
        if not self._exists(table):
            self.put(table, entry, rows)
            return
        dated = rows.withColumn("date", F.lit(entry.day))
        self._writer(self._name(table), entry, dated).overwrite(F.lit(True))

    def clear(self, table: str, entry: Entry) -> None:
        """Do nothing: an attempt that failed has left no rows."""

    def expire(self, table: str, before: date) -> int:
        """Delete the rows. Their files are deleted with the snapshots that have them."""
        days = [day for day in self._files_of_days(table) if day < before]
        if days:
            self._spark.sql(f"DELETE FROM {self._name(table)} WHERE date < DATE'{before}'")  # noqa: S608  names of ours
        return len(days)

    def compact(self, table: str, today: date, order: Sequence[str], *, last_done: int) -> int:  # noqa: ARG002
        """Merge the small files of days that are over, and delete old snapshots. No day gets rows when it is over."""
        small = [day for day, count in self._files_of_days(table).items() if day < today and count > 1]
        if small:
            days = ", ".join(f'DATE "{day}"' for day in small)
            self._call(
                f"rewrite_data_files(table => '{self._name(table)}', where => 'date IN ({days})', strategy => 'sort', "
                f"sort_order => '{','.join(order)}', options => map('rewrite-all', 'true'))"
            )
        if self._exists(table):
            oldest = datetime.combine(today, time()) - timedelta(days=KEPT_DAYS)
            self._call(
                f"expire_snapshots(table => '{self._name(table)}', older_than => TIMESTAMP '{oldest}', "
                f"retain_last => {KEPT_SNAPSHOTS})"
            )
        return len(small)

    def recover(self) -> None:
        """Do nothing: there is nothing to undo."""

    def _name(self, table: str) -> str:
        return f"{self.catalog}.{table}"

    def _exists(self, table: str) -> bool:
        return self._files.exists(f"{table}/metadata/version-hint.text")

    def _has(self, table: str, entry: Entry) -> bool:
        snapshots = self._spark.table(f"{self._name(table)}.snapshots")
        return not snapshots.where(F.col("summary")[_ENTRY] == str(entry)).isEmpty()

    def _files_of_days(self, table: str) -> dict[date, int]:
        """Return how many files of rows each day has."""
        if not self._exists(table):
            return {}
        counts = self._spark.table(f"{self._name(table)}.files").groupBy("partition.date").count().collect()
        return {row["date"]: row["count"] for row in counts}

    def _writer(self, name: str, entry: Entry, rows: DataFrame) -> DataFrameWriterV2:
        return rows.writeTo(name).option(f"snapshot-property.{_ENTRY}", str(entry))

    def _call(self, procedure: str) -> None:
        self._spark.sql(f"CALL {self.catalog}.system.{procedure}").collect()
