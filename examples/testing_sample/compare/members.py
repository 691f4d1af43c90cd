"""Members of the service with confluent-kafka that run in threads; the tests of both sides use it."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

from billing import book, with_confluent_kafka


class Member:
    """A member that runs in a thread, and waits before it bills an order, if it is to."""

    def __init__(
        self, bootstrap_servers: str, client_id: str, wait_for: threading.Event | None, **settings: Any
    ) -> None:
        self._reached = threading.Event()
        self._wait_for = wait_for
        self._book = book.Book(self._on_bill)
        self._billing = with_confluent_kafka.Billing(self._book, bootstrap_servers, client_id, **settings)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._billing.run()
        except BaseException as error:  # noqa: BLE001  raised again by `stop`
            self._error = error

    def _on_bill(self, _order: book.Order) -> None:
        self._reached.set()
        if self._wait_for is not None:
            assert self._wait_for.wait(120)

    @property
    def attempts(self) -> list[str]:
        return self._book.attempts

    def wait_reached(self) -> None:
        assert self._reached.wait(60), "no order has come"

    def let_go(self) -> None:
        self._billing.stop()
        if self._wait_for is not None:
            self._wait_for.set()

    def stop(self) -> None:
        self._billing.stop()
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error


class Members:
    """All members of a test."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str, **settings: Any) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._settings = {"group_id": group, **settings}
        self._topic = topic
        self._started: list[Member] = []

    def start(self, client_id: str, wait_for: threading.Event | None = None, **settings: Any) -> Member:
        given = {**self._settings, **settings}
        member = Member(self._bootstrap_servers, client_id, wait_for, topic=self._topic, **given)
        self._started.append(member)
        return member

    @property
    def attempts(self) -> list[str]:
        return [number for member in self._started for number in member.attempts]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for member in self._started:
            member.let_go()
        for member in self._started:
            member.stop()
