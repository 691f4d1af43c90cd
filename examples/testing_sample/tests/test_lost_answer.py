"""A request has been done, and its answer is lost: the client sends it again."""

from __future__ import annotations

from shop import Shop


def test_the_lost_answer_of_a_commit_is_no_second_bill(shop: Shop) -> None:
    shop.order("1")
    with shop.broker.faults.on("OffsetCommit", group="billing").lose_answer(times=1) as lost:
        shop.start()
        lost.wait_hit()
        shop.group.wait_committed("orders", 0, 1)
        shop.order("2")
        shop.group.wait_committed("orders", 0, 2)
    shop.orders.assert_processed_once(record.value for record in shop.orders.records)
    assert shop.attempts == ["1", "2"]


def test_the_lost_answer_of_a_dead_letter_is_no_second_letter(shop: Shop) -> None:
    shop.broker.produce("orders", ["no order"])
    with shop.broker.faults.on("Produce", topic="orders.dead").lose_answer(times=1) as lost:
        shop.start()
        lost.wait_hit()
        shop.group.wait_committed("orders", 0, 1)
    assert len(shop.broker.requests("Produce")) >= 2
    assert [record.value for record in shop.dead_letters.records] == [b"no order"]
