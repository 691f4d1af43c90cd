"""The coordinator of the group moves to another node."""

from __future__ import annotations

import pytest

from shop import Shop

pytestmark = pytest.mark.kafka(nodes=2)


def test_a_member_follows_its_coordinator(shop: Shop) -> None:
    shop.order("1")
    shop.start()
    shop.group.wait_committed("orders", 0, 1)
    other = 3 - shop.group.coordinator
    with shop.group.assert_no_rebalance(), shop.broker.faults.move_coordinator("billing", other):
        shop.order("2")
        shop.group.wait_committed("orders", 0, 2)
        assert shop.broker.requests("OffsetCommit")[-1].node == other
    assert shop.attempts == ["1", "2"]


def test_a_member_goes_on_while_a_node_is_down(shop: Shop) -> None:
    shop.order("1")
    shop.start()
    shop.group.wait_committed("orders", 0, 1)
    with shop.broker.faults.stop_node(shop.group.coordinator):
        shop.order("2")
        shop.group.wait_committed("orders", 0, 2)
    assert shop.attempts == ["1", "2"]
