"""format("coterie-groups"): the source, with the log of the groups decoded by the task that reads it.

Rows that went into Spark as bytes would go out to Python and in again to be decoded; this way they go in once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from coterie.spark.decoding import decode_batches
from coterie.spark.options import SourceOptions, Use
from coterie.spark.schemas import DECODED
from coterie.spark.source import BatchReader, CoterieSource, StreamReader

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["GroupLogSource"]


class GroupLogSource(CoterieSource):
    """Its options are those of format("coterie"); its columns are `coterie.spark.schemas.DECODED`."""

    @classmethod
    def name(cls) -> str:
        return "coterie-groups"

    def schema(self) -> str:
        return DECODED.ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        return _DecodedBatch(SourceOptions.of(self.options, Use.BATCH))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _DecodedStream(SourceOptions.of(self.options, Use.STREAM))


class _DecodedBatch(BatchReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return decode_batches(super().read(partition))


class _DecodedStream(StreamReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return decode_batches(super().read(partition))
