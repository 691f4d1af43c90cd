"""Random lives of a producer between a network that loses things and real logs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random  # noqa: TID251  seeded

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.producing_world import AFTER_THE_LOG, BEFORE_THE_LOG, FOR_GOOD, NODES, TOPIC, World, rules
from coterie.client.producer.accumulator_events import LeadersFound
from coterie.client.producer.record_appender import RECORD_OVERHEAD
from coterie.errors import ErrorCode
from coterie.protocol.batch import Compression
from coterie.protocol.records import IS_COMPILED
from coterie.storage import LogConfig


def live(world: World, steps: int, faults: tuple[ErrorCode, ...], *, fault_rate: float = 0.3) -> None:
    random = world.random

    def fault() -> ErrorCode | None:
        return random.choice(faults) if faults and random.random() < fault_rate else None

    def change_leader() -> None:
        world.leaders[random.randrange(world.partitions)] = random.choice((*NODES, -1))

    does: list[tuple[Callable[[], object], int]] = [
        (lambda: world.append(random.choice((None, *range(world.partitions))), random.randrange(1, 60)), 10),
        (lambda: world.broker_reads(random.choice(NODES), fault), 5),
        (lambda: world.answer_arrives(random.choice(NODES)), 5),
        (lambda: world.cut(random.choice(NODES)), 1),
        (lambda: world.cluster_answers(fails=random.random() < 0.2), 3),
        (lambda: world.time_passes(random.choice((1, 5, 100, 1_000))), 3),
        (change_leader, 1),
    ]
    for step in random.choices([do for do, _ in does], [weight for _, weight in does], k=steps):
        step()
    world.leaders = dict.fromkeys(range(world.partitions), random.choice(NODES))
    world.heal()
    world.check()


@pytest.mark.skipif(not IS_COMPILED, reason="in Python every record is appended under the lock")
def test_most_records_without_a_key_are_appended_quickly_and_counted() -> None:
    world = World(rules(batch_size=10_000, linger_ms=10), Random(1))
    world.handle(LeadersFound({TOPIC: {0: 1, 1: 1}}))
    for _ in range(100):
        world.append(None, 5)
    assert world.quick_ones == 98  # the first begins the batch, which wakes the sender; the second opens the way
    weight = sum(RECORD_OVERHEAD + len(sent.value) for sent in world.sent)
    world.machine.settle()
    assert world.machine.used == weight
    assert world.sent[0].batch.weight == weight
    topic = world.machine.topics[TOPIC]
    assert topic.sticky is not None
    assert topic.sticky.produced == weight


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_with_time_enough_every_record_is_in_the_log_once_and_in_order(seed: int) -> None:
    """KIP-98: lost answers, cut connections, moved leaders and errors before and after the append change nothing."""
    world = World(rules(delivery_timeout_ms=10**9), Random(seed))
    live(world, 300, BEFORE_THE_LOG + AFTER_THE_LOG)
    assert all(sent.batch.locate(sent.index)[0].error is None for sent in world.sent)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_fails_leaves_no_trace_of_disorder(seed: int) -> None:
    """KIP-360: batches that are given up (their time is over, or the broker will not have them) leave a gap in the
    sequences; a new epoch closes it, and nothing that follows is doubled, lost or out of order.
    """
    world = World(rules(delivery_timeout_ms=3_000), Random(seed))
    live(world, 300, BEFORE_THE_LOG + AFTER_THE_LOG + FOR_GOOD)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), compression=st.sampled_from(Compression))
def test_batches_that_are_too_large_are_split_until_they_fit(seed: int, compression: Compression) -> None:
    world = World(
        rules(delivery_timeout_ms=10**9, batch_size=600, max_request_size=2_000, compression=compression),
        Random(seed),
        log_config=LogConfig(max_message_bytes=260),
    )
    live(world, 200, AFTER_THE_LOG)
    assert all(sent.batch.locate(sent.index)[0].error is None for sent in world.sent)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_with_few_retries_records_fail_and_the_rest_stays_in_order(seed: int) -> None:
    world = World(rules(delivery_timeout_ms=10**9, retries=2), Random(seed))
    live(world, 300, BEFORE_THE_LOG + AFTER_THE_LOG)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_without_idempotence_order_is_kept_with_one_request_at_a_time(seed: int) -> None:
    """`enable.idempotence=false` with one in flight: an answer that is lost may double a batch; refusals never do."""
    world = World(rules(delivery_timeout_ms=10**9, is_idempotent=False, max_in_flight=1), Random(seed))
    random = world.random
    for _ in range(200):
        world.append(random.randrange(world.partitions), random.randrange(1, 60))
        world.broker_reads(NODES[0], lambda: random.choice((None, None, ErrorCode.NOT_ENOUGH_REPLICAS)))
        world.answer_arrives(NODES[0])
        world.time_passes(random.choice((0, 5, 200)))
    world.heal()
    world.check()
    assert all(sent.batch.error is None for sent in world.sent)
