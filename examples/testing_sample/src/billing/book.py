"""What the service does with an order, whichever client library reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

ORDERS = "orders"
DEAD_LETTERS = "orders.dead"
GROUP = "billing"


class PoisonRecordError(ValueError):
    """A record that is not an order. To read it again would not help."""


@dataclass(frozen=True)
class Order:
    """An order of a customer."""

    number: str
    cents: int


def order_of(value: bytes | None) -> Order:
    """Return the order that a record has as its value.

    Raises:
        PoisonRecordError: The record is not an order.
    """
    try:
        read = json.loads(value or b"")
        return Order(str(read["number"]), int(read["cents"]))
    except (ValueError, KeyError, TypeError) as problem:
        raise PoisonRecordError(f"not an order: {value!r} ({problem})") from problem


class Book:
    """The bills. An order is billed once, however often its record is read.

    Args:
        on_bill: Called with each order before it is billed; tests wait and fail there.
    """

    def __init__(self, on_bill: Callable[[Order], None] | None = None) -> None:
        self._on_bill = on_bill
        self.attempts: list[str] = []
        """The numbers of orders in the order of their records, those that were read again too."""
        self.bills: dict[str, int] = {}
        """The cents of each order that was billed."""

    def bill(self, value: bytes | None) -> None:
        """Bill the order of a record.

        Raises:
            PoisonRecordError: The record is not an order.
        """
        order = order_of(value)
        self.attempts.append(order.number)
        if self._on_bill is not None:
            self._on_bill(order)
        self.bills.setdefault(order.number, order.cents)
