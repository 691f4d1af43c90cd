"""One way to administer with each library: the same questions, asked and answered in its words."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.errors import for_code
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as PythonPartition

from clients.harness import Place
from coterie.protocol.subscription import read_assignment

__all__ = ["ADMINS", "Admin", "Described"]

SECONDS = 30


class Described(NamedTuple):
    """A group as an admin client shows it."""

    state: str
    assignor: str
    owned: dict[str, set[Place]]
    """By the client ids of its members."""


class Admin(ABC):
    """What a library lacks raises NotImplementedError."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @abstractmethod
    def create(self, topic: str, partitions: int) -> None: ...
    @abstractmethod
    def grow(self, topic: str, partitions: int) -> None: ...
    @abstractmethod
    def delete(self, topic: str) -> None: ...
    @abstractmethod
    def topics(self) -> dict[str, int]:
        """How many partitions each has."""

    @abstractmethod
    def delete_records(self, topic: str, before: int) -> int:
        """Of partition 0; the first offset that is left."""

    @abstractmethod
    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        """Of partition 0."""

    @abstractmethod
    def groups(self) -> set[str]: ...
    @abstractmethod
    def describe(self, group: str) -> Described: ...
    @abstractmethod
    def committed(self, group: str) -> dict[Place, int]: ...

    def delete_group(self, group: str) -> None:
        raise NotImplementedError(group)


class ConfluentAdmin(Admin):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create(self, topic: str, partitions: int) -> None:
        self._admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(SECONDS)

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(SECONDS)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(SECONDS)

    def topics(self) -> dict[str, int]:
        found = self._admin.list_topics(timeout=SECONDS).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def delete_records(self, topic: str, before: int) -> int:
        place = TopicPartition(topic, 0, before)
        return int(self._admin.delete_records([place])[place].result(SECONDS).low_watermark)

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "nobody"})
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=SECONDS)
        consumer.close()
        return found.offset if found.offset >= 0 else None  # librdkafka says "the end" where Kafka says "none"

    def groups(self) -> set[str]:
        result = self._admin.list_consumer_groups().result(SECONDS)
        assert not result.errors
        return {group.group_id for group in result.valid}

    def describe(self, group: str) -> Described:
        found = self._admin.describe_consumer_groups([group])[group].result(SECONDS)
        owned = {
            one.client_id: {(place.topic, place.partition) for place in one.assignment.topic_partitions}
            for one in found.members
        }
        return Described(found.state.name.replace("_", " ").title().replace(" ", ""), found.partition_assignor, owned)

    def committed(self, group: str) -> dict[Place, int]:
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        found = asked[group].result(SECONDS).topic_partitions
        return {(place.topic, place.partition): place.offset for place in found}

    def delete_group(self, group: str) -> None:
        self._admin.delete_consumer_groups([group])[group].result(SECONDS)


class KafkaPythonAdmin(Admin):
    def _ask(self, ask: Callable[[Any], Any]) -> Any:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            return ask(admin)
        finally:
            admin.close()

    def create(self, topic: str, partitions: int) -> None:
        self._ask(lambda admin: admin.create_topics({topic: {"num_partitions": partitions}}))

    def grow(self, topic: str, partitions: int) -> None:
        self._ask(lambda admin: admin.create_partitions({topic: partitions}))

    def delete(self, topic: str) -> None:
        self._ask(lambda admin: admin.delete_topics([topic]))

    def topics(self) -> dict[str, int]:
        return {topic["name"]: len(topic["partitions"]) for topic in self._ask(lambda admin: admin.describe_topics())}

    def delete_records(self, topic: str, before: int) -> int:
        place = PythonPartition(topic, 0)
        done = self._ask(lambda admin: admin.delete_records({place: before}))
        return int(done[place]["low_watermark"])

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap)
        found = consumer.offsets_for_times({PythonPartition(topic, 0): timestamp_ms})[PythonPartition(topic, 0)]
        consumer.close()
        return None if found is None else int(found.offset)

    def groups(self) -> set[str]:
        return {group["group_id"] for group in self._ask(lambda admin: admin.list_groups())}

    def describe(self, group: str) -> Described:
        found = self._ask(lambda admin: admin.describe_groups([group]))[group]
        owned = {}
        for member in found["members"]:
            given = member["member_assignment"]["assigned_partitions"]
            owned[member["client_id"]] = {(one["topic"], number) for one in given for number in one["partitions"]}
        return Described(found["group_state"], found["protocol_data"], owned)

    def committed(self, group: str) -> dict[Place, int]:
        found = self._ask(lambda admin: admin.list_group_offsets(group))[group]
        return {(place.topic, place.partition): value.offset for place, value in found.items()}

    def delete_group(self, group: str) -> None:
        assert self._ask(lambda admin: admin.delete_groups([group])) == {group: "OK"}


class AiokafkaAdmin(Admin):
    def _ask(self, ask: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        async def asked() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            try:
                return await ask(admin)
            finally:
                await admin.close()

        return asyncio.run(asked())

    def create(self, topic: str, partitions: int) -> None:
        done = self._ask(lambda admin: admin.create_topics([AioNewTopic(topic, partitions, 1)]))
        self._raise(done.topic_errors)

    def grow(self, topic: str, partitions: int) -> None:
        self._ask(lambda admin: admin.create_partitions({topic: AioNewPartitions(partitions)}))

    def delete(self, topic: str) -> None:
        done = self._ask(lambda admin: admin.delete_topics([topic]))
        self._raise(done.topic_error_codes)

    @staticmethod
    def _raise(answers: list[tuple[Any, ...]]) -> None:
        """For a library that leaves it to us."""
        ((_, code, *_),) = answers
        if code:
            raise for_code(code)

    def topics(self) -> dict[str, int]:
        return {topic["topic"]: len(topic["partitions"]) for topic in self._ask(lambda admin: admin.describe_topics())}

    def delete_records(self, topic: str, before: int) -> int:
        place = AioPartition(topic, 0)
        return int(self._ask(lambda admin: admin.delete_records({place: RecordsToDelete(before)}))[place])

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        async def ask() -> Any:
            consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap)
            await consumer.start()
            try:
                return (await consumer.offsets_for_times({AioPartition(topic, 0): timestamp_ms}))[
                    AioPartition(topic, 0)
                ]
            finally:
                await consumer.stop()

        found = asyncio.run(ask())
        return None if found is None else int(found.offset)

    def groups(self) -> set[str]:
        return {group[0] for group in self._ask(lambda admin: admin.list_consumer_groups())}

    def describe(self, group: str) -> Described:
        (found,) = self._ask(lambda admin: admin.describe_consumer_groups([group]))[0].to_object()["groups"]
        owned = {}
        for member in found["members"]:
            given = read_assignment(member["member_assignment"]).partitions
            owned[member["client_id"]] = {(topic, number) for topic, numbers in given.items() for number in numbers}
        return Described(found["state"], found["protocol"], owned)

    def committed(self, group: str) -> dict[Place, int]:
        found = self._ask(lambda admin: admin.list_consumer_group_offsets(group))
        return {(place.topic, place.partition): value.offset for place, value in found.items()}


ADMINS: Mapping[str, Callable[[str], Admin]] = {
    "confluent": ConfluentAdmin,
    "kafka-python": KafkaPythonAdmin,
    "aiokafka": AiokafkaAdmin,
}
