"""`coterie --version`: the version, and which of the two ways record batches are read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import coterie
from coterie.wire.records import IS_COMPILED


def version_with(pure: str) -> str:
    command = [str(Path(sys.executable).with_name("coterie")), "--version"]
    environ = {**os.environ, "COTERIE_PURE": pure}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environ).stdout


def test_the_version_says_how_record_batches_are_read() -> None:
    assert version_with("1") == f"coterie {coterie.__version__} (record batches: pure Python)\n"
    if IS_COMPILED:
        assert version_with("0") == f"coterie {coterie.__version__} (record batches: compiled)\n"
