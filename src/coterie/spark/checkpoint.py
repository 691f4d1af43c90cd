"""A look into Spark's checkpoint: is a batch in the log of what is done? Spark tells a source only with the next one.

CHECKPOINT/offsets/7   a line of version, a line about the batch, then a line of JSON for each source
CHECKPOINT/commits/7   there as soon as batch 7 is done
"""

from __future__ import annotations

import json
import logging
from typing import Any

from coterie.spark.plan import Plan

__all__ = ["Checkpoint"]

log = logging.getLogger("coterie.spark")


class Checkpoint:
    """On any file system pyarrow knows: a path, file:, s3:, gs:, abfs:, hdfs:."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._files: Any = None
        self._root = ""

    def has_done(self, plan: Plan) -> bool | None:
        """None: that cannot be found out, and why is in the log."""
        try:
            return self._has_done(plan)
        except (OSError, ValueError, ImportError) as error:
            log.warning("the checkpoint at %s cannot be read: %s", self._location, error)
            return None

    def _has_done(self, plan: Plan) -> bool:
        """A batch that brought nothing new of ours repeats the plan of the one before."""
        newest = self._newest("offsets")
        if newest is None:
            return False
        logged = self._number(newest, plan.query)
        if logged is None or logged != plan.number:
            return logged is not None and logged > plan.number
        return self._is_there(f"commits/{newest}") or self._number(newest - 1, plan.query) == plan.number

    def _number(self, batch: int, query: str) -> int | None:
        return next((each["plan"] for each in self._plans(batch) if each.get("query") == query), None)

    def _newest(self, folder: str) -> int | None:
        from pyarrow.fs import FileSelector

        self._open()
        found = self._files.get_file_info(FileSelector(f"{self._root}/{folder}", allow_not_found=True))
        return max((int(info.base_name) for info in found if info.base_name.isdigit()), default=None)

    def _plans(self, batch: int) -> list[dict[str, Any]]:
        if not self._is_there(f"offsets/{batch}"):
            return []
        with self._files.open_input_stream(f"{self._root}/offsets/{batch}") as stream:
            lines = stream.read().decode().splitlines()[1:]
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [each for each in found if "plan" in each]

    def _is_there(self, path: str) -> bool:
        from pyarrow.fs import FileType

        return bool(self._files.get_file_info(f"{self._root}/{path}").type is FileType.File)

    def _open(self) -> None:
        if self._files is None:
            from pyarrow.fs import FileSystem, LocalFileSystem

            if ":" in self._location:
                self._files, self._root = FileSystem.from_uri(self._location)
            else:
                self._files, self._root = LocalFileSystem(), self._location
            self._root = self._root.rstrip("/")
