"""A process of the demonstration does not outlive it, however it ended: its stdin is a pipe that nobody writes to."""

from __future__ import annotations

import os
import threading

__all__ = ["end_with_parent"]


def end_with_parent() -> None:
    threading.Thread(target=_wait_for_its_end, name="parent", daemon=True).start()


def _wait_for_its_end() -> None:
    os.read(0, 1)  # not by `sys.stdin`, whose lock would be in the way of our own end
    os._exit(1)  # at once: there is no broker left to say goodbye to
