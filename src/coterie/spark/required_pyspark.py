"""The pyspark that the source needs: the first with read limits in its streaming API for data sources."""

from __future__ import annotations

import re
import sys

from coterie.errors import CoterieError

__all__ = ["REQUIRED", "OldPySparkError", "old_pyspark"]

REQUIRED = (4, 2)


class OldPySparkError(CoterieError, ImportError):
    """The pyspark of this Python is too old for the source."""


def old_pyspark(version: str, error: ImportError) -> ImportError:
    """Return what to raise for an import from pyspark that failed: `error` itself, unless this version explains it."""
    number = re.match(r"(\d+)\.(\d+)", version)
    if number is None or (int(number[1]), int(number[2])) >= REQUIRED:
        return error
    needed = ".".join(map(str, REQUIRED))
    return OldPySparkError(
        f'format("coterie") needs pyspark {needed} or newer, and {sys.executable} has pyspark {version}. Driver and '
        "executors have a Python each: PYSPARK_PYTHON says which"
    )
