"""A node whose disk does nothing until it is told to."""

from __future__ import annotations

from broker.driver import Client, World
from coterie.storage import MemoryFiles

__all__ = ["ready"]


def ready(
    files: MemoryFiles | None = None, settings: dict[str, object] | None = None, *, sync: bool = True
) -> tuple[World, Client]:
    """A node with topics `t` (two partitions) and `u`, that serves groups; from here on the test is the disk."""
    world = World(files, settings, sync=sync)
    client = world.client()
    client.find_coordinator()
    client.create("t", 2)
    client.create("u")
    world.auto = False
    return world, client
