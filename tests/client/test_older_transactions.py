"""The transactional producer on an Apache Kafka 4.3.1 with transaction.version 1, which it hears of from the cluster.

Partitions are added by requests of their own, and the epoch stays from one transaction to the next (TX1, TX2, TE1).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apache_kafka import ApacheKafka, needs_apache_kafka
from client import test_transactions as situations
from client.consumers import until
from client.transacting import WAIT_S, fail, producer, seen, stable_end
from coterie import Admin, NewTopic, checked
from coterie.errors import ErrorCode, ProducerFencedError, UnsupportedVersionError

pytestmark = [pytest.mark.real_time, needs_apache_kafka]

SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with ApacheKafka(SETTINGS, features={"transaction.version": 1}) as kafka:
        yield kafka.bootstrap


@pytest.fixture
def topic(bootstrap: str, name: str) -> str:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2, 1)])
    return name


def epoch_of(bootstrap: str, transactional_id: str) -> int:
    with Admin(bootstrap_servers=bootstrap) as admin:
        return checked(admin.describe_transactions([transactional_id]))[transactional_id].producer_epoch


def test_the_epoch_stays_from_one_transaction_to_the_next(bootstrap: str, topic: str) -> None:
    """TE1: so the producer takes the older way; it would be bumped with each end otherwise."""
    with producer(bootstrap, topic) as ours:
        for value in ("one", "two", "three"):
            with ours.transaction():
                ours.send(topic, value, partition=0)
            assert epoch_of(bootstrap, topic) == 0
        with pytest.raises(LookupError), ours.transaction():  # noqa: PT012  the block is what is tested
            ours.send(topic, "never", partition=0).result(WAIT_S)
            fail()
        with ours.transaction():
            ours.send(topic, "four", partition=0)
    assert seen(bootstrap, topic) == ["one", "two", "three", "four"]


def test_a_transaction_is_seen_as_a_whole_or_not_at_all(bootstrap: str, topic: str) -> None:
    situations.test_a_transaction_is_seen_as_a_whole_or_not_at_all(bootstrap, topic)


def test_an_abort_drops_what_was_not_sent(bootstrap: str, topic: str) -> None:
    situations.test_an_abort_drops_what_was_not_sent(bootstrap, topic)


def test_a_record_that_fails_makes_the_transaction_fail_and_not_the_next(bootstrap: str, topic: str) -> None:
    situations.test_a_record_that_fails_makes_the_transaction_fail_and_not_the_next(bootstrap, topic)


def test_a_second_producer_fences_the_first(bootstrap: str, topic: str) -> None:
    situations.test_a_second_producer_fences_the_first(bootstrap, topic)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_are_committed_with_the_transaction(bootstrap: str, topic: str, protocol: str) -> None:
    situations.test_offsets_are_committed_with_the_transaction_and_fenced_by_the_generation(bootstrap, topic, protocol)


def test_records_are_processed_once_although_transactions_are_aborted(bootstrap: str, name: str) -> None:
    situations.test_records_are_processed_once_although_transactions_are_aborted(bootstrap, name)


def test_a_transaction_that_timed_out_fences_its_producer(bootstrap: str, topic: str) -> None:
    """TT2, TT3: at this version it cannot be told from a producer that another one has fenced."""
    with producer(bootstrap, topic, **{"transaction.timeout.ms": 1_000}) as ours:
        ours.init_transactions()
        ours.begin_transaction()
        ours.send(topic, "never", partition=0).result(WAIT_S)
        until(lambda: stable_end(bootstrap, topic) == 2)
        with pytest.raises(ProducerFencedError) as caught:
            ours.commit_transaction()
        assert caught.value.code is ErrorCode.PRODUCER_FENCED
    assert seen(bootstrap, topic) == []


def test_a_transaction_is_not_shared_with_workers(bootstrap: str, topic: str) -> None:
    """A worker writes to partitions that nobody has added, which needs version 2."""
    with producer(bootstrap, topic) as ours:
        ours.init_transactions()
        ours.begin_transaction()
        with pytest.raises(UnsupportedVersionError, match=r"transaction\.version 2"):
            ours.share_transaction()
        ours.abort_transaction()
