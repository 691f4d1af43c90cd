"""Three brokers of Apache Kafka 4.3.1 in one cluster, on 127.0.0.1; each can be stopped, killed and started."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from apache_kafka import ApacheKafka, free_ports

__all__ = ["KafkaCluster"]

NODES = (1, 2, 3)
PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "10",
    "transaction.state.log.num.partitions": "6",
    "auto.create.topics.enable": "false",
    "broker.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "10000",
    "leader.imbalance.check.interval.seconds": "15",
}


class _Node(ApacheKafka):
    def __init__(self, number: int, controllers: dict[int, int]) -> None:
        voters = ",".join(f"{one}@127.0.0.1:{port}" for one, port in controllers.items())
        super().__init__({**PROPERTIES, "node.id": str(number), "broker.rack": f"r{number}"}, heap="512m")
        self._controller_port, self._voters = controllers[number], voters

    def _write_properties(self) -> None:
        super()._write_properties()
        with (self.home / "server.properties").open("a") as file:
            file.write(f"controller.quorum.voters={self._voters}\n")  # the last line of a name counts

    def _wait_until_it_answers(self) -> None:
        """A node alone has no quorum, and would be waited for in vain."""

    def wait(self) -> None:
        super()._wait_until_it_answers()


class KafkaCluster:
    def __init__(self) -> None:
        controllers = dict(zip(NODES, free_ports(len(NODES)), strict=True))
        self.nodes = {number: _Node(number, controllers) for number in NODES}

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for node in self.nodes.values():
                stack.enter_context(node)
            for node in self.nodes.values():
                node.wait()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def start(self, number: int) -> None:
        self.nodes[number].start()
        self.nodes[number].wait()
