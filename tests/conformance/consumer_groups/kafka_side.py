"""Apache Kafka 4.3.1 with the settings of the cases."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from conformance.consumer_groups.playing import Broker
from raw_kafka import RawConnection

PROPERTIES = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "offsets.topic.num.partitions": "1",
}
_PATIENCE_SECONDS = 60


class KafkaBroker(Broker):
    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._connection = RawConnection(bootstrap)
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
        until = time.monotonic() + _PATIENCE_SECONDS
        values = {"group_ids": ("g",), "include_authorized_operations": False}
        while self.ask("consumer_group_describe", 1, values).groups[0].error_code.name != "group_id_not_found":
            assert time.monotonic() < until, "the coordinator is not loaded"
            time.sleep(0.1)

    def wait(self, ms: int) -> None:
        time.sleep(ms / 1000)
