"""Static members: a restart is no rebalance, as long as the member is back in time."""

from __future__ import annotations

from shop import BOTH, Shop


def test_a_restart_is_no_rebalance(shop: Shop) -> None:
    first, _ = (shop.start(name, group_instance_id=name) for name in ("a", "b"))
    before = shop.group.wait_running(members=2)
    partition = int(before.assignment["a"][0][-1])
    with shop.group.assert_no_rebalance():
        first.stop()
        shop.order("1", partition=partition)
        shop.broker.clock.advance(9)
        second = shop.start("a", group_instance_id="a")
        shop.group.wait_committed("orders", partition, 1)
    assert second.book.attempts == ["1"]
    assert shop.group.assignment == before.assignment


def test_a_member_that_does_not_come_back_expires(shop: Shop) -> None:
    a, b = (shop.start(name, group_instance_id=name) for name in ("a", "b"))
    partition = int(shop.group.wait_running(members=2).assignment["a"][0][-1])
    a.stop()
    shop.order("1", partition=partition)
    assert len(shop.group.members) == 2
    shop.broker.clock.silence("a")
    shop.group.wait_assigned({"b": BOTH})
    shop.group.wait_committed("orders", partition, 1)
    assert b.book.attempts == ["1"]
