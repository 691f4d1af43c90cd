"""CPU of a transaction of Coterie and of Apache Kafka 4.3.1, in one run. `make bench-transactions` runs it.

    PYTHONPATH=tests .venv/bin/python bench/transactions.py [--json FILE] [--producers 100] [--slices 12]

A transaction has ten records on three partitions, and an offset of a group: Produce 12 and TxnOffsetCommit 5, which add
their partitions to it, and EndTxn 5. Each producer has a connection and a group with one member, and begins the next
transaction when the last is answered. Both brokers run at once and are loaded in turn, with the same number of
transactions in each slice. Kafka is warmed first. Coterie syncs to disk before it answers, Kafka does not; otherwise
both have their defaults.

A request that is answered with CONCURRENT_TRANSACTIONS is sent again after 20 ms, as clients do; `retries` counts them.
"""

from __future__ import annotations

import argparse
import os
import select
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from heartbeat import Link
from measured import Broker, Process, coterie_serve, quartiles, write_results
from transaction_frames import STEPS, TransactionFrames, answer_of

from apache_kafka import SERVER, ApacheKafka, why_not
from coterie.client.admin import Admin
from coterie.client.admin.admin_types import NewTopic
from coterie.errors import ErrorCode
from coterie.protocol.apis import find_coordinator, init_producer_id, join_group, sync_group
from coterie.protocol.messages import JoinGroup, Protocol, SyncGroup

AIM = 1.0
PARTITIONS = 12
WARM_UP_S = 30.0
PATIENCE_S = 60.0
RETRY_S = 0.02
KINDS = {"group": 0, "transaction": 1}
_LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""Answers while the topics of the coordinators are made."""


class Producer:
    """A connection with a transactional id, and a group whose one member has joined and synced."""

    def __init__(self, where: tuple[str, int], number: int) -> None:
        self.link = Link(where)
        name = f"producer-{number}"
        member = self._join(name)
        partitions = [(number + more) % PARTITIONS for more in range(3)]
        self.transaction = TransactionFrames(name, "orders", partitions, name, member, int(time.time() * 1e3))
        request = init_producer_id.Request(transactional_id=name, transaction_timeout_ms=60_000)
        self.ids = self._until_loaded(init_producer_id, request, 5)
        self.transaction.begin(self.ids.producer_id, self.ids.producer_epoch)
        self.step = self.left = 0
        self._unread = b""

    def _join(self, group_id: str) -> tuple[str, int]:
        protocols = [Protocol("range", bytes(100))]
        request = JoinGroup(None, group_id, "", None, "consumer", protocols, 1_800_000, 60_000, fresh_id="")
        joined = self._until_loaded(join_group, request, 3)
        given = [(joined.member_id, bytes(100))]
        self._until_loaded(sync_group, SyncGroup(None, group_id, joined.member_id, None, 1, given), 3)
        return joined.member_id, joined.generation_id

    def _until_loaded(self, api: Any, request: Any, version: int) -> Any:
        give_up = time.monotonic() + PATIENCE_S
        while True:
            self.link.send(api, request, version)
            answer = self.link.answer(api, version)
            if not answer.error:
                return answer
            if answer.error not in _LOADING or time.monotonic() > give_up:
                raise SystemExit(f"{api.API.name} was answered {answer.error.name}")
            time.sleep(0.1)

    def send(self) -> None:
        self.link.socket.send(self.transaction.frames[self.step])

    def received(self) -> bool | None:
        """Read an answer and take the next step. Return False if the request has to be sent again, None if waiting."""
        self._unread += self.link.socket.recv(4096)
        size = int.from_bytes(self._unread[:4], "big")
        if len(self._unread) < 4 + size:
            return None
        frame, self._unread = self._unread[4:], b""
        error, answer = answer_of(self.step, frame)
        if error is ErrorCode.CONCURRENT_TRANSACTIONS:
            return False
        if error:
            raise SystemExit(f"{STEPS[self.step][0].API.name} was answered {error.name}")
        self.step = (self.step + 1) % len(STEPS)
        if not self.step:
            self.left -= 1
            self.transaction.begin(answer.producer_id, answer.producer_epoch)
        return True


def run(producers: Sequence[Producer], each: int) -> int:
    """Let each producer end so many transactions. Return how many requests had to be sent again."""
    by_fd = {producer.link.socket.fileno(): producer for producer in producers}
    poller = select.epoll()
    for fd, producer in by_fd.items():
        producer.left = each
        producer.link.socket.settimeout(0)
        poller.register(fd, select.EPOLLIN)
        producer.send()
    waiting, retries = len(by_fd), 0
    later: list[tuple[float, Producer]] = []
    while waiting:
        wait_s = max(0.0, later[0][0] - time.monotonic()) if later else 5.0
        events = poller.poll(wait_s)
        if not events and not later:
            raise SystemExit(f"{waiting} producers were not answered for 5 s")
        for fd, _ in events:
            producer = by_fd[fd]
            goes_on = producer.received()
            if goes_on is None:
                continue
            if not goes_on:
                retries += 1
                later.append((time.monotonic() + RETRY_S, producer))
            elif producer.left:
                producer.send()
            else:
                waiting -= 1
        while later and later[0][0] <= time.monotonic():
            later.pop(0)[1].send()
    poller.close()
    return retries


def producers_of(broker: Broker, count: int) -> list[Producer]:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic("orders", PARTITIONS)])
    finder = Link(broker.where)
    for kind in KINDS.values():
        give_up = time.monotonic() + PATIENCE_S
        while True:
            finder.send(find_coordinator, find_coordinator.Request(keys=["producer-0"], key_type=kind), 1)
            if not finder.answer(find_coordinator, 1).coordinators[0].error:
                break
            if time.monotonic() > give_up:
                raise SystemExit("there is no coordinator")
            time.sleep(0.2)
    finder.socket.close()
    return [Producer(broker.where, number) for number in range(count)]


def measure(brokers: Mapping[str, Broker], producers: int, each: int, slices: int) -> dict[str, Any]:
    crowds = {name: producers_of(broker, producers) for name, broker in brokers.items()}
    until = time.monotonic() + WARM_UP_S
    while time.monotonic() < until:
        run(crowds["kafka"], each)
    run(crowds["coterie"], each)
    cpu: dict[str, list[float]] = {name: [] for name in brokers}
    seconds: dict[str, list[float]] = {name: [] for name in brokers}
    retries = dict.fromkeys(brokers, 0)
    for _ in range(slices):
        for name, broker in brokers.items():
            before, began = broker.cpu_s(), time.monotonic()
            retries[name] += run(crowds[name], each)
            seconds[name].append(time.monotonic() - began)
            cpu[name].append((broker.cpu_s() - before) / (producers * each) * 1e6)
    ratios = [ours / its for ours, its in zip(cpu["coterie"], cpu["kafka"], strict=True)]
    ratio = statistics.median(ratios)
    return {
        "producers": producers,
        "transactions_of_a_slice": producers * each,
        "slices": slices,
        "cpu_us": {name: quartiles(found, 1) for name, found in cpu.items()},
        "ratio": round(ratio, 2),
        "ratio_quartiles": quartiles(ratios, 2),
        "aim": {"ratio": AIM, "met": ratio <= AIM},
        "per_second": {name: quartiles((producers * each / s for s in found), 0) for name, found in seconds.items()},
        "retries": retries,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--producers", type=int, default=100)
    parser.add_argument("--each", type=int, default=20, help="transactions of a producer in a slice")
    parser.add_argument("--slices", type=int, default=12, help="of each broker")
    options = parser.parse_args()
    if why_not():
        raise SystemExit(why_not())
    found: dict[str, Any] = {"load_before": round(os.getloadavg()[0], 1)}
    with (
        ApacheKafka(flags=SERVER) as kafka,
        tempfile.TemporaryDirectory() as data,
        Process(coterie_serve("--data", f"{data}/data", "--set=group.initial.rebalance.delay.ms=0")) as ours,
    ):
        host, port = ours.ready()
        brokers = {"coterie": Broker(ours.pid, f"{host}:{port}"), "kafka": Broker(kafka.pid, kafka.bootstrap)}
        found |= measure(brokers, options.producers, options.each, options.slices)
    found["load_after"] = round(os.getloadavg()[0], 1)
    write_results(options.json, found)


if __name__ == "__main__":
    main()
