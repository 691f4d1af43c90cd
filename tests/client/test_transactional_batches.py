"""The record accumulator of a transactional producer: partitions are added first, aborts drop batches, epochs come."""

from __future__ import annotations

from client.producing_world import rules
from coterie.client.producer import accumulator_events as batches
from coterie.client.producer.partition_queue import Batch, ProducerIdAndEpoch
from coterie.client.producer.record_accumulator import RecordAccumulator
from coterie.client.types import TopicPartition
from coterie.errors import ErrorCode, KafkaError, TransactionAbortableError, TransactionAbortedError
from coterie.protocol.batch import parse_header

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ABORTED = TransactionAbortedError("aborted")


class Driven:
    def __init__(self, *, adds_partitions: bool = False) -> None:
        self.machine = RecordAccumulator(rules(is_transactional=True, linger_ms=0, retry_backoff_ms=1), lambda: 0)
        self.now_ms = 1_000
        self.sent: list[batches.SendBatches] = []
        self.asked: list[batches.Effect] = []
        self.done: list[int] = []
        self(batches.LeadersFound({"t": {0: 1, 1: 1}}))
        self(batches.ProducerIdGiven(ProducerIdAndEpoch(7, 0)))
        self(batches.TransactionBegun(adds_partitions))

    def __call__(self, event: batches.Event) -> None:
        self.now_ms += 10
        for effect in self.machine.handle(event, self.now_ms):
            match effect:
                case batches.SendBatches():
                    self.sent.append(effect)
                case batches.FlushDone(token):
                    self.done.append(token)
                case batches.AskPartitions() | batches.AskProducerId():
                    self.asked.append(effect)

    def append(self, partition: int = 0) -> Batch:
        placed = self.machine.append("t", partition, (None, b"v", 0, ()), self.now_ms)
        assert placed is not None
        self(batches.Woke())
        return placed[0]

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        sent = self.sent.pop(0)
        self(batches.Answered(sent, {one.where: batches.PartitionAnswer(code, base_offset=0) for one in sent.batches}))


def test_a_batch_waits_until_its_partition_is_added() -> None:
    driven = Driven(adds_partitions=True)
    assert not driven.machine.has_sent
    first, second = driven.append(0), driven.append(1)
    driven.append(0)
    assert driven.asked == [batches.AskPartitions((T0,)), batches.AskPartitions((T1,))] and not driven.sent
    driven(batches.PartitionsAdded((T1,)))
    assert [sent.batches for sent in driven.sent] == [(second,)]
    driven(batches.PartitionsAdded((T0,)))
    assert driven.sent[1].batches == (first,)
    assert driven.machine.has_sent


def test_batches_are_transactional_and_no_producer_id_is_asked_for() -> None:
    driven = Driven()
    batch = driven.append()
    assert parse_header(driven.machine.encode(batch)).is_transactional
    assert not driven.asked


def test_an_abort_fails_what_is_not_in_flight_and_waits_for_the_rest() -> None:
    driven = Driven()
    in_flight, waiting = driven.append(0), driven.append(0)
    driven(batches.TransactionAborting(5, ABORTED))
    assert waiting.error is ABORTED and not in_flight.is_settled and not driven.done
    driven.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert type(in_flight.error) is TransactionAbortableError and driven.done == [5]
    assert not driven.sent, "it is not sent again"


def test_an_abort_with_nothing_in_flight_ends_at_once() -> None:
    driven = Driven()
    driven(batches.TransactionAborting(5, ABORTED))
    assert driven.done == [5]


def test_a_gap_in_the_sequences_fails_the_transaction_and_the_next_epoch_begins_at_0() -> None:
    """Outside of transactions the producer bumps its epoch itself (KIP-360); here its coordinator does."""
    driven = Driven()
    first, second = driven.append(0), driven.append(0)
    driven.answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert isinstance(first.error, TransactionAbortableError) and "Abort the transaction" in str(first.error)
    assert not driven.sent and not second.is_settled and driven.machine.identity == ProducerIdAndEpoch(7, 0)
    driven(batches.TransactionAborting(5, ABORTED))
    driven(batches.ProducerIdGiven(ProducerIdAndEpoch(7, 1)))
    driven(batches.TransactionBegun(adds_partitions=False))
    third = driven.append(0)
    assert (third.identity, third.sequence) == (ProducerIdAndEpoch(7, 1), 0) and driven.sent[0].batches == (third,)


def test_sequences_go_on_in_the_next_transaction_of_the_same_epoch() -> None:
    driven = Driven(adds_partitions=True)
    driven.append(0)
    driven(batches.PartitionsAdded((T0,)))
    driven.answer()
    driven(batches.TransactionBegun(adds_partitions=True))
    second = driven.append(0)
    driven(batches.PartitionsAdded((T0,)))
    assert second.sequence == 1


def test_a_producer_that_failed_fails_all_batches() -> None:
    driven = Driven()
    first, second = driven.append(0), driven.append(0)
    driven(batches.GaveUp(KafkaError("fenced", ErrorCode.PRODUCER_FENCED)))
    assert first.is_settled and second.is_settled and driven.machine.used == 0
