"""Reads the values of records by a schema: each record becomes a row, or has a problem that says why it cannot.

JSON, Avro and Protobuf are read by Spark's own functions. The last two need a package of Spark's, which is named if it
is missing. A value that is null is a tombstone, and no problem.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pyspark
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the usual name
from pyspark.sql.types import StringType, StructField, StructType

from coterie.errors import CoterieError

JSON, AVRO, PROTOBUF = "json", "avro", "protobuf"
FORMATS = (JSON, AVRO, PROTOBUF)
STRING, BINARY = "string", "binary"
_CORRUPT = "_corrupt_record"
_PACKAGES = {
    AVRO: ("org.apache.spark.sql.avro.AvroDataToCatalyst", "spark-avro"),
    PROTOBUF: ("org.apache.spark.sql.protobuf.ProtobufDataToCatalyst", "spark-protobuf"),
}
"""The class that a format needs, and the package of Spark that has it."""


@dataclass(frozen=True)
class ValueFormat:
    schema: str
    """Columns as DDL, the schema of Avro as JSON, or `FILE#MESSAGE`: a descriptor file of Protobuf."""
    format: str = JSON
    skip_bytes: int = 0
    """How many bytes are before the value. A schema registry puts 5 there."""
    key: str = STRING


def schema_text(given: str, format_: str) -> str:
    """Return the schema that was given, as text or as a file; for Protobuf, the names of file and message.

    Raises:
        CoterieError: The file does not exist, or the message is not named.
    """
    if format_ == PROTOBUF and "#" not in given:
        raise CoterieError(f"--schema {given}: name the message too, as in orders.desc#shop.Order")
    if format_ != PROTOBUF and re.fullmatch(r"\S+\.(ddl|sql|json|avsc)", given) is None:
        return given
    path = Path(given.partition("#")[0])
    if not path.is_file():
        raise CoterieError(f"--schema {given}: there is no such file")
    return given if format_ == PROTOBUF else path.read_text(encoding="utf-8")


def has_class(spark: SparkSession, name: str) -> bool:
    """Return whether Spark has a class of Java. No API of Spark lists its packages."""
    jvm = spark._jvm  # noqa: SLF001
    assert jvm is not None
    try:
        jvm.java.lang.Class.forName(name, False, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    except Py4JJavaError as error:
        if "ClassNotFoundException" not in str(error):
            raise
        return False
    return True


def check_package(spark: SparkSession, format_: str) -> None:
    """Raise if Spark does not have the package that the format needs."""
    wanted, package = _PACKAGES.get(format_, ("", ""))
    if wanted and not has_class(spark, wanted):
        name = f"org.apache.spark:{package}_2.13:{pyspark.__version__}"
        raise CoterieError(
            f"--format {format_} needs Spark's package {package}, which is not there: give --conf "
            f"spark.jars.packages={name}, or its jar by --conf spark.jars=PATH"
        )


# --- rows and problems ------------------------------------------------------------------------------------------------


def read_values(records: DataFrame, how: ValueFormat) -> DataFrame:
    """Add `fields`, a struct of the schema, and `problem`, which is null unless the record is a dead letter."""
    value = F.col("value")
    if how.skip_bytes:
        value = F.when(F.length(value) >= how.skip_bytes, F.substring(value, how.skip_bytes + 1, 2**31 - 1))
    read = _READERS[how.format](records.withColumn("_value", value), how)
    is_short = F.lit(False) if not how.skip_bytes else F.col("value").isNotNull() & F.col("_value").isNull()
    problem = F.when(is_short, f"the value is shorter than {how.skip_bytes} bytes")
    if how.key == STRING:
        problem = problem.when(
            ~F.is_valid_utf8(F.col("key").cast("string")), "the key is not UTF-8: --key binary takes any key"
        )
    problem = problem.when(F.col("value").isNotNull(), F.col("problem"))
    return read.withColumn("problem", problem).drop("_value")


def _json(records: DataFrame, how: ValueFormat) -> DataFrame:
    """Read JSON. Fields that the schema does not name are ignored; names are case-sensitive."""
    schema = _columns(how.schema)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "allowSingleQuotes": "false"}
    with_corrupt = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    read = records.withColumn("_text", F.col("_value").cast("string"))
    read = read.withColumn("_read", F.from_json("_text", with_corrupt, options))
    parsed = F.col("_read")
    problem = (
        F.when(~F.is_valid_utf8("_text"), "the value is not UTF-8")
        .when(parsed.isNull(), "the value is empty")
        .when(parsed[_CORRUPT].isNull(), _missing(schema, parsed))
        .when(F.try_parse_json("_text").isNull(), "the value is not JSON")
        .when(F.json_object_keys("_text").isNull(), "the value is JSON, but not an object")
        .otherwise(_misfit(schema, parsed))
    )
    fields = F.struct(*(parsed[field.name].alias(field.name) for field in schema.fields))
    return read.withColumn("problem", problem).withColumn("fields", fields).drop("_text", "_read")


def _columns(ddl: str) -> StructType:
    """Return the columns of a DDL text, or of a schema as Spark writes it in JSON."""
    try:
        if ddl.lstrip().startswith("{"):
            return StructType.fromJson(json.loads(ddl))
        return cast("StructType", StructType.fromDDL(ddl))
    except (PySparkException, ValueError, KeyError, TypeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CoterieError(
            f"--schema cannot be read: {first}. It is columns as in CREATE TABLE, such as 'id BIGINT NOT NULL, name "
            "STRING', or a file with them"
        ) from None


def _missing(schema: StructType, parsed: Column) -> Column:
    """Return what says which required field is null; null if none is."""
    checks = [F.when(is_null, f"field {path} is missing") for path, is_null in _required(schema, parsed)]
    return F.coalesce(*checks) if checks else F.lit(None).cast("string")


def _required(schema: StructType, value: Column, path: str = "") -> Iterator[tuple[str, Column]]:
    """Yield each field that must not be null, and when it is. Fields of a struct that is null are not missing."""
    for field in schema.fields:
        name = f"{path}{field.name}"
        if not field.nullable:
            yield name, value.isNotNull() & value[field.name].isNull()
        if isinstance(field.dataType, StructType):
            yield from _required(field.dataType, value[field.name], f"{name}.")


def _misfit(schema: StructType, parsed: Column) -> Column:
    """Return what says which field has another type than the schema says."""
    checks = [
        F.when(
            F.get_json_object("_text", f"$['{field.name}']").isNotNull() & parsed[field.name].isNull(),
            f"field {field.name} is not {field.dataType.simpleString()}",
        )
        for field in schema.fields
        if "'" not in field.name
    ]
    return F.coalesce(*checks, F.lit("a field within another one does not have the type of the schema"))


def _avro(records: DataFrame, how: ValueFormat) -> DataFrame:
    """Read Avro. Spark reads a value that is not of the schema as a row of nulls, so such rows are dead letters."""
    from pyspark.sql.avro.functions import from_avro

    read = records.withColumn("fields", from_avro("_value", how.schema, {"mode": "PERMISSIVE"}))
    names = _struct_of(read).names
    is_empty = F.forall(F.array(*(F.col("fields")[name].isNull() for name in names)), lambda each: each)
    return read.withColumn("problem", F.when(is_empty, "the value is not Avro of the schema, or all of it is null"))


def _protobuf(records: DataFrame, how: ValueFormat) -> DataFrame:
    from pyspark.sql.protobuf.functions import from_protobuf

    file, _, message = how.schema.partition("#")
    read = records.withColumn("fields", from_protobuf("_value", message, file, {"mode": "PERMISSIVE"}))
    _struct_of(read)
    return read.withColumn("problem", F.when(F.col("fields").isNull(), f"the value is not a {message}"))


def _struct_of(read: DataFrame) -> StructType:
    found = read.schema["fields"].dataType
    if not isinstance(found, StructType):
        raise CoterieError(f"the schema must be a record with fields; it is {found.simpleString()}")
    return found


_READERS: Mapping[str, Callable[[DataFrame, ValueFormat], DataFrame]] = {
    JSON: _json,
    AVRO: _avro,
    PROTOBUF: _protobuf,
}
