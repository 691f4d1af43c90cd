"""A member by confluent-kafka (librdkafka)."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from clients.members.telling import Orders, Stopping, note, orders, say, say_committed, say_consumed, say_partitions

OUT_OF_DATE = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.UNKNOWN_MEMBER_ID,
}
BROKER_AWAY = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
}
"""librdkafka does not try a commit again that failed so; the next one makes it good."""


def settings(told: Orders) -> dict[str, str | int | bool]:
    given: dict[str, str | int | bool] = {
        "bootstrap.servers": told.bootstrap,
        "group.id": told.group,
        "client.id": told.client_id,
        "partition.assignment.strategy": told.assignor,
        "session.timeout.ms": told.session_timeout_ms,
        "heartbeat.interval.ms": told.heartbeat_interval_ms,
        "topic.metadata.refresh.interval.ms": told.metadata_max_age_ms,
        "max.poll.interval.ms": told.max_poll_interval_ms,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if told.protocol == "consumer":
        for name in ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"):
            del given[name]
        given |= {"group.protocol": "consumer"} | ({"group.remote.assignor": told.assignor} if told.assignor else {})
    if told.instance_id:
        given["group.instance.id"] = told.instance_id
    return given


def take(consumer: Consumer, messages: list[Message]) -> None:
    records, following = [], {}
    for message in messages:
        error = message.error()
        if error is not None:
            if error.fatal():
                raise KafkaException(error)
            say("error", error=error.str())
            continue
        topic, partition, offset, value = message.topic(), message.partition(), message.offset(), message.value()
        assert topic is not None and partition is not None and offset is not None and isinstance(value, bytes)
        records.append((topic, partition, offset, value.decode()))
        following[topic, partition] = offset + 1
    if not records:
        return
    say_consumed(records)
    try:
        wanted = [TopicPartition(*place, offset, note()) for place, offset in following.items()]
        done = consumer.commit(offsets=wanted, asynchronous=False)
    except KafkaException as failure:
        if failure.args[0].code() not in OUT_OF_DATE | BROKER_AWAY:
            raise
        say("commit_failed", error=failure.args[0].name())
        return
    refused = [one.error for one in done or () if one.error]
    if refused:
        say("commit_failed", error=refused[0].name())
    else:
        say_committed((*place, offset) for place, offset in following.items())


def main() -> None:
    told, stopping = orders(), Stopping()
    consumer = Consumer(settings(told))
    consumer.subscribe(
        [f"^{told.pattern}"] if told.pattern else list(told.topics),
        on_assign=lambda _, partitions: say_partitions("assigned", partitions),
        on_revoke=lambda _, partitions: say_partitions("revoked", partitions),
        on_lost=lambda _, partitions: say_partitions("lost", partitions),
    )
    say("started")
    while not stopping:
        take(consumer, consumer.consume(100, timeout=0.1))
    consumer.close()
    say("closed")


if __name__ == "__main__":
    main()
