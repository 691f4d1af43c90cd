"""What two records of a group in a row let one conclude, and what they do not."""

from __future__ import annotations

from coterie import facts
from coterie.facts import Cause, Fact
from coterie.ledger import RebalanceOutcome, fold, intervals_of
from coterie.ledger.derived import ChangeKind, DerivedCause, Seen, compare, derived_facts
from coterie.protocol.messages import GroupRecord, StoredGroup, StoredMember
from coterie.protocol.subscription import Assignment, Subscription, write_assignment, write_subscription


def stored(
    generation: int, members: dict[str, list[int]], *, instance: str | None = None, wants: str = "t"
) -> StoredGroup:
    subscription = write_subscription(Subscription([wants]))
    return StoredGroup(
        "consumer",
        generation,
        "range" if members else None,
        next(iter(members), None),
        900,
        tuple(
            StoredMember(
                name, instance, "c", "/h", 1, 1, subscription, write_assignment(Assignment({"t": numbers}))
            )
            for name, numbers in members.items()
        ),
    )  # fmt: skip


def told(*values: StoredGroup | None) -> list[Fact]:
    return list(derived_facts((number * 10, GroupRecord("g", value)) for number, value in enumerate(values)))


def test_a_rebalance_is_the_difference_of_two_records() -> None:
    first, second, third = fold(
        told(stored(1, {"a": [0, 1]}), stored(2, {"a": [0], "b": [1]}), stored(3, {"b": [1, 0]}))
    )
    assert (first.cause, first.culprit, first.old_generation_id) == (Cause.NEW_MEMBER, "a", 0)
    assert (second.cause, second.culprit, second.generation_id) == (Cause.NEW_MEMBER, "b", 2)
    assert (third.cause, third.culprit, third.outcome) == (DerivedCause.MEMBER_GONE, "a", RebalanceOutcome.STABLE)
    assert [(move.partition, move.old_owner, move.new_owner) for move in third.moves] == [(("t", 0), "a", "b")]


def test_the_last_member_that_goes_ends_a_rebalance_with_an_empty_group() -> None:
    rebalances = fold(told(stored(1, {"a": [0]}), stored(2, {})))
    assert [(one.outcome, one.generation_id) for one in rebalances] == [
        (RebalanceOutcome.STABLE, 1),
        (RebalanceOutcome.EMPTY, 2),
    ]
    assert rebalances[-1].dropped == {"a": "disappeared (left, crashed or timed out: the log does not say)"}


def test_durations_and_costs_that_the_log_does_not_tell_are_unknown_and_not_0() -> None:
    for one in fold(told(stored(1, {"a": [0, 1]}), stored(2, {"b": [0, 1]}))):
        assert one.is_derived and one.ended_ms is not None
        assert (one.took_ms, one.join_ms, one.sync_ms, one.unassigned_ms) == (None, None, None, None)


def test_a_partition_that_a_whole_generation_gave_to_nobody_was_unassigned_at_least_that_long() -> None:
    """As in a cooperative rebalance: revoked in one generation, assigned in the next."""
    last = fold(told(stored(1, {"a": [0, 1]}), stored(2, {"a": [0], "b": []}), stored(3, {"a": [0], "b": [1]})))[-1]
    assert last.unassigned_ms == 10 and last.is_derived


def test_of_the_first_record_of_a_compacted_log_no_rebalance_is_made_up_and_its_owners_are_known() -> None:
    found = told(stored(5, {"a": [0]}), stored(6, {"a": [0], "b": []}))
    assert [one.old_generation_id for one in fold(found)] == [5]
    assert [(one.owner, one.began_ms, one.ended_ms) for one in intervals_of(found)] == [("a", 0, None)]


def test_a_lower_generation_is_another_life_of_the_group() -> None:
    step = compare(Seen.of(stored(8, {"a": [0]})), stored(1, {"b": [0]}))
    assert step.is_new_group and step.kind is ChangeKind.REBALANCE and (step.came, step.left) == (["b"], [])
    found = told(stored(8, {"a": [0]}), stored(1, {"b": [0]}))
    assert [(one.owner, one.ended_ms) for one in intervals_of(found)] == [("a", 10), ("b", None)]
    assert fold(found)[0].moves[0].old_owner == "", "who had it in another life counts for nothing"


def test_a_static_member_under_a_new_id_is_replaced_without_a_rebalance() -> None:
    """Rule 19: the same generation is written again."""
    found = told(stored(1, {"a": [0]}, instance="i"), stored(1, {"b": [0]}, instance="i"))
    assert found[-1] == facts.MemberReplaced(10, "g", "b", "a", "i")
    assert len(fold(found)) == 1


def test_a_static_member_that_comes_back_in_a_rebalance_is_named_as_such() -> None:
    step = compare(Seen.of(stored(1, {"a": [0]}, instance="i")), stored(2, {"b": [0]}, instance="i"))
    assert step.returned == {"b": "a"} and step.why() == "1 static member rejoined"
    assert step.cause() == (Cause.STATIC_MEMBER_REPLACED, "b")


def test_a_change_of_subscription_and_nothing_at_all_have_words_of_their_own() -> None:
    before = Seen.of(stored(1, {"a": [0]}))
    changed, nothing = compare(before, stored(2, {"a": [0]}, wants="u")), compare(before, stored(2, {"a": [0]}))
    assert changed.cause() == (Cause.PROTOCOLS_CHANGED, "a") and changed.why() == "1 member changed its subscription"
    assert nothing.cause() == (DerivedCause.UNKNOWN, "")
    assert nothing.why() == "unknown: the log shows no change of members"


def test_generations_that_were_not_logged_are_counted_and_not_explained() -> None:
    before = Seen.of(stored(1, {"a": [0]}))
    assert compare(before, stored(3, {"a": [0]})).why() == "unknown: 1 generation was not logged"
    assert compare(before, stored(5, {"a": [0]})).why() == "unknown: 3 generations were not logged"
    joined = compare(before, stored(4, {"a": [0], "b": []}))
    assert joined.why() == "1 member joined; 2 generations were not logged"
    unknown, known = fold(told(stored(1, {"a": [0]}), stored(3, {"a": [0]}), stored(5, {"a": [0], "b": []})))[1:]
    assert (unknown.cause, unknown.reason) == (DerivedCause.UNKNOWN, "1 generation was not logged")
    assert (known.cause, known.culprit, known.reason) == (Cause.NEW_MEMBER, "b", "1 generation was not logged")


def test_a_tombstone_ends_everything() -> None:
    found = told(stored(1, {"a": [0]}), None, stored(1, {"a": [0]}))
    assert [one.ended_ms for one in intervals_of(found)] == [10, None]
    assert [type(one) for one in found].count(facts.GroupDied) == 1


def test_what_is_remembered_survives_json() -> None:
    seen = Seen.of(stored(3, {"a": [0]}, instance="i"))
    assert Seen.from_json(seen.to_json()) == seen
