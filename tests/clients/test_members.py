"""What happens to members in life, told by each library: killed, restarted, static, more partitions, more topics."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

from apache_kafka import needs_apache_kafka
from clients.harness import Crew, Place, wait_until
from clients.laws import check_laws
from clients.producing import Topics

pytestmark = pytest.mark.real_time

CLI = [sys.executable, "-m", "coterie"]
JAVA = pytest.param("java", marks=needs_apache_kafka)
every_library = pytest.mark.parametrize("library", ["confluent", "kafka-python", "aiokafka", "coterie", JAVA])


@every_library
def test_a_killed_member_is_expired_and_its_partitions_are_read_on(
    library: str, crew: Crew, topics: Topics, name: str
) -> None:
    """Rule 14: SIGKILL says no goodbye, so the session has to run out."""
    places = topics.create(name, 4)
    topics.fill(places)
    told = {"assignor": "range", "topics": [name], "session_timeout_ms": 2_500}
    victim, survivor = crew.start(library, **told), crew.start(library, **told)
    crew.wait_until_settled(places)
    victim.kill()
    topics.fill(places)
    crew.wait_until_settled(places)
    crew.wait_until_committed(topics.ends(places))

    (expired,) = crew.broker.facts.of(name, "MemberExpired")
    assert crew.broker.facts.member_ids(name)[expired["member_id"]] == victim.client_id
    assert survivor.owned == places
    check_laws(crew, topics.of(places))


@every_library
def test_a_group_that_was_stopped_goes_on_from_its_commit(library: str, crew: Crew, topics: Topics, name: str) -> None:
    places = topics.create(name, 2)
    topics.fill(places, 7)
    first = crew.start(library, assignor="range", topics=[name])
    crew.wait_until_committed(topics.ends(places))
    first.leave()
    topics.fill(places, 3)
    second = crew.start(library, assignor="range", topics=[name])
    crew.wait_until_committed(topics.ends(places))
    assert {offset for _, _, offset, _ in second.consumed} == {7, 8, 9}
    check_laws(crew, topics.of(places))


@every_library
def test_a_static_member_restarts_without_a_rebalance(library: str, crew: Crew, topics: Topics, name: str) -> None:
    """KIP-345: the same instance id within the session takes over where the old process stood; nobody else notices."""
    places = topics.create(name, 4)
    topics.fill(places)
    told = {"assignor": "range", "topics": [name], "session_timeout_ms": 30_000}
    stays = crew.start(library, instance_id="stays", **told)
    goes = crew.start(library, instance_id="goes", **told)
    crew.wait_until_settled(places)
    crew.wait_until_committed(topics.ends(places))
    rebalances, generation, owned = crew.rebalances(), crew.broker.facts.generation(name), set(goes.owned)
    assigned_before = len(stays.told("assigned"))
    assert len(owned) == 2

    goes.leave()
    topics.fill(places)
    back = crew.start(library, instance_id="goes", **told)
    crew.wait_until(lambda: back.read().owned == owned, "the restarted member has what it had")
    crew.wait_until_committed(topics.ends(places))

    assert crew.rebalances() == rebalances
    assert crew.broker.facts.generation(name) == generation
    (replaced,) = crew.broker.facts.of(name, "MemberReplaced")
    assert replaced["instance_id"] == "goes"
    assert not crew.broker.facts.of(name, "MemberLeft", "MemberExpired")
    assert len(stays.told("assigned")) == assigned_before, "the other member was disturbed"
    check_laws(crew, topics.of(places))


@every_library
def test_partitions_that_are_added_find_an_owner(library: str, crew: Crew, topics: Topics, name: str) -> None:
    places = topics.create(name, 2)
    topics.fill(places)
    told = {"assignor": "range", "topics": [name], "metadata_max_age_ms": 500}
    for _ in range(2):
        crew.start(library, **told)
    crew.wait_until_settled(places)
    places |= topics.grow(name, 6)
    topics.fill(places)
    crew.wait_until_settled(places)
    crew.wait_until_shares_are([3, 3])
    crew.wait_until_committed(topics.ends(places))
    check_laws(crew, topics.of(places))


@pytest.mark.parametrize("library", ["confluent", "kafka-python", "aiokafka"])
def test_a_pattern_takes_in_topics_that_are_created_later(library: str, crew: Crew, topics: Topics, name: str) -> None:
    """VerifiableConsumer takes no pattern; the Java client's is in test_tools.py."""
    places = topics.create(f"{name}-a", 2)
    topics.create(f"not-{name}", 2)
    topics.fill(places)
    told = {"assignor": "range", "pattern": f"{name}-.*", "metadata_max_age_ms": 500}
    for _ in range(2):
        crew.start(library, **told)
    crew.wait_until_settled(places)
    places |= topics.create(f"{name}-b", 2)
    topics.fill(places)
    crew.wait_until_settled(places)
    crew.wait_until_shares_are([2, 2])
    crew.wait_until_committed(topics.ends(places))
    check_laws(crew, topics.of(places))


@needs_apache_kafka
def test_one_group_of_all_libraries_survives_the_loss_of_each_in_turn(crew: Crew, topics: Topics, name: str) -> None:
    share_and_lose_one_after_the_other(["java", "aiokafka", "confluent", "kafka-python"], crew, topics, name)


def share_and_lose_one_after_the_other(libraries: Sequence[str], crew: Crew, topics: Topics, name: str) -> None:
    """The leader assigns for libraries that are not its own; whoever is left takes over, until one has it all."""
    places = topics.create(name, 8)
    topics.fill(places)
    told = {"assignor": "roundrobin,range", "topics": [name], "session_timeout_ms": 4_000}
    members = [crew.start(libraries[0], **told)]
    crew.wait_until_settled(places)  # it leads, and is the first to go
    members += [crew.start(library, **told) for library in libraries[1:]]
    crew.wait_until_settled(places)
    assert [len(member.owned) for member in members] == [2, 2, 2, 2]
    ways_to_go = [members[0].leave, members[1].kill, members[2].leave]
    for go in ways_to_go:
        topics.fill(places)
        go()
        crew.wait_until_settled(places)
        crew.wait_until_committed(topics.ends(places))
    check_laws(crew, topics.of(places))
    assert len(leaders(crew)) > 1, "one library led all along, so the others were not tried"


def leaders(crew: Crew) -> set[str]:
    clients = crew.broker.facts.member_ids(crew.group)
    return {clients[one["leader_id"]] for one in crew.broker.facts.of(crew.group, "JoinPhaseCompleted")}


def test_two_groups_read_one_topic_side_by_side(crew: Crew, second_crew: Crew, topics: Topics, name: str) -> None:
    """Four members and two: each group reads everything, and what happens in one is nothing to the other."""
    places: set[Place] = topics.create(name, 8)
    topics.fill(places)
    libraries = ["confluent", "kafka-python", "aiokafka", "confluent"]
    for library in libraries:
        crew.start(library, assignor="roundrobin", topics=[name])
    for library in libraries[:2]:
        second_crew.start(library, assignor="range", topics=[name])
    crew.wait_until_settled(places)
    second_crew.wait_until_settled(places)
    assert [len(member.owned) for member in crew.members] == [2, 2, 2, 2]
    assert [len(member.owned) for member in second_crew.members] == [4, 4]
    rebalances = second_crew.rebalances()
    crew.members[0].leave()
    topics.fill(places)
    crew.wait_until_settled(places)
    for each in (crew, second_crew):
        each.wait_until_committed(topics.ends(places))
        check_laws(each, topics.of(places))
    assert second_crew.rebalances() == rebalances


@pytest.mark.parametrize("library", ["confluent", "kafka-python", "coterie"])
def test_two_processes_with_one_instance_id_are_told_and_found(
    library: str, crew: Crew, topics: Topics, name: str
) -> None:
    """Rule 18: the second takes the place of the first, which still lives, and hears so in its next request."""
    places = topics.create(name, 2)
    told = {"assignor": "range", "topics": [name], "session_timeout_ms": 10_000, "heartbeat_interval_ms": 500}
    first = crew.start(library, instance_id="same", **told)
    crew.wait_until(lambda: first.read().owned == places, "the first has all")
    crew.start(library, instance_id="same", **told)
    facts = crew.broker.facts
    wait_until(lambda: bool(facts.of(name, "InstanceIdFenced")), "the first is refused", crew.said)

    fenced = facts.of(name, "InstanceIdFenced")
    replaced = facts.of(name, "MemberReplaced")
    assert len({(one["member_id"], one["holder_id"]) for one in fenced}) == len(fenced), "each is told once"
    assert (fenced[0]["member_id"], fenced[0]["instance_id"]) == (replaced[0]["old_member_id"], "same")
    assert fenced[0]["holder_id"] == replaced[0]["member_id"]
    asked = [*CLI, "groups", "findings", name, "--bootstrap", crew.broker.bootstrap, "-o", "json"]
    found = json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
    duplicate = next(one for one in found if one["name"] == "duplicate-instance-id")
    assert duplicate["grade"] == "observed" and duplicate["members"] == ["same"]
