from __future__ import annotations

from random import Random  # noqa: TID251  seeded

import pytest

from client.producing_world import NODES, TOPIC, World, rules
from coterie.client.producer.accumulator_events import (
    Answered,
    Closing,
    FlushAsked,
    GaveUp,
    LeadersFound,
    PartitionAnswer,
    ProducerIdFailed,
    ProducerIdGiven,
    SendBatches,
    Unanswered,
    Woke,
)
from coterie.client.producer.partition_queue import MAX_EPOCH, NO_PRODUCER, ProducerIdAndEpoch
from coterie.client.producer.record_accumulator import CONSEQUENCES, Consequence
from coterie.client.types import TopicPartition
from coterie.errors import RETRIABLE, STALE_METADATA, ErrorCode, KafkaError, RequestTimedOutError
from coterie.protocol.batch import parse_header

P0 = TopicPartition(TOPIC, 0)
NODE = NODES[0]


def world(**changed: object) -> World:
    made = World(rules(**changed), Random(1))
    if made.rules.is_idempotent:
        made.handle(ProducerIdGiven(ProducerIdAndEpoch(7, 0)))
    return made


def sends(made: World) -> list[SendBatches]:
    return list(made.wire[NODE])


def answer(made: World, **fields: object) -> None:
    """The oldest request, the same for each partition."""
    sent = made.wire[NODE].popleft()
    said = PartitionAnswer(**fields)  # type: ignore[arg-type]
    made.handle(Answered(sent, {batch.where: said for batch in sent.batches}))


# --- when a batch goes out --------------------------------------------------------------------------------------------


def test_a_batch_lingers_and_then_goes() -> None:
    """`linger.ms`."""
    made = world(linger_ms=5)
    made.append(0)
    made.time_passes(4)
    assert not sends(made)
    made.append(0)
    made.time_passes(1)
    (sent,) = sends(made)
    assert [len(batch) for batch in sent.batches] == [2]


def test_an_alarm_that_rings_early_rings_again() -> None:
    """An event loop's clock is not ours: a timer may come up to a tick before its time."""
    made = world(linger_ms=5)
    made.append(0)
    made.now_ms += 4
    made.alarm_ms = None
    made.handle(Woke())
    assert not sends(made)
    assert made.alarm_ms == made.now_ms + 1
    made.time_passes(1)
    assert len(sends(made)) == 1


def test_a_full_batch_does_not_linger() -> None:
    """`batch.size`: the record that does not fit any more sends what was before it."""
    made = world(linger_ms=10**6, batch_size=200)
    for _ in range(3):
        made.append(0, size=60)
    (sent,) = sends(made)
    assert [len(batch) for batch in sent.batches] == [2]
    assert len(sent.batches[0].encode()) <= 200


def test_with_a_full_batch_goes_what_else_there_is_for_the_broker() -> None:
    made = world(linger_ms=10**6, max_request_size=1_000)
    made.append(1)
    for _ in range(3):
        made.append(0, size=60)
    (sent,) = sends(made)
    assert {batch.where.partition: len(batch) for batch in sent.batches} == {0: 2, 1: 1}


def test_a_request_holds_no_more_than_max_request_size() -> None:
    made = World(rules(linger_ms=5, max_request_size=400), Random(1), partitions=4)
    made.handle(ProducerIdGiven(ProducerIdAndEpoch(7, 0)))
    for partition in range(4):
        made.append(partition, size=90)
    made.time_passes(5)
    sizes = [[len(batch.encode()) for batch in sent.batches] for sent in sends(made)]
    assert [len(each) for each in sizes] == [2, 2]
    assert all(sum(each) <= 400 for each in sizes)


def test_the_first_batch_of_a_producer_goes_alone_then_five_at_a_time() -> None:
    """`max.in.flight.requests.per.connection`; and a broker that has not heard of us takes anything as the first."""
    made = world(linger_ms=0)
    for _ in range(8):
        made.append(0, size=120)
    assert len(sends(made)) == 1
    answer(made, base_offset=0)
    assert len(sends(made)) == 5
    assert [batch.sequence for sent in sends(made) for batch in sent.batches] == [1, 2, 3, 4, 5]


def test_records_wait_for_the_producer_id_and_the_leader() -> None:
    made = World(rules(linger_ms=0), Random(1))
    made.leaders[0] = -1
    made.handle(LeadersFound({TOPIC: made.leaders}))
    made.append(0)
    assert [type(asked).__name__ for asked in made.asked] == ["AskProducerId", "AskLeaders"]
    made.leaders[0] = NODE
    made.cluster_answers()
    assert not sends(made)
    made.cluster_answers()
    (sent,) = sends(made)
    header = parse_header(sent.batches[0].encode())
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 0, 0)


def test_a_flush_ends_when_what_was_there_is_settled() -> None:
    made = world(linger_ms=10**6)
    made.append(0)
    made.append(1)
    made.handle(FlushAsked(1))
    assert len(sends(made)) == 1
    made.append(1)
    assert not made.flushes_ended
    answer(made, base_offset=0)
    assert made.flushes_ended == [1]
    assert made.machine.unsettled == 1
    made.handle(FlushAsked(2))
    made.handle(Closing())
    answer(made, base_offset=5)
    assert made.flushes_ended == [1, 2]
    made.handle(FlushAsked(3))
    assert made.flushes_ended == [1, 2, 3], "nothing is there"


# --- room -------------------------------------------------------------------------------------------------------------


def test_without_room_a_record_is_refused_and_everything_is_sent_at_once() -> None:
    """`buffer.memory`."""
    made = world(linger_ms=10**6, buffer_memory=300, batch_size=1_000)
    assert made.append(0, size=100)
    assert made.append(1, size=100)
    assert not sends(made)
    assert not made.append(1, size=100)
    assert len(sends(made)) == 1, "lingering would not make room"
    answer(made, base_offset=0)
    assert made.append(1, size=100)


def test_a_record_that_can_never_be_sent_is_refused_with_the_settings_to_change() -> None:
    made = world(max_request_size=300)
    with pytest.raises(KafkaError, match=r"max\.request\.size is 300.*raise them") as caught:
        made.append(0, size=300)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert made.append(0, size=200)
    assert made.machine.unsettled == 1


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE], ids=lambda code: code.name)
def test_every_error_has_its_consequence(code: ErrorCode) -> None:
    """As Java 4.3: retriable ones are sent again, stale metadata is asked for again, the rest fails or more."""
    made = world(linger_ms=0)
    made.append(0)
    answer(made, error=code, message="so it is")
    (batch,) = {sent.batch for sent in made.sent}
    consequence = CONSEQUENCES.get(code, Consequence.FAIL)
    assert (code in RETRIABLE) == (consequence is Consequence.RETRY)
    assert [type(asked).__name__ for asked in made.asked] == (["AskLeaders"] if code in STALE_METADATA else [])
    made.time_passes(1_500)
    if consequence in {Consequence.RETRY, Consequence.OUT_OF_PLACE}:
        assert not batch.is_settled and sends(made), "it is sent again"
        assert batch.identity.epoch == (0 if consequence is Consequence.RETRY else 1)
    elif consequence is Consequence.TAKEN:
        assert batch.is_settled and batch.error is None and batch.base_offset == -1
    else:
        assert batch.is_settled and batch.error is not None
        assert batch.error.code is code and "so it is" in str(batch.error)
        assert (made.machine.failure is not None) == (consequence is Consequence.FAIL_FOR_GOOD)


def test_a_retry_waits_longer_each_time_unless_the_leader_changed() -> None:
    """KIP-580: 100, 200, 400, ... ms, give or take a fifth; another leader is asked at once."""
    made = world(linger_ms=0)
    made.append(0)
    for least, most in ((80, 120), (160, 240), (320, 480), (640, 960), (800, 1_200)):
        answer(made, error=ErrorCode.NOT_ENOUGH_REPLICAS)
        made.time_passes(least - 1)
        assert not sends(made)
        made.time_passes(most - least + 2)
        assert len(sends(made)) == 1
    answer(made, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not sends(made)
    made.leaders[0] = NODES[1]
    made.cluster_answers()
    assert len(made.wire[NODES[1]]) == 1


def test_a_record_that_is_not_delivered_in_time_says_what_the_last_attempt_met() -> None:
    """`delivery.timeout.ms`; a new epoch follows, since nobody knows whether it was written."""
    made = world(linger_ms=0, delivery_timeout_ms=1_000)
    made.append(0)
    sent = made.wire[NODE].popleft()
    made.handle(Unanswered(sent, RequestTimedOutError("broker 1 did not answer")))
    made.time_passes(1_000)
    (batch,) = made.settled
    assert "not delivered within delivery.timeout.ms=1000" in str(batch.error)
    assert "broker 1 did not answer" in str(batch.error)
    made.wire[NODE].clear()
    made.machine._on_the_way.clear()
    made.append(0)
    (again,) = sends(made)
    assert again.batches[0].identity == ProducerIdAndEpoch(7, 1)
    assert again.batches[0].sequence == 0


def test_an_answer_that_comes_too_late_changes_nothing() -> None:
    made = world(linger_ms=0, delivery_timeout_ms=1_000)
    made.append(0)
    made.time_passes(1_000)
    (batch,) = made.settled
    answer(made, base_offset=3)
    assert made.settled == [batch]
    assert batch.base_offset == -1 and batch.error is not None


def test_the_records_of_a_batch_are_blamed_one_by_one() -> None:
    """KIP-467: the broker says which of them it would not have."""
    made = world(linger_ms=5)
    made.append(0)
    made.append(0)
    made.time_passes(5)
    answer(made, error=ErrorCode.INVALID_RECORD, record_errors={1: "no key"}, message="one is bad")
    (batch,) = made.settled
    assert "no key" in str(batch.record_errors[1])


def test_an_answer_without_the_partition_counts_as_none() -> None:
    made = world(linger_ms=0)
    made.append(0)
    made.handle(Answered(made.wire[NODE].popleft(), {}))
    (batch,) = {sent.batch for sent in made.sent}
    assert not batch.is_settled and "does not speak of this partition" in str(batch.error)


def test_a_producer_id_that_is_refused_fails_what_waits_and_is_asked_for_again() -> None:
    """Java's idempotent producer: without IDEMPOTENT_WRITE on the cluster nothing can be sent."""
    made = World(rules(linger_ms=0), Random(1))
    made.append(0)
    made.handle(ProducerIdFailed(KafkaError("not allowed", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
    assert [str(batch.error) for batch in made.settled] == ["not allowed"]
    made.asked.clear()
    made.time_passes(100)
    made.append(0)
    assert [type(asked).__name__ for asked in made.asked] == ["AskProducerId"]


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    made = world(linger_ms=0)
    made.handle(ProducerIdGiven(ProducerIdAndEpoch(7, MAX_EPOCH)))
    made.append(0)
    answer(made, error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert made.machine.identity == NO_PRODUCER
    made.cluster_answers()
    made.time_passes(200)
    (sent,) = sends(made)
    assert sent.batches[0].identity == ProducerIdAndEpoch(8, 0)


def test_giving_up_settles_everything() -> None:
    made = world(linger_ms=0)
    for partition in (0, 0, 1):
        made.append(partition, size=100)
    made.handle(GaveUp(KafkaError("closed")))
    assert made.machine.unsettled == 0
    assert {str(sent.batch.error) for sent in made.sent} == {"closed"}
    made.handle(Woke())
    assert made.alarm_ms is None


def test_batches_for_partitions_that_moved_keep_their_order() -> None:
    """Two on the way to the old leader, both refused: they go to the new one in order, one after the other."""
    made = world(linger_ms=0)
    made.append(0, size=120)
    made.broker_reads(NODE)
    made.answer_arrives(NODE)
    made.append(0, size=120)
    made.append(0, size=120)
    made.leaders[0] = NODES[1]
    made.heal()
    made.check()
    assert [value for _, value in _values(made)] == [sent.value for sent in made.sent]


def _values(made: World) -> list[tuple[int, bytes | None]]:
    from logs import read_all

    return read_all(made.logs[P0], 1 << 20)
