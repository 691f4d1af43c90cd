"""`coterie pipeline topics`: read topics with Spark, by a schema, to tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coterie.cli.options import CommandError
from coterie.cli.pipeline import kafka_of, say, spark_required


def run_topics(
    *,
    topics: Sequence[str],
    group: str,
    schema: str,
    out: str,
    format_: str,
    skip_bytes: int,
    key: str,
    follow: bool,
    every: float,
    records_per_batch: int,
    tables: str,
    source: str,
    keep: int | None,
    master: str | None,
    conf: Sequence[str],
    bootstrap: str | None,
    config: Path | None,
    sets: Sequence[str],
) -> None:
    with spark_required():
        from coterie.spark.pipeline.submit import run_pipeline
        from coterie.spark.pipeline.topics_pipeline import TopicsOptions, TopicsPipeline, session_settings
        from coterie.spark.pipeline.value_formats import ValueFormat, schema_text

        value = ValueFormat(schema_text(schema, format_), format_, skip_bytes, key)
        options = TopicsOptions(
            out,
            kafka_of(bootstrap, config, sets),
            tuple(topics),
            group,
            value,
            records_per_batch=records_per_batch,
            every_s=every,
            tables=tables,
            reader=source,
            keep_days=keep,
        )
        run_pipeline(
            "topics",
            lambda spark: TopicsPipeline(spark, options, say),
            follow=follow,
            master=master,
            say=say,
            conf=session_settings(tables, master) | spark_settings(conf),
        )


def spark_settings(given: Sequence[str]) -> dict[str, str]:
    """Return the settings of `--conf`."""
    settings = {}
    for each in given:
        name, is_set, value = each.partition("=")
        if not is_set or not name.startswith("spark."):
            raise CommandError(f"--conf {each}: give NAME=VALUE with the name of a setting of Spark, as spark.jars")
        settings[name] = value
    return settings
