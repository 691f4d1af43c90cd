"""Spark imports every module whose name begins with `pyspark_` and takes its DefaultSource: no registration, no jar."""

from __future__ import annotations

from coterie.spark.source import CoterieSource

__all__ = ["DefaultSource"]


class DefaultSource(CoterieSource):
    """spark.read.format("coterie")"""
