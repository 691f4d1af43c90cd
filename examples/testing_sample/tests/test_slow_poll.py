"""A member takes long for an order."""

from __future__ import annotations

from shop import BOTH, Gate, Shop


def test_a_member_that_does_not_poll_in_time_loses_its_partitions(shop: Shop, gate: Gate) -> None:
    slow = shop.start("slow", on_bill=gate)
    shop.order("1")
    gate.wait_reached()
    quick = shop.start("quick")
    shop.group.wait_members(2)
    shop.broker.clock.advance(300)
    shop.group.wait_assigned({"quick": BOTH})
    shop.group.wait_committed("orders", 0, 1)
    assert slow.book.attempts == quick.book.attempts == ["1"]
    gate.open()
    shop.group.wait_running(members=2)
    assert shop.group.committed == {"orders-0": 1}


def test_an_order_may_take_an_hour_if_nobody_joins(shop: Shop, gate: Gate) -> None:
    shop.start(on_bill=gate)
    shop.order("1")
    gate.wait_reached()
    with shop.group.assert_no_rebalance():
        shop.broker.clock.advance(3600)
        gate.open()
        shop.group.wait_committed("orders", 0, 1)
    assert shop.attempts == ["1"]
