"""The variable of the environment in which code under test finds its broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

BOOTSTRAP_SERVERS = "COTERIE_BOOTSTRAP_SERVERS"


@contextmanager
def bootstrap_in_environment(bootstrap_servers: str) -> Iterator[None]:
    """Set the variable within a `with` block; then it is as it was."""
    before = os.environ.get(BOOTSTRAP_SERVERS)
    os.environ[BOOTSTRAP_SERVERS] = bootstrap_servers
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(BOOTSTRAP_SERVERS, None)
        else:
            os.environ[BOOTSTRAP_SERVERS] = before
