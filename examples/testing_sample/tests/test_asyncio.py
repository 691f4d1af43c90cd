"""A test with asyncio: the consumer of aiokafka and the waits share the event loop."""

from __future__ import annotations

import asyncio
import json

from billing.book import Book
from billing.with_aiokafka import Billing
from coterie.testing import KafkaBroker
from shop import QUICK


def test_orders_are_billed_in_the_event_loop_of_the_test() -> None:
    async def bill() -> None:
        async with KafkaBroker(topics={"orders": 2}) as broker:
            book = Book()
            billing = Billing(book, broker.bootstrap_servers, "a", **QUICK["aiokafka"])
            running = asyncio.create_task(billing.bill_orders())
            await broker.group("billing").wait_assigned_async({"a": ["orders-0", "orders-1"]})
            broker.produce("orders", [json.dumps({"number": "1", "cents": 100})])
            await broker.group("billing").wait_committed_async("orders", 0, 1)
            billing.stop()
            await running
            assert book.bills == {"1": 100}

    asyncio.run(bill())
