"""Unmodified clients in a consumer group of KIP-848 on our broker: librdkafka and Apache's Java consumer."""

from __future__ import annotations

import pytest

from apache_kafka import needs_apache_kafka
from clients.harness import Crew, wait_until
from clients.laws import check_laws
from clients.producing import Topics

pytestmark = pytest.mark.real_time

JAVA = pytest.param("java", marks=needs_apache_kafka)


@pytest.mark.parametrize("library", ["confluent", JAVA])
def test_members_come_go_and_are_killed(library: str, crew: Crew, topics: Topics, name: str) -> None:
    """K10, K13: each change ends with all members agreeing with the broker, and no committed record is read again."""
    places = topics.create(name, 6)
    topics.fill(places)
    told = {"assignor": "uniform", "topics": [name], "protocol": "consumer"}
    first, second = crew.start(library, **told), crew.start(library, **told)
    crew.wait_until_settled(places)
    third = crew.start(library, **told)
    crew.wait_until_settled(places)
    assert [len(member.owned) for member in (first, second, third)] == [2, 2, 2]
    crew.wait_until_committed(topics.ends(places))
    second.leave()
    topics.fill(places)
    crew.wait_until_settled(places)
    third.kill()
    topics.fill(places)
    crew.wait_until_settled(places)
    crew.wait_until_committed(topics.ends(places))
    assert first.owned == places
    facts = crew.broker.facts
    assert [one["cause"] for one in facts.of(name, "RebalanceStarted")][-2:] == ["member left", "session expired"]
    check_laws(crew, topics.of(places))


def test_a_pattern_of_librdkafka_is_matched_by_the_broker(crew: Crew, topics: Topics, name: str) -> None:
    """K7: librdkafka sends a name that begins with ^ as a regular expression."""
    places = topics.create(f"{name}-one", 2) | topics.create(f"{name}-two", 1)
    topics.fill(places)
    member = crew.start("confluent", assignor="range", pattern=f"{name}-.*", protocol="consumer")
    crew.wait_until_settled(places)
    crew.wait_until_committed(topics.ends(places))
    assert member.owned == places


@pytest.mark.parametrize(
    ("classic", "consumer"),
    [
        ("kafka-python", "confluent"),
        ("confluent", "coterie"),
        ("coterie", "confluent"),
        pytest.param("confluent", "java", marks=needs_apache_kafka),
    ],
)
def test_a_classic_group_is_upgraded_and_downgraded_while_records_flow(
    classic: str, consumer: str, crew: Crew, topics: Topics, name: str
) -> None:
    """K24 to K26."""
    upgrade_and_downgrade(classic, consumer, crew, topics, name)


def upgrade_and_downgrade(
    classic: str, consumer: str, crew: Crew, topics: Topics, name: str, assignor: str = "range"
) -> None:
    """Members of the other protocol take over one by one, and back again; nothing is lost or shared."""
    places = topics.create(name, 6)
    topics.fill(places)
    old = {"assignor": assignor, "topics": [name]}
    new = {"assignor": "uniform", "topics": [name], "protocol": "consumer"}
    first, second = crew.start(classic, **old), crew.start(classic, **old)
    crew.wait_until_settled(places)
    topics.fill(places)
    third = crew.start(consumer, **new)
    crew.wait_until_settled(places)
    topics.fill(places)
    first.leave()
    fourth = crew.start(consumer, **new)
    crew.wait_until_settled(places)
    topics.fill(places)
    second.leave()
    crew.wait_until_settled(places)
    topics.fill(places)
    crew.wait_until_committed(topics.ends(places))

    crew.start(classic, **old)
    crew.wait_until_settled(places)
    topics.fill(places)
    third.leave()
    crew.wait_until_settled(places)
    fourth.leave()
    topics.fill(places)
    crew.wait_until_settled(places)
    crew.wait_until_committed(topics.ends(places))
    check_laws(crew, topics.of(places))


@pytest.mark.parametrize("library", ["confluent"])
def test_static_members_take_over_from_those_of_the_other_protocol(
    library: str, crew: Crew, topics: Topics, name: str
) -> None:
    """K14, K25, K26: by their instance ids, one after the other, and back again."""
    places = topics.create(name, 4)
    topics.fill(places)
    told = {"topics": [name], "session_timeout_ms": 60_000}
    ways = [{"assignor": "range"}, {"assignor": "uniform", "protocol": "consumer"}]
    members = {instance: crew.start(library, instance_id=instance, **ways[0], **told) for instance in ("i", "j")}
    crew.wait_until_settled(places)
    for way in (ways[1], ways[0]):
        for instance, member in list(members.items()):
            member.leave()
            topics.fill(places)
            members[instance] = crew.start(library, instance_id=instance, **way, **told)
            crew.wait_until_settled(places)
    crew.wait_until_committed(topics.ends(places))
    check_laws(crew, topics.of(places))


@pytest.mark.parametrize("library", ["confluent", "coterie"])
def test_a_second_process_with_the_same_instance_id_is_told(
    library: str, crew: Crew, topics: Topics, name: str
) -> None:
    """K14: it cannot join while the first lives."""
    places = topics.create(name, 2)
    told = {"topics": [name], "protocol": "consumer", "assignor": ""}
    first = crew.start(library, instance_id="same", **told)
    crew.wait_until(lambda: first.read().owned == places, "the first has all")
    crew.start(library, instance_id="same", **told)
    facts = crew.broker.facts
    wait_until(lambda: bool(facts.of(name, "InstanceIdFenced")), "the second is refused", crew.said)
    (joined,) = facts.of(name, "MemberJoined")
    told_of = facts.of(name, "InstanceIdFenced")[0]
    assert (told_of["holder_id"], told_of["instance_id"]) == (joined["member_id"], "same")
    assert told_of["error"] == "UNRELEASED_INSTANCE_ID" and told_of["member_id"] != joined["member_id"]
