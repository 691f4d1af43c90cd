"""The worked examples of docs/semantics.md, section 14, and the smallest groups in which Kafka misses the optimum."""

from __future__ import annotations

import pytest

from coterie.assignors import Assignment, Member, Topic, assignor

Readable = dict[str, str]


def group(subscriptions: dict[str, str], owned: dict[str, str] | None = None) -> list[Member]:
    return [
        Member(name, topics.split(), owned=parts((owned or {}).get(name, "")), generation=1)
        for name, topics in subscriptions.items()
    ]


def parts(text: str) -> dict[str, list[int]]:
    """`t0p1 t0p2` is partition 1 and 2 of topic t0."""
    owned: dict[str, list[int]] = {}
    for word in text.split():
        topic, _, partition = word.partition("p")
        owned.setdefault(topic, []).append(int(partition))
    return owned


def read(assignment: Assignment) -> Readable:
    return {
        member: " ".join(sorted(f"{topic}p{p}" for topic, ids in shares.items() for p in ids))
        for member, shares in assignment.items()
    }


def ask(name: str, sizes: dict[str, int], members: list[Member]) -> Readable:
    return read(assignor(name).assign(members, {topic: Topic(size) for topic, size in sizes.items()}))


NESTED = {"C0": "t0", "C1": "t0 t1", "C2": "t0 t1 t2"}
NESTED_SIZES = {"t0": 1, "t1": 2, "t2": 3}


def test_range_deals_consecutive_shares_of_each_topic() -> None:
    members = group({"C0": "t0 t1", "C1": "t0 t1"})
    assert ask("range", {"t0": 4, "t1": 4}, members) == {"C0": "t0p0 t0p1 t1p0 t1p1", "C1": "t0p2 t0p3 t1p2 t1p3"}
    assert ask("range", {"t0": 3, "t1": 3}, members) == {"C0": "t0p0 t0p1 t1p0 t1p1", "C1": "t0p2 t1p2"}


def test_range_gives_the_extra_partition_of_every_topic_to_the_first_readers() -> None:
    expected = {"C0": "t0p0", "C1": "t1p0", "C2": "t1p1 t2p0 t2p1 t2p2"}
    assert ask("range", NESTED_SIZES, group(NESTED)) == expected


def test_roundrobin_deals_all_partitions_in_turn() -> None:
    members = group({"C0": "t0 t1", "C1": "t0 t1"})
    assert ask("roundrobin", {"t0": 3, "t1": 3}, members) == {"C0": "t0p0 t0p2 t1p1", "C1": "t0p1 t1p0 t1p2"}


def test_roundrobin_passes_over_who_does_not_subscribe() -> None:
    expected = {"C0": "t0p0", "C1": "t1p0", "C2": "t1p1 t2p0 t2p1 t2p2"}
    assert ask("roundrobin", NESTED_SIZES, group(NESTED)) == expected


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_the_sticky_kinds_balance_where_roundrobin_does_not(name: str) -> None:
    assert ask(name, NESTED_SIZES, group(NESTED)) == {"C0": "t0p0", "C1": "t1p0 t1p1", "C2": "t2p0 t2p1 t2p2"}


FOUR = {"t0": 2, "t1": 2, "t2": 2, "t3": 2}
ALL_FOUR = "t0 t1 t2 t3"


def test_sticky_after_a_death_moves_nothing_of_the_others() -> None:
    """As Kafka 4.3.1 does it; the older algorithm sent the dead member's partitions elsewhere."""
    before = ask("sticky", FOUR, group({"C0": ALL_FOUR, "C1": ALL_FOUR, "C2": ALL_FOUR}))
    assert before == {"C0": "t0p0 t1p1 t3p0", "C1": "t0p1 t2p0 t3p1", "C2": "t1p0 t2p1"}
    after = ask("sticky", FOUR, group({"C0": ALL_FOUR, "C2": ALL_FOUR}, before))
    assert after == {"C0": "t0p0 t0p1 t1p1 t3p0", "C2": "t1p0 t2p0 t2p1 t3p1"}


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_groups_share_a_topic_among_their_own_members_only(name: str) -> None:
    """One topic of 4: one each for four members, two each for two; 100 partitions and 20 members: 5 each."""
    for members, partitions, each in ((4, 4, 1), (2, 4, 2), (20, 100, 5)):
        answer = ask(name, {"t": partitions}, group({f"m{number:02}": "t" for number in range(members)}))
        assert {len(words.split()) for words in answer.values()} == {each}


def loads(answer: Readable) -> list[int]:
    return [len(words.split()) for words in answer.values()]


def moved(before: dict[str, str], answer: Readable) -> int:
    return sum(len(set(before.get(member, "").split()) - set(words.split())) for member, words in answer.items())


def test_a_chain_of_two_moves_is_found() -> None:
    """Kafka changes nothing here and stays at loads of 0, 2 and 1."""
    owned = {"c1": "t1p0 t1p1", "c2": "t0p0"}
    answer = ask("sticky", {"t0": 1, "t1": 2}, group({"c0": "t0", "c1": "t1", "c2": "t0 t1"}, owned))
    assert loads(answer) == [1, 1, 1]
    assert moved(owned, answer) == 2


def test_from_scratch_the_balance_is_optimal() -> None:
    """Kafka's sticky has loads of 1, 3, 2 in the first group; its server-side uniform 1, 3, 2, 2 in the second."""
    assert loads(ask("sticky", {"t0": 2, "t1": 4}, group({"c0": "t0", "c1": "t1", "c2": "t0 t1"}))) == [2, 2, 2]
    four = group({"c0": "t0", "c1": "t1", "c2": "t0 t1", "c3": "t0 t1"})
    assert loads(ask("sticky", {"t0": 4, "t1": 4}, four)) == [2, 2, 2, 2]


def test_one_move_is_made_where_kafka_makes_two() -> None:
    owned = {"c0": "t0p0", "c2": "t0p1 t1p0 t1p1"}
    answer = ask("sticky", {"t0": 2, "t1": 2}, group({"c0": "t0", "c1": "t1", "c2": "t0 t1"}, owned))
    assert sorted(loads(answer)) == [1, 1, 2]
    assert moved(owned, answer) == 1


def test_the_short_way_is_taken_where_a_long_one_balances_too() -> None:
    owned = {"c1": "t1p0 t1p1", "c3": "t0p0"}
    members = group({"c0": "t0", "c1": "t1", "c2": "t1", "c3": "t0 t1"}, owned)
    assert moved(owned, ask("sticky", {"t0": 1, "t1": 2}, members)) == 1
