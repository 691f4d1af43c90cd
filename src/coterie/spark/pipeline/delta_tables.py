"""Tables of Delta Lake. They need the package `delta-spark` for the version of Spark.

Delta stores each entry in one transaction, under the name of the table and the number of the entry, and skips an entry
that is put again. So batches are in the table exactly once, also on object stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the usual name

from coterie.errors import CoterieError
from coterie.spark.pipeline.hadoop_files import HadoopFiles
from coterie.spark.pipeline.parquet_tables import Entry
from coterie.spark.pipeline.value_formats import has_class

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""Settings of the session that Delta needs."""
LOCAL_SETTINGS = {"spark.databricks.delta.snapshotPartitions": "2"}
"""Settings for a local master: Delta reads its log in 50 tasks otherwise, some times for each transaction."""


class DeltaTables:
    """Tables of Delta Lake, each in a directory of its name."""

    def __init__(self, spark: SparkSession, files: HadoopFiles) -> None:
        if not has_class(spark, SETTINGS["spark.sql.extensions"]):
            raise CoterieError(
                "--tables delta needs the package delta-spark, which is not there: give --conf "
                f"spark.jars.packages=io.delta:delta-spark_{spark.version.rpartition('.')[0]}_2.13:VERSION, if there "
                f"is one for Spark {spark.version}"
            )
        self._spark = spark
        self._files = files

    def put(self, table: str, entry: Entry, rows: DataFrame, *, files: int = 1) -> None:
        dated = rows.withColumn("date", F.lit(entry.day)).coalesce(files)
        writer = dated.write.format("delta").mode("append").partitionBy("date").option("mergeSchema", True)
        writer = writer.option("txnAppId", f"coterie {table} {entry.kind}").option("txnVersion", entry.number)
        writer.save(self._files.full(table))

    def replace(self, table: str, entry: Entry, rows: DataFrame) -> None:
        dated = rows.withColumn("date", F.lit(entry.day))
        dated.write.format("delta").mode("overwrite").partitionBy("date").save(self._files.full(table))

    def clear(self, table: str, entry: Entry) -> None:
        """Do nothing: an attempt that failed has left no rows."""

    def expire(self, table: str, before: date) -> int:
        """Delete the rows. Their files stay until VACUUM is run, which can take long."""
        place = self._place(table, before)
        if place is None:
            return 0
        rows = self._spark.read.format("delta").load(self._files.full(table))
        days = rows.where(F.col("date") < F.lit(before)).select("date").distinct().count()
        if days:
            self._spark.sql(f"DELETE FROM {place} WHERE date < DATE'{before}'")  # noqa: S608  a path and a date of ours
        return days

    def compact(self, table: str, today: date, order: Sequence[str], *, last_done: int) -> int:  # noqa: ARG002
        """Merge the small files of days that are over as Delta does it, which has no use for the other arguments."""
        place = self._place(table, today)
        if place is None:
            return 0
        found = self._spark.sql(f"OPTIMIZE {place} WHERE date < DATE'{today}'").collect()
        return int(found[0]["metrics"]["partitionsOptimized"])

    def recover(self) -> None:
        """Do nothing: there is nothing to undo."""

    def _place(self, table: str, before: date) -> str | None:
        """Return the table as SQL names it; None if there are no files of days before that one.

        To ask Delta costs seconds for each table, and most of the time there is nothing to do.
        """
        is_old = any(name < f"date={before}" for name in self._files.names(table) if name.startswith("date="))
        return f"delta.`{self._files.full(table)}`" if is_old else None
