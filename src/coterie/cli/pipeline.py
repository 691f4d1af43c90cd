"""`coterie pipeline groups`: starts it. What it made is printed by `pipeline_show.py`."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from coterie.errors import CoterieError
from coterie.extras import how_to_install
from coterie.java import why_no_java

__all__ = ["run_groups"]


def run_groups(
    *,
    out: str,
    bootstrap: str,
    sets: Sequence[str],
    follow: bool,
    every: float,
    records_per_batch: int,
    master: str | None,
) -> None:
    try:
        from coterie.spark.pipelines.groups import Wanted
        from coterie.spark.pipelines.submit import kafka_options, run
    except ImportError as missing:
        raise CoterieError(
            f"{missing}: this command needs Spark, and Java 17 or later: {how_to_install('spark')}"
        ) from None
    no_java = why_no_java("Spark", 17)
    if no_java is not None:
        raise CoterieError(no_java)
    from pyspark.errors import PySparkException

    def say(text: str) -> None:
        typer.echo(text, err=True)

    try:
        wanted = Wanted(out, kafka_options(bootstrap, sets), records_per_batch=records_per_batch, every_s=every)
        run(wanted, follow=follow, master=master, say=say)
    except PySparkException as error:
        raise CoterieError(_why(error)) from None


def _why(error: BaseException) -> str:
    """Of what Spark says the last line that names one of our own errors; else the first."""
    lines = str(error).splitlines() or [type(error).__name__]
    ours = [line for line in lines if line.startswith(("coterie.", "coterie: "))]
    return ours[-1] if ours else lines[0]
