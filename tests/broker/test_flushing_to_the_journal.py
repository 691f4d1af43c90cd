"""Commits of many groups, made durable by one sync of the journal."""

from __future__ import annotations

import pytest

from broker.driver import Client, World
from broker.held_disk import ready
from coterie.broker.broker_effects import TimersDue
from coterie.broker.maintenance import flushing
from coterie.errors import ErrorCode
from coterie.storage.flush import JOURNAL_FILE
from logs import FaultyFiles

MANY = [f"g{number}" for number in range(8)]
"""Groups; with fifty partitions to hold them, each has one for itself."""


def with_many_groups() -> tuple[World, FaultyFiles, list[Client]]:
    """Each has committed once: their logs' files and names are durable."""
    disk = FaultyFiles()
    world, _ = ready(disk, {"offsets.topic.num.partitions": 50})
    clients = [world.client() for _ in MANY]
    commit(clients, 0)
    while world.flushes:
        world.flush()
    assert [client.committed() for client in clients] == [[ErrorCode.NONE]] * len(MANY)
    return world, disk, clients


def commit(clients: list[Client], offset: int) -> None:
    for group, client in zip(MANY, clients, strict=False):
        client.send_commit(group, {("t", 0): offset})


def commit_in_one_flush(world: World, clients: list[Client], offset: int) -> None:
    """The first is in the flush under way, the rest in the next."""
    commit(clients, offset)
    world.flush()
    assert len(world.flushes) == 1


def test_commits_of_many_groups_cost_one_sync() -> None:
    world, disk, clients = with_many_groups()
    commit_in_one_flush(world, clients, 1)
    disk.synced.clear()
    world.flush()
    assert [path for path in disk.synced if not path.endswith("/")] == [JOURNAL_FILE]
    assert [client.committed() for client in clients] == [[ErrorCode.NONE]] * len(MANY)


def test_a_checkpoint_syncs_the_segments_and_begins_the_journal_anew() -> None:
    world, disk, clients = with_many_groups()
    commit_in_one_flush(world, clients, 1)
    world.flush()
    logs = world.cluster.directory.logs.values()
    behind = [log for log in logs if log.synced_end < log.durable_end]
    full = disk.size(JOURNAL_FILE)
    assert len(behind) > 2 and full > 200
    world.cluster.log_manager.checkpoint()
    world.perform(world.cluster.handle(TimersDue(), world.now_ms))
    while world.flushes:
        world.flush()
    assert all(log.synced_end == log.log_end_offset for log in behind)
    assert disk.size(JOURNAL_FILE) < 20
    assert not world.flushes, "an empty journal is left alone"


def test_a_long_journal_is_emptied_by_the_next_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    world, disk, clients = with_many_groups()
    monkeypatch.setattr(flushing, "LONG_JOURNAL", 500)
    commit_in_one_flush(world, clients, 1)
    world.flush()
    assert disk.size(JOURNAL_FILE) > 500
    commit(clients[:1], 2)
    while world.flushes:
        world.flush()
    assert disk.size(JOURNAL_FILE) < 20
    assert all(log.synced_end == log.durable_end for log in world.cluster.directory.logs.values())


def test_commits_that_the_journal_cannot_take_are_refused_and_the_broker_recovers() -> None:
    world, disk, clients = with_many_groups()
    commit_in_one_flush(world, clients, 1)
    disk.refuses_sync = True
    world.flush()
    answers = [client.committed() for client in clients]
    assert answers[0] == [ErrorCode.NONE] and set(map(tuple, answers[1:])) == {(ErrorCode.NOT_COORDINATOR,)}
    disk.refuses_sync = False
    world.advance(2_000)
    while world.flushes:
        world.flush()
    for offset in (2, 3):
        commit_in_one_flush(world, clients, offset)
        while world.flushes:
            world.flush()
        assert [client.committed() for client in clients] == [[ErrorCode.NONE]] * len(MANY)
    assert world.cluster.directory.journal is not None and world.cluster.directory.journal.is_sound
    assert [world.client().offsets_of(group)["t", 0] for group in MANY] == [3] * len(MANY)
    world.cluster.directory.release()
    again = World(disk)
    assert [again.client().offsets_of(group)["t", 0] for group in MANY] == [3] * len(MANY)


def test_a_journal_that_failed_is_taken_again_though_its_logs_are_gone() -> None:
    world, disk, clients = with_many_groups()
    commit_in_one_flush(world, clients, 1)
    disk.refuses_sync = True
    world.flush()
    disk.refuses_sync = False
    journal, flusher = world.cluster.directory.journal, world.cluster.flusher
    assert journal is not None and not journal.is_sound
    for log in list(flusher._journaled):
        flusher.forget(log, world.now_ms)
    world.client().send_produce("t", b"a")
    while world.flushes:
        world.flush()
    assert journal.is_sound
