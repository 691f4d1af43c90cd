"""What a process uses, by its own account or the system's."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["cpu_seconds", "open_sockets", "rss_bytes"]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int | str = "self") -> int:
    """What it has in memory now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def cpu_seconds(pid: int | str = "self") -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def open_sockets(pid: int | str = "self") -> int:
    count = 0
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            count += str(file.readlink()).startswith("socket:")
    return count
