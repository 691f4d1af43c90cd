"""A commit does not arrive, or is refused."""

from __future__ import annotations

from shop import Shop


def test_a_commit_that_is_lost_on_its_way_is_sent_again(shop: Shop) -> None:
    shop.order("1")
    with shop.broker.faults.on("OffsetCommit", group="billing").drop_connection(times=1) as lost:
        shop.start()
        lost.wait_hit()
        shop.group.wait_committed("orders", 0, 1)
    assert shop.attempts == ["1"]


def test_a_commit_waits_until_the_coordinator_has_loaded(shop: Shop) -> None:
    shop.order("1")
    with shop.broker.faults.on("OffsetCommit", group="billing").answer("COORDINATOR_LOAD_IN_PROGRESS", times=3) as busy:
        shop.start()
        shop.group.wait_committed("orders", 0, 1)
    assert len(busy.hits) == 3
    assert shop.attempts == ["1"]


def test_a_member_that_has_expired_reads_the_order_again(shop: Shop) -> None:
    """Its commit is under way when it expires, so that no heartbeat tells the client before."""
    shop.order("1")
    with shop.broker.faults.on("OffsetCommit", group="billing").hold(times=1) as held:
        a = shop.start()
        held.wait_hit()
        shop.broker.clock.silence("a")
    shop.group.wait_committed("orders", 0, 1)
    assert shop.attempts == ["1", "1"]
    assert a.book.bills == {"1": 100}
    refused = shop.broker.requests("OffsetCommit")[0]
    assert refused.error in {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"}
