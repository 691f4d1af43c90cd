"""Tables from tables: functions DataFrame -> DataFrame, a file each. No session, no network, no clock.

Read `decoded.py` (the log to rows), then `folded.py` (the records of each group, with what is remembered of it); the
tables of `coterie.spark.schemas` are made from these two.
"""

from __future__ import annotations

from coterie.spark.transforms.commits import commits, last_commits
from coterie.spark.transforms.decoded import decoded
from coterie.spark.transforms.folded import folded
from coterie.spark.transforms.generations import generations
from coterie.spark.transforms.health import health
from coterie.spark.transforms.lag import lag, waiting
from coterie.spark.transforms.ownership import owners, ownership
from coterie.spark.transforms.rounds import rounds
from coterie.spark.transforms.skipped import skipped

__all__ = [
    "commits",
    "decoded",
    "folded",
    "generations",
    "health",
    "lag",
    "last_commits",
    "owners",
    "ownership",
    "rounds",
    "skipped",
    "waiting",
]
