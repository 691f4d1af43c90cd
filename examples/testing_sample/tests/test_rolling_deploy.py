"""Members are replaced one after the other, while orders come in."""

from __future__ import annotations

from shop import Shop


def test_each_order_is_billed_once_while_members_are_replaced(shop: Shop) -> None:
    old = [shop.start(name) for name in ("a1", "b1")]
    shop.group.wait_running(members=2)
    for number, name in enumerate(("a2", "b2")):
        for partition in (0, 1):
            shop.order(f"{partition}-{number}", partition=partition)
        old[number].stop()
        shop.group.wait_running(members=1)
        shop.start(name)
        shop.group.wait_running(members=2)
    for partition in (0, 1):
        shop.group.wait_committed("orders", partition, 2)
    assert sorted(shop.attempts) == ["0-0", "0-1", "1-0", "1-1"]


def test_static_members_are_replaced_without_a_rebalance(shop: Shop) -> None:
    old = [shop.start(name, group_instance_id=name) for name in ("a", "b")]
    before = shop.group.wait_running(members=2)
    with shop.group.assert_no_rebalance():
        for member, name in zip(old, ("a", "b"), strict=True):
            partition = int(before.assignment[name][0][-1])
            member.stop()
            shop.order(f"for {name}", partition=partition)
            shop.start(name, group_instance_id=name)
            shop.group.wait_committed("orders", partition, 1)
    assert sorted(shop.attempts) == ["for a", "for b"]
