"""Apache Kafka 4.3.1 with the settings of the cases."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from apache_kafka import ApacheKafka
from conformance.consumer_groups.playing import Broker
from raw_kafka import RawConnection

PROPERTIES = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "offsets.topic.num.partitions": "1",
}
_PATIENCE_SECONDS = 60
_SILENCE_SECONDS = 5
_OFTEN = 30


class KafkaBroker(Broker):
    def __init__(self, kafka: ApacheKafka) -> None:
        super().__init__()
        self._kafka = kafka
        self._connection = RawConnection(kafka.bootstrap)
        self._open: dict[str, RawConnection] = {}
        self.prepare()
        self._until_loaded()

    def ask(self, api: str, version: int, values: Mapping[str, Any]) -> Any:
        return self._connection.ask(api, version, **values)

    def until_there(self, api: str, version: int, values: Mapping[str, Any], entries: str) -> Any:
        """Ask until no entry has an error: a broker that has just started needs a while."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            answer = self.ask(api, version, values)
            if all(entry.error_code.name == "none" for entry in getattr(answer, entries)):
                return answer
            assert time.monotonic() < until, answer
            time.sleep(0.1)

    def _until_loaded(self) -> None:
        """Wait until the coordinator has answered for a while: it may be loaded twice after a crash."""
        until = time.monotonic() + _PATIENCE_SECONDS
        values = {"group_ids": ("g",), "include_authorized_operations": False}
        answered = 0
        while answered < _OFTEN:
            found = self.ask("consumer_group_describe", 1, values).groups[0].error_code.name
            answered = answered + 1 if found == "group_id_not_found" else 0
            assert time.monotonic() < until, "the coordinator is not loaded"
            time.sleep(0.1)

    def send(self, whose: str, api: str, version: int, values: Mapping[str, Any]) -> None:
        if whose not in self._open:
            self._open[whose] = RawConnection(self._kafka.bootstrap, whose.partition("#")[0], _SILENCE_SECONDS)
        self._open[whose].send(api, version, **values)

    def receive(self, whose: str) -> Any:
        try:
            return self._open[whose].receive()
        except TimeoutError:
            return None

    def ended(self) -> None:
        """Close the connections of a case that is over."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def wait(self, ms: int) -> None:
        time.sleep(ms / 1000)

    def restart(self) -> None:
        self.ended()
        self._connection.close()
        self._kafka.kill()
        self._kafka.start()
        self._connection = RawConnection(self._kafka.bootstrap)
        self.until_there("find_coordinator", 6, {"key_type": 0, "coordinator_keys": ("g",)}, "coordinators")
        self._until_loaded()
