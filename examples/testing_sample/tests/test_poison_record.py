"""A record that is not an order goes to the dead letters, and the next one is billed."""

from __future__ import annotations

from shop import Shop


def test_a_poison_record_does_not_stop_the_others(shop: Shop) -> None:
    shop.order("1")
    shop.broker.produce("orders", [b"\x00 no order"])
    shop.order("2")
    shop.start()
    shop.group.wait_committed("orders", 0, 3)
    assert shop.attempts == ["1", "2"]
    (letter,) = shop.dead_letters.records
    assert letter.value == b"\x00 no order"
    assert b"not an order" in (dict(letter.headers)["problem"] or b"")


def test_a_poison_record_is_not_committed_before_its_dead_letter(shop: Shop) -> None:
    shop.broker.produce("orders", [b"no order"])
    with shop.broker.faults.on("Produce", topic="orders.dead").hold() as held:
        shop.start()
        held.wait_hit()
        assert shop.group.committed == {}
    shop.group.wait_committed("orders", 0, 1)
    assert len(shop.dead_letters.records) == 1
