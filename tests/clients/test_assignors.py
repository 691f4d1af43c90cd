"""Three members of one library on each assignor it has: they share, one leaves, one comes back."""

from __future__ import annotations

import pytest

from apache_kafka import needs_apache_kafka
from clients.harness import Crew
from clients.laws import check_laws
from clients.producing import Topics

pytestmark = pytest.mark.real_time

SUPPORTED = {
    "confluent": ["range", "roundrobin", "cooperative-sticky"],
    "kafka-python": ["range", "roundrobin", "sticky", "cooperative-sticky"],
    "aiokafka": ["range", "roundrobin", "sticky"],
    "java": ["range", "roundrobin", "sticky", "cooperative-sticky"],
}


@pytest.mark.parametrize(
    ("library", "assignor"),
    [
        pytest.param(library, assignor, marks=needs_apache_kafka if library == "java" else ())
        for library, assignors in SUPPORTED.items()
        for assignor in assignors
    ],
)
def test_three_members_share_and_go_on_when_one_leaves(
    library: str, assignor: str, crew: Crew, topics: Topics, name: str
) -> None:
    places = topics.create(name, 6)
    topics.fill(places)
    members = [crew.start(library, assignor=assignor, topics=[name]) for _ in range(3)]
    crew.wait_until_settled(places)
    assert [len(member.owned) for member in members] == [2, 2, 2]
    topics.fill(places)
    crew.wait_until_committed(topics.ends(places))

    members[1].leave()
    topics.fill(places)
    crew.wait_until_settled(places)
    assert [len(member.owned) for member in crew.present] == [3, 3]
    topics.fill(places)  # a commit that fell into the rebalance failed; with the next record it is made good
    crew.wait_until_committed(topics.ends(places))

    (left,) = crew.broker.facts.of(name, "MemberLeft")
    assert crew.broker.facts.member_ids(name)[left["member_id"]] == members[1].client_id
    protocols = {one["protocol_name"] for one in crew.broker.facts.of(name, "JoinPhaseCompleted")}
    assert protocols == {assignor}
    assert not crew.broker.facts.of(name, "MemberExpired")
    check_laws(crew, topics.of(places))
