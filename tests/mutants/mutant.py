"""A defect: what is broken, where, and how; and a copy of the sources that has it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "SIM", "Mutant", "copy_with"]

ROOT = Path(__file__).parent.parent.parent
SIM = "sim"
"""In place of a rule's number: the simulator has to find it."""


@dataclass(frozen=True)
class Mutant:
    rule: str
    what: str
    file: str
    old: str
    new: str
    workload: str = ""
    """For the simulator: which worlds; all kinds if none is named."""
    tests: tuple[str, ...] = ()
    """Where no world can go: which tests see it instead. For the others it is the tests of their room."""

    @property
    def name(self) -> str:
        return f"{self.rule}, {self.what}"


@contextmanager
def copy_with(mutant: Mutant) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "src"
        shutil.copytree(ROOT / "src", source)  # with what is compiled already: that is most of the time it takes
        path = source / "coterie" / mutant.file
        text = path.read_text()
        if text.count(mutant.old) != 1:
            raise SystemExit(f"{mutant.file}: {mutant.old!r} stands there {text.count(mutant.old)} times, not once")
        path.write_text(text.replace(mutant.old, mutant.new))
        yield source
