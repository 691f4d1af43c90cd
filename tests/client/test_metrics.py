"""What clients measure: by hand with a clock of its own, and of real clients what was done to them."""

from __future__ import annotations

import asyncio

import pytest

import coterie
from client.consumers import consumer_of, fill, on, read, until
from client.peers import Run
from coterie.client.metrics import (
    ADMIN_ROWS,
    CONSUMER_ROWS,
    PARTITION_ROWS,
    PRODUCER_ROWS,
    ConsumerMetrics,
    Metrics,
    Sensor,
    snapshot,
)
from coterie.errors import KafkaError
from coterie.settings.client_settings import ClientSettings

pytestmark = pytest.mark.real_time

COORDINATOR, FETCH, CONSUMER = (
    "consumer-coordinator-metrics",
    "consumer-fetch-manager-metrics",
    "consumer-metrics",
)
PRODUCER, ADMIN = "producer-metrics", "admin-client-metrics"


# --- sensors ----------------------------------------------------------------------------------------------------------


def test_what_was_not_measured_is_none_and_what_was_counted_is_a_number() -> None:
    sensor = Sensor()
    assert sensor.avg(0) is None and sensor.max(0) is None
    assert sensor.count == 0 and sensor.total == 0 and sensor.rate(0) == 0


def test_averages_and_maxima_are_those_of_the_last_samples() -> None:
    sensor = Sensor(ClientSettings(metrics_num_samples=2, metrics_sample_window_ms=1_000))
    sensor.record(100, 0)
    sensor.record(20, 1_000)
    assert sensor.avg(1_500) == 60 and sensor.max(1_500) == 100
    assert sensor.avg(2_500) == 20 and sensor.max(2_500) == 20, "the first one is too old"
    sensor.record(4, 2_600)
    assert sensor.avg(2_700) == 12 and sensor.max(2_700) == 20
    assert sensor.avg(60_000) is None and sensor.max(60_000) is None
    assert sensor.count == 3 and sensor.total == 124


def test_a_rate_is_that_of_the_time_of_the_samples_as_kafka_counts_it() -> None:
    sensor = Sensor(ClientSettings(metrics_num_samples=2, metrics_sample_window_ms=1_000))
    for at_ms in range(0, 2_000, 100):
        sensor.record(10, at_ms)
    assert sensor.rate(2_000 - 1) == pytest.approx(20 / 1.999)
    assert sensor.total_rate(2_000 - 1) == pytest.approx(200 / 1.999)
    young = Sensor(ClientSettings(metrics_num_samples=2, metrics_sample_window_ms=1_000))
    young.record(1, 0)
    assert young.rate(1) == pytest.approx(1 / 1.001), "not a thousand a second"


def test_quick_polls_are_counted_with_the_next_full_one() -> None:
    measured = ConsumerMetrics()
    measured.poll_began(1_000)
    measured.poll_ended(1_010)
    for now_ms in (1_020, 1_030, 1_040):
        measured.quick_polls += 1
        measured.last_poll_ms = now_ms
    measured.poll_began(1_400)
    measured.poll_ended(1_500)
    said = snapshot(CONSUMER_ROWS, measured, 3_500)[CONSUMER]
    assert said["time-between-poll-avg"] == 100 and said["time-between-poll-max"] == 360
    assert said["last-poll-seconds-ago"] == 2.1
    assert said["poll-idle-ratio-avg"] == pytest.approx(100 / 490)


def test_a_rebalance_lasts_from_its_beginning_to_the_assignment_however_often_it_was_tried() -> None:
    measured = ConsumerMetrics()
    measured.rebalance_began(1_000)
    measured.rebalance_began(1_200)
    measured.rebalance_ended(1_500)
    measured.rebalance_ended(1_600)
    said = snapshot(CONSUMER_ROWS, measured, 5_500)[COORDINATOR]
    assert said["rebalance-total"] == 1 and said["rebalance-latency-total"] == 500
    assert said["rebalance-latency-avg"] == said["rebalance-latency-max"] == 500
    assert said["last-rebalance-seconds-ago"] == 4


# --- clients ----------------------------------------------------------------------------------------------------------


def known(value: float | None) -> float:
    assert value is not None
    return value


def names(metrics: Metrics) -> dict[str, set[str]]:
    return {group: set(its) for group, its in metrics.items()}


def test_polls_that_only_took_records_that_were_there_count_before_the_next_full_one() -> None:
    measured = ConsumerMetrics()
    measured.poll_began(100)
    measured.quick_polls, measured.last_poll_ms = 3, 160
    for _ in range(2):
        measured.note_quick_polls()
        assert (measured.polls.count, measured.polls.avg(160), measured.polls.max(160)) == (3, 20, 20)
    measured.poll_began(200)
    assert (measured.polls.count, measured.polls.total, measured.polls.max(200)) == (4, 100, 40)


def test_a_consumer_measures_what_was_done_with_it(broker: coterie.Broker, name: str) -> None:
    fill(broker.bootstrap_servers, name, 2, 50)
    consumer = consumer_of(broker.bootstrap_servers, group_id=name, max_poll_records=7, heartbeat_interval_ms=20)
    before = consumer.metrics()
    assert before[FETCH]["records-consumed-total"] == 0 and before[FETCH]["fetch-latency-avg"] is None
    assert before[COORDINATOR]["last-rebalance-seconds-ago"] is before[CONSUMER]["last-poll-seconds-ago"] is None
    consumer.subscribe(name)
    read(100, consumer)
    consumer.commit()
    consumer.commit()
    until(lambda: consumer.metrics()[COORDINATOR]["heartbeat-total"], consumer)
    metrics = consumer.metrics()
    assert names(metrics) == {group: {row.name for row in rows} for group, rows in CONSUMER_ROWS.items()} | {
        f"{FETCH},topic={name},partition={number}": set(PARTITION_ROWS) for number in range(2)
    }
    fetched, group, its = metrics[FETCH], metrics[COORDINATOR], metrics[CONSUMER]
    assert fetched["records-consumed-total"] == 100
    assert known(fetched["records-consumed-rate"]) > 0
    assert known(fetched["bytes-consumed-total"]) > 100 * len("0:0")
    assert known(fetched["fetch-total"]) >= 1 and known(fetched["fetch-latency-max"]) >= 0
    assert known(fetched["records-lag-max"]) > 0, "before they were read they were a lag"
    assert metrics[f"{FETCH},topic={name},partition=0"] == {"records-lag": 0, "records-lead": 50}
    assert group["commit-total"] == 2 and known(group["commit-latency-max"]) >= 0
    assert group["assigned-partitions"] == 2
    assert group["join-total"] == group["sync-total"] == group["rebalance-total"] == 1
    assert group["failed-rebalance-total"] == 0
    assert 0 <= known(group["last-rebalance-seconds-ago"]) < 60
    assert 0 <= known(group["last-heartbeat-seconds-ago"]) < 60
    assert known(its["connection-count"]) >= 1 and known(its["request-total"]) >= known(fetched["fetch-total"]) + 5
    assert known(its["time-between-poll-max"]) >= 0
    assert 0 <= known(its["poll-idle-ratio-avg"]) <= 1
    consumer.close()
    after = consumer.metrics()
    assert after[FETCH]["records-consumed-total"] == 100 and after[CONSUMER]["connection-count"] == 0


def test_records_that_are_iterated_count_too(broker: coterie.Broker, name: str, run: Run) -> None:
    fill(broker.bootstrap_servers, name, 1, 30)
    with coterie.Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(on(name, 0))
        for record in consumer:
            if record.offset == 29:
                break
        assert consumer.metrics()[FETCH]["records-consumed-total"] == 30
        assert consumer.metrics()[COORDINATOR]["assigned-partitions"] == 1

    async def main() -> None:
        more = coterie.AsyncConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
        assert names(more.metrics()) == {group: {row.name for row in rows} for group, rows in CONSUMER_ROWS.items()}
        async with more:
            more.assign(on(name, 0))
            async for record in more:
                if record.offset == 9:
                    break
            assert more.metrics()[FETCH]["records-consumed-total"] == 10

    run(main())


def test_a_failed_rebalance_is_counted(broker: coterie.Broker, name: str) -> None:
    fill(broker.bootstrap_servers, name, 1)
    with consumer_of(broker.bootstrap_servers, group_id=name, session_timeout_ms=100, heartbeat_interval_ms=30) as odd:
        odd.subscribe(name)
        with pytest.raises(KafkaError, match=r"session\.timeout\.ms"):
            until(lambda: False, odd)
        group = odd.metrics()[COORDINATOR]
        assert known(group["failed-rebalance-total"]) >= 1 and group["rebalance-total"] == 0
        assert group["rebalance-latency-avg"] is None, "not 0: there was none"


def test_a_producer_measures_what_was_done_with_it(broker: coterie.Broker, name: str) -> None:
    fill(broker.bootstrap_servers, name, 1)
    with coterie.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=1) as producer:
        before = producer.metrics()[PRODUCER]
        assert before["record-send-total"] == 0 and before["batch-size-avg"] is None
        assert before["buffer-available-bytes"] == before["buffer-total-bytes"] == producer.settings.buffer_memory
        for number in range(100):
            producer.send(name, str(number))
        producer.flush()
        metrics = producer.metrics()
        assert names(metrics) == {group: {row.name for row in rows} for group, rows in PRODUCER_ROWS.items()}
        its = metrics[PRODUCER]
        assert its["record-send-total"] == 100 and its["record-error-total"] == its["record-retry-total"] == 0
        assert known(its["records-per-request-avg"]) >= 1 and known(its["batch-size-avg"]) > 61
        assert known(its["record-queue-time-avg"]) >= 0 and known(its["request-latency-max"]) >= 0
        assert its["buffer-available-bytes"] == producer.settings.buffer_memory and its["requests-in-flight"] == 0
        assert known(its["connection-count"]) >= 1
        assert its["request-total"] == its["response-total"]


def test_records_that_are_not_delivered_and_sent_again_are_counted() -> None:
    broker = coterie.Broker().start()
    producer = coterie.Producer(
        bootstrap_servers=broker.bootstrap_servers,
        delivery_timeout_ms=1_000,
        request_timeout_ms=500,
        reconnect_backoff_max_ms=50,
        linger_ms=0,
    )
    producer.send("t", "one").result(timeout=20)
    broker.stop()
    failed = [producer.send("t", "two") for _ in range(3)]
    for each in failed:
        with pytest.raises(KafkaError):
            each.result(timeout=20)
    until(lambda: producer.metrics()[PRODUCER]["record-error-total"])
    its = producer.metrics()[PRODUCER]
    assert its["record-error-total"] == 3 and known(its["record-retry-total"]) >= 1
    producer.close()


def test_an_admin_measures_its_requests(broker: coterie.Broker, run: Run) -> None:
    with coterie.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.metrics()[ADMIN]["request-latency-avg"] is None
        admin.list_topics()
        its = admin.metrics()
        assert names(its) == {group: {row.name for row in rows} for group, rows in ADMIN_ROWS.items()}
        assert its[ADMIN]["request-total"] == its[ADMIN]["response-total"] == 1
        assert its[ADMIN]["connection-count"] == 1 and known(its[ADMIN]["request-latency-max"]) >= 0

    async def main() -> None:
        async with coterie.AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as more:
            await asyncio.gather(more.list_topics(), more.list_groups())
            assert known(more.metrics()[ADMIN]["request-total"]) >= 2

    run(main())
