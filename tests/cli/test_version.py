"""`coterie --version`: the version, and which of the two ways record batches are read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import coterie
from coterie.protocol.records import IS_COMPILED


def version_with(pure: str) -> str:
    command = [str(Path(sys.executable).with_name("coterie")), "--version"]
    environ = {**os.environ, "COTERIE_PURE": pure}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environ).stdout


def test_the_version_says_how_record_batches_are_read() -> None:
    """What it says where nothing was compiled is in tests/package."""
    if not IS_COMPILED:
        pytest.skip("record batches are read in plain Python here: nothing was compiled, or COTERIE_PURE says so")
    assert version_with("0") == f"coterie {coterie.__version__} (record batches: compiled)\n"
    assert version_with("1") == f"coterie {coterie.__version__} (record batches: pure Python, as COTERIE_PURE asks)\n"
