"""`lag-aware` spreads lag, keeps owners, and gives out every partition once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coterie.assignors import LagAware, Member, Topic
from coterie.coordinator.consumer.target_assignment import assignment_error

LAGS = st.lists(st.none() | st.integers(0, 10_000), max_size=12)


@given(st.lists(st.sets(st.sampled_from("tuv")), min_size=1, max_size=6), LAGS, LAGS)
def test_every_partition_of_a_subscribed_topic_has_one_member(
    subscriptions: list[set[str]], t: list[int | None], u: list[int | None]
) -> None:
    members = [Member(f"m{at}", tuple(sorted(topics))) for at, topics in enumerate(subscriptions)]
    read = {topic for topics in subscriptions for topic in topics}
    topics = {"t": Topic(len(t), None, t), "u": Topic(len(u), None, u)}
    subscribed = {name: topic for name, topic in topics.items() if name in read}
    shares = LagAware().assign(members, subscribed)
    assert assignment_error(members, subscribed, shares) == ""
    owners = [Member(member.id, member.topics, owned=shares[member.id]) for member in members]
    assert assignment_error(owners, subscribed, LagAware().assign(owners, subscribed)) == ""


def test_who_reads_what_is_late_reads_little_else() -> None:
    lag = [1_000, 0, 0, 0, 0, 0]
    shares = LagAware().assign([Member("a", ["t"]), Member("b", ["t"])], {"t": Topic(6, None, lag)})
    assert shares == {"a": {"t": [0]}, "b": {"t": [1, 2, 3, 4, 5]}}


def test_without_lag_members_get_equal_numbers_and_keep_what_they_have() -> None:
    owned = {"a": {"t": [3, 4, 5]}, "b": {"t": [0, 1, 2]}, "c": {}}
    members = [Member(name, ["t"], owned=owned[name]) for name in "abc"]
    shares = LagAware().assign(members, {"t": Topic(6)})
    assert [len(shares[one]["t"]) for one in "abc"] == [2, 2, 2]
    assert set(shares["a"]["t"]) < {3, 4, 5} and set(shares["b"]["t"]) < {0, 1, 2}


def test_a_partition_without_a_commit_counts_as_the_average() -> None:
    """200 here: so it is read together with the smaller of the two others."""
    shares = LagAware().assign([Member("a", ["t"]), Member("b", ["t"])], {"t": Topic(3, None, [300, None, 100])})
    assert shares == {"a": {"t": [0]}, "b": {"t": [1, 2]}}


def test_who_keeps_its_share_keeps_its_partitions() -> None:
    """Lag that is a little uneven moves nothing."""
    owned = {"a": {"t": [0, 3]}, "b": {"t": [1, 2]}}
    members = [Member(name, ["t"], owned=owned[name]) for name in "ab"]
    assert LagAware().assign(members, {"t": Topic(4, None, [50, 52, 51, 55])}) == owned
