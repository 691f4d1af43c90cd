"""Memory that was freed, returned to the operating system."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def return_free_memory() -> None:
    """Return free pages to the operating system.

    The allocator of glibc keeps what lies below a block that is still in use: after large requests, the process may
    keep some of their size for as long as it runs. Other allocators have no such call; then this does nothing.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
