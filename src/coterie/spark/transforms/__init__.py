"""Tables from tables: functions DataFrame -> DataFrame, a file each. No session, no network, no clock.

They begin with the rows of `coterie.spark.group_log`. Read `folded.py` first (the records of each group, with what is
remembered of it); the tables of `coterie.spark.schemas` are made from that.
"""

from __future__ import annotations

from coterie.spark.transforms.commits import commits, last_commits
from coterie.spark.transforms.folded import folded
from coterie.spark.transforms.generations import generations
from coterie.spark.transforms.health import health
from coterie.spark.transforms.lag import lag, waiting
from coterie.spark.transforms.ownership import owners, ownership
from coterie.spark.transforms.rebalances import rebalances
from coterie.spark.transforms.skipped import skipped

__all__ = [
    "commits",
    "folded",
    "generations",
    "health",
    "lag",
    "last_commits",
    "owners",
    "ownership",
    "rebalances",
    "skipped",
    "waiting",
]
