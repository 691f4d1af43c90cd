from __future__ import annotations

from pathlib import Path

import pytest

from coterie.sim.disk import Disk
from coterie.sim.schedule import Rng
from coterie.storage import DiskFiles, Files, MemoryFiles


@pytest.fixture(params=["disk", "disk, one file open", "memory", "simulated"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """All kinds: whatever holds for one must hold for the others."""
    if request.param == "disk":
        return DiskFiles(tmp_path / "data")
    if request.param == "disk, one file open":
        return DiskFiles(tmp_path / "data", most_open=1)
    return MemoryFiles() if request.param == "memory" else Disk(Rng(0).of("disk"))
