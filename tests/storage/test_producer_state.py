"""Idempotent producers (rule D1), as far as one partition is concerned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.batch import MAX_SEQUENCE, BatchHeader, parse_header
from coterie.protocol.records import BatchRecord, EndMarker, build_batch
from coterie.storage.log_errors import RefusedError
from coterie.storage.producer_state import (
    REMEMBERED,
    BatchMetadata,
    ProducerStateManager,
    decode_snapshot,
    encode_snapshot,
)
from logs import build_marker

DAY_MS = 86_400_000


def header(
    producer_id: int = 1,
    epoch: int = 0,
    sequence: int = 0,
    *,
    count: int = 1,
    offset: int = 0,
    timestamp: int = 0,
    transactional: bool = False,
) -> BatchHeader:
    batch = build_batch(
        [BatchRecord(b"k", b"v", timestamp)] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return parse_header(batch)._replace(base_offset=offset)


def marker_header(producer_id: int = 1, epoch: int = 0, offset: int = 0) -> BatchHeader:
    marker = EndMarker(committed=True)
    batch = build_marker(marker, producer_id=producer_id, producer_epoch=epoch, timestamp=0)
    return parse_header(batch)._replace(base_offset=offset)


def producers(max_producers: int = 100) -> ProducerStateManager:
    return ProducerStateManager(max_producers, DAY_MS)


def refused(state: ProducerStateManager, batch: BatchHeader) -> ErrorCode:
    with pytest.raises(RefusedError) as error:
        state.check_sequence(batch)
    return error.value.code


def test_an_unknown_producer_may_start_anywhere() -> None:
    """Rule D1: its earlier batches may have been deleted with their segment."""
    state = producers()
    state.check_sequence(header(sequence=0))
    state.check_sequence(header(sequence=42))


def test_a_batch_follows_the_one_before() -> None:
    state = producers()
    state.note(header(sequence=0, count=3))
    state.check_sequence(header(sequence=3))
    assert refused(state, header(sequence=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(state, header(sequence=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_each_of_the_last_five_batches_is_known_by_its_first_offset() -> None:
    """Rule D1; a sixth repeated is out of order, since nobody knows any more where it is."""
    state = producers()
    sent = [header(sequence=2 * n, count=2, offset=100 + 2 * n) for n in range(6)]
    for each in sent:
        state.note(each)
    assert state.duplicate_of(sent[0]) is None
    assert refused(state, sent[0]) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for n, each in enumerate(sent[1:], start=1):
        assert state.duplicate_of(each._replace(base_offset=0)) == BatchMetadata(
            2 * n, 2 * n + 1, 100 + 2 * n, 101 + 2 * n, 0
        )


def test_the_same_start_with_another_end_is_no_duplicate() -> None:
    state = producers()
    state.note(header(sequence=0, count=3))
    assert state.duplicate_of(header(sequence=0, count=2)) is None
    assert refused(state, header(sequence=0, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_starts_at_zero_and_fences_the_old() -> None:
    """Rule D1."""
    state = producers()
    state.note(header(epoch=3, sequence=7))
    assert refused(state, header(epoch=4, sequence=8)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    state.check_sequence(header(epoch=4, sequence=0))
    state.note(header(epoch=4, sequence=0))
    assert refused(state, header(epoch=3, sequence=8)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert state.duplicate_of(header(epoch=3, sequence=7)) is None


def test_after_the_largest_sequence_comes_zero() -> None:
    state = producers()
    state.note(header(sequence=MAX_SEQUENCE))
    state.check_sequence(header(sequence=0))
    across = header(sequence=MAX_SEQUENCE - 1, count=4, offset=9)
    state = producers()
    state.note(across)
    assert state.duplicate_of(across) == BatchMetadata(MAX_SEQUENCE - 1, 1, 9, 12, 0)
    state.check_sequence(header(sequence=2))


def test_producers_do_not_know_each_other() -> None:
    state = producers()
    state.note(header(1, sequence=5))
    state.check_sequence(header(2, sequence=0))
    assert state.duplicate_of(header(2, sequence=5)) is None


def test_a_batch_without_producer_leaves_no_trace() -> None:
    state = producers()
    state.note(parse_header(build_batch([BatchRecord(b"k", b"v", 0)])))
    assert len(state) == 0


def test_expiry_is_by_the_time_of_the_last_batch() -> None:
    """`producer.id.expiration.ms`; a forgotten producer may start anywhere again."""
    state = producers()
    state.note(header(1, timestamp=0))
    state.note(header(2, timestamp=10))
    state.note(header(3, timestamp=0, transactional=True))
    assert state.expire(DAY_MS - 1) == []
    assert state.expire(DAY_MS) == [1]
    assert [producer_id for producer_id, _ in state] == [2, 3]


def test_the_least_recently_used_is_forgotten_first() -> None:
    state = producers(max_producers=2)
    state.note(header(1))
    state.note(header(2))
    state.note(header(1, sequence=1))
    state.note(header(3))
    assert [producer_id for producer_id, _ in state] == [1, 3]


def test_an_open_transaction_is_not_forgotten() -> None:
    state = producers(max_producers=2)
    state.note(header(1, transactional=True, offset=5))
    for other in range(2, 20):
        state.note(header(other))
    assert len(state) == 2 and state.first_open_offset == 5


# --- transactions -----------------------------------------------------------------------------------------------------


def test_stable_reading_ends_at_the_oldest_open_transaction() -> None:
    state = producers()
    state.note(header(1, transactional=True, offset=5))
    state.note(header(2, transactional=True, offset=6))
    state.note(header(1, sequence=1, transactional=True, offset=7))
    assert state.first_open_offset == 5
    state.note(marker_header(1, offset=8), EndMarker(committed=True))
    assert state.first_open_offset == 6
    state.note(marker_header(2, offset=9), EndMarker(committed=False))
    assert state.first_open_offset is None


def test_nothing_is_written_beside_an_open_transaction() -> None:
    state = producers()
    state.note(header(1, transactional=True))
    assert refused(state, header(1, sequence=1)) is ErrorCode.INVALID_TXN_STATE
    state.check_sequence(header(1, sequence=1, transactional=True))


def test_a_coordinator_writes_without_sequence_but_not_with_an_old_epoch() -> None:
    state = producers()
    state.note(header(1, epoch=2, sequence=-1, transactional=True))
    state.check_producer_epoch(header(1, epoch=2, sequence=-1, transactional=True), None)
    with pytest.raises(RefusedError) as error:
        state.check_producer_epoch(header(1, epoch=1, sequence=-1), None)
    assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    state.check_producer_epoch(header(9, epoch=1, sequence=-1), None)


def test_a_marker_of_an_older_coordinator_is_fenced() -> None:
    state = producers()
    state.note(marker_header(1), EndMarker(committed=True, coordinator_epoch=4))
    state.check_producer_epoch(marker_header(1), EndMarker(committed=True, coordinator_epoch=4))
    with pytest.raises(RefusedError) as error:
        state.check_producer_epoch(marker_header(1), EndMarker(committed=True, coordinator_epoch=3))
    assert error.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


# --- snapshots --------------------------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(1, 3), st.booleans(), st.booleans()), max_size=30
)


@given(steps)
def test_a_snapshot_restores_what_was_known(history: list[tuple[int, int, int, bool, bool]]) -> None:
    state = producers()
    offset = 0
    next_sequence: dict[tuple[int, int], int] = {}
    epochs: dict[int, int] = {}
    for producer_id, bump, count, transactional, ends in history:
        epoch = epochs[producer_id] = epochs.get(producer_id, 0) + (bump == 2)
        sequence = next_sequence.get((producer_id, epoch), 0)
        state.note(header(producer_id, epoch, sequence, count=count, offset=offset, transactional=transactional))
        next_sequence[producer_id, epoch] = sequence + count
        offset += count
        if ends:
            state.note(marker_header(producer_id, epoch, offset), EndMarker(committed=True, coordinator_epoch=1))
            offset += 1
    again = producers()
    decode_snapshot(encode_snapshot(state), again)
    assert {key: (each.epoch, list(each.stored)) for key, each in again} == {
        key: (each.epoch, list(each.stored)) for key, each in state
    }
    assert again.first_open_offset == state.first_open_offset
    assert all(len(each.stored) <= REMEMBERED for _, each in again)


@given(st.data())
def test_a_damaged_snapshot_is_refused_and_restores_nothing(data: st.DataObject) -> None:
    state = producers()
    state.note(header(1))
    content = bytearray(encode_snapshot(state))
    if data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    again = producers()
    with pytest.raises(MalformedError):
        decode_snapshot(bytes(content), again)
    assert len(again) == 0
