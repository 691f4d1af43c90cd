"""Random lives of transactional producers, in a network that loses and delays, with fencing and timeouts."""

from __future__ import annotations

from collections.abc import Callable
from random import Random  # noqa: TID251  seeded

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.transaction_world import ABORTED, COMMITTED, PARTITIONS, Cluster, Transaction, TransactionWorld
from coterie.client.producer.transaction_events import AbortAsked, BeginAsked, CommitAsked, InitAsked
from coterie.errors import KafkaError, TransactionAbortableError


def live(level: int, seed: int) -> tuple[Cluster, list[Transaction]]:
    """Twelve transactions; a producer that cannot go on is replaced by a new one, and some just die."""
    random = Random(seed)
    cluster = Cluster(level)
    done: list[Transaction] = []
    world = started(random, cluster, [])
    for number in range(12):
        transaction = Transaction(number)
        done.append(transaction)
        world(BeginAsked())
        error = worked(world, transaction, random)
        if error is None and random.random() < 0.1:
            world = started(random, cluster, world.late)  # it dies
            continue
        commits = error is None and random.random() < 0.7
        failed = world.call(CommitAsked) if commits else world.call(AbortAsked)
        if failed is None:
            transaction.outcome = "committed" if commits else "aborted"
        elif isinstance(failed, TransactionAbortableError):
            transaction.outcome = "aborted"
            failed = world.call(AbortAsked)
        if failed is not None:
            world = started(random, cluster, world.late)
    world = started(random, cluster, world.late)
    for late in world.late:
        late()
    return cluster, done


def started(random: Random, cluster: Cluster, late: list[Callable[[], object]]) -> TransactionWorld:
    """A new producer; what the one before has sent may still arrive."""
    world = TransactionWorld(cluster, random)
    world.late = late
    assert world.call(InitAsked) is None
    return world


def worked(world: TransactionWorld, transaction: Transaction, random: Random) -> KafkaError | None:
    """Send records, and perhaps offsets; the error, if it can only be aborted."""
    try:
        for _ in range(random.randrange(6)):
            world.send(transaction)
            world.live(random.randrange(4))
        if random.random() < 0.5:
            return world.send_offsets(transaction)
        world.live(random.randrange(20))
        world.manager.check_send()
    except KafkaError as error:
        return error
    return None


@pytest.mark.parametrize("level", [2, 1])
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_a_transaction_is_there_as_a_whole_or_not_at_all_as_its_producer_was_told(level: int, seed: int) -> None:
    cluster, done = live(level, seed)
    committed = {
        where: [value for value, _, fate in cluster.logs[where].records if fate == COMMITTED] for where in PARTITIONS
    }
    for transaction in done:
        there = [value in committed[where] for where, value in transaction.values]
        if transaction.outcome == "committed":
            assert all(there), f"committed and lost: {transaction}"
        elif transaction.outcome == "aborted":
            assert not any(there), f"aborted and seen: {transaction}"
        else:
            assert all(there) or not any(there), f"half of it: {transaction}"
    for values in committed.values():
        assert len(values) == len(set(values)), "a record is there twice"
        numbers = [tuple(map(int, value.split(b"."))) for value in values]
        assert numbers == sorted(numbers), "out of order"
    told = [one.number for one in done if one.outcome == "committed" and one.sends_offsets]
    may_be = {one.number for one in done if one.outcome != "aborted" and one.sends_offsets}
    assert cluster.offset >= max(told, default=-1)
    assert cluster.offset == -1 or cluster.offset in may_be
    assert cluster.state != "Ongoing" or level == 2


@pytest.mark.parametrize("level", [2, 1])
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_a_network_that_only_loses_things_fails_no_transaction(level: int, seed: int) -> None:
    """Lost, delayed and repeated requests, and coordinators that move, cost time and nothing else."""
    random = Random(seed)
    world = TransactionWorld(Cluster(level), random, is_calm=True)
    assert world.call(InitAsked) is None
    for number in range(12):
        transaction = Transaction(number)
        world(BeginAsked())
        assert worked(world, transaction, random) is None
        commits = random.random() < 0.6
        assert (world.call(CommitAsked) if commits else world.call(AbortAsked)) is None
        fates = {
            record[2]
            for where, value in transaction.values
            for record in world.cluster.logs[where].records
            if record[0] == value
        }
        assert fates <= {COMMITTED if commits else ABORTED}
        assert commits <= (not transaction.values or fates == {COMMITTED})


def test_the_ways_that_lives_take_are_all_taken() -> None:
    """Otherwise the property would hold for nothing."""
    outcomes = [one.outcome for seed in range(20) for one in live(2, seed)[1]]
    assert {outcomes.count(each) > 10 for each in ("committed", "aborted", "unknown")} == {True}, outcomes
