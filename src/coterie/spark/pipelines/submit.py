"""The pipeline as a program of its own: what spark-submit is given, and what `coterie pipeline groups` runs."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

from coterie.errors import CoterieError
from coterie.spark.pipelines.groups import GroupsPipeline, Wanted
from coterie.spark.pipelines.session import session

__all__ = ["main", "run"]


def run(wanted: Wanted, *, follow: bool, master: str | None, say: Callable[[str], None]) -> None:
    """Ctrl-C and SIGTERM end it in order; whatever was being written is written over at the next start."""
    signal.signal(signal.SIGTERM, _interrupted)
    say("starting Spark")
    spark = session("coterie pipeline groups", master)
    pipeline = GroupsPipeline(spark, wanted, say)
    try:
        if follow:
            pipeline.follow()
        else:
            pipeline.once()
    except KeyboardInterrupt:
        say("stopped; the next start reads on from here")
    finally:
        spark.stop()


def _interrupted(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def kafka_options(bootstrap: str, sets: Sequence[str]) -> Mapping[str, str]:
    options = {"kafka.bootstrap.servers": bootstrap}
    for each in sets:
        name, equals, text = each.partition("=")
        if not equals or not name.strip():
            raise CoterieError(f"--set {each}: say NAME=VALUE, with a setting of the client under Kafka's own name")
        options[f"kafka.{name.strip()}"] = text.strip()
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description="The log of consumer groups to tables; see docs/pipeline.md.")
    options.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    options.add_argument("--out", required=True, metavar="DIR", help="a directory, or a URI that Spark can write to")
    how = options.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="read what is there, and end (the default)")
    how.add_argument("--follow", action="store_true", help="go on until stopped")
    options.add_argument("--every", type=float, default=Wanted.every_s, metavar="SECONDS")
    options.add_argument("--records-per-batch", type=int, default=Wanted.records_per_batch, metavar="N")
    options.add_argument("--set", action="append", default=[], dest="sets", metavar="NAME=VALUE")
    asked = options.parse_args(arguments)
    try:
        kafka = kafka_options(asked.bootstrap, asked.sets)
        wanted = Wanted(asked.out, kafka, records_per_batch=asked.records_per_batch, every_s=asked.every)
        run(wanted, follow=asked.follow, master=None, say=lambda text: print(text, file=sys.stderr, flush=True))  # noqa: T201
    except CoterieError as error:
        raise SystemExit(f"coterie: {error}") from None


if __name__ == "__main__":
    main()
