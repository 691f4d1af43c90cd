"""What the tests share: orders, members that run in threads, and a gate."""

from __future__ import annotations

import json
import threading
from typing import Any

from billing.book import DEAD_LETTERS, GROUP, ORDERS, Book, Order
from billing.services import service
from coterie.testing import KafkaBroker

QUICK: dict[str, dict[str, Any]] = {
    "confluent-kafka": {
        "heartbeat_interval_ms": 20,
        "statistics_interval_ms": 10,  # wakes the thread of librdkafka that sends heartbeats: else every 500 ms
        "fetch_wait_max_ms": 20,
        "retry_backoff_ms": 10,
        "reconnect_backoff_ms": 10,
    },
    "kafka-python": {
        "heartbeat_interval_ms": 20,
        "fetch_max_wait_ms": 20,
        "retry_backoff_ms": 10,
        "reconnect_backoff_max_ms": 200,
    },
    "aiokafka": {"heartbeat_interval_ms": 20, "fetch_max_wait_ms": 20, "retry_backoff_ms": 10},
}
"""Settings of members in tests: a member hears of a rebalance by its next heartbeat, and waits before a retry."""

BOTH = ["orders-0", "orders-1"]


class Gate:
    """Holds up what a member does with an order, until the test opens it."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._open = threading.Event()

    def __call__(self, _order: Order) -> None:
        self._reached.set()
        assert self._open.wait(60), "the gate stays closed"

    def wait_reached(self) -> None:
        assert self._reached.wait(60), "no order has come to the gate"

    def open(self) -> None:
        self._open.set()


class Running:
    """A member that runs in a thread."""

    def __init__(self, billing: Any, book: Book) -> None:
        self._billing = billing
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.book = book

    def _run(self) -> None:
        try:
            self._billing.run()
        except BaseException as error:  # noqa: BLE001  raised again by `stop`
            self._error = error

    def ask_to_stop(self) -> None:
        self._billing.stop()

    def stop(self) -> None:
        """Stop it in order, and raise what it failed with, if it did."""
        self.ask_to_stop()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the member does not stop"
        if self._error is not None:
            raise self._error


class Shop:
    """The orders of a test, and the members that bill them."""

    def __init__(self, broker: KafkaBroker, library: str) -> None:
        self.broker = broker
        self.group = broker.group(GROUP)
        self.orders = broker.create_topic(ORDERS, partitions=2)
        self.dead_letters = broker.create_topic(DEAD_LETTERS)
        self.library = library
        self._members: list[Running] = []

    def order(self, *numbers: str, partition: int = 0) -> None:
        """Write orders to a partition."""
        self.broker.produce(ORDERS, [json.dumps({"number": one, "cents": 100}) for one in numbers], partition=partition)

    def start(self, client_id: str = "a", on_bill: Gate | None = None, **settings: Any) -> Running:
        """Start a member."""
        book = Book(on_bill)
        billing = service(self.library)
        member = Running(
            billing(book, self.broker.bootstrap_servers, client_id, **QUICK[self.library], **settings), book
        )
        self._members.append(member)
        return member

    @property
    def attempts(self) -> list[str]:
        """The numbers of all orders that members have begun to bill."""
        return [number for member in self._members for number in member.book.attempts]

    def close(self) -> None:
        for member in self._members:
            member.ask_to_stop()
        for member in self._members:
            member.stop()
