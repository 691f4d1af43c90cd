from __future__ import annotations

from pathlib import Path

import pytest

from coterie.log import DiskFiles, Files, MemoryFiles


@pytest.fixture(params=["disk", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """Both kinds: whatever holds for one must hold for the other."""
    return DiskFiles(tmp_path / "data") if request.param == "disk" else MemoryFiles()
