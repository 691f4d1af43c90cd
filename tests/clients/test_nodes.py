"""Real clients of a broker with three nodes: coordinators move and nodes stop under them, and they go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from apache_kafka import needs_apache_kafka
from broker.peer import Peer
from clients.admins import ADMINS
from clients.harness import Crew
from clients.laws import check_laws
from clients.nodes import ThreeNodes
from clients.producing import Stream, Topics
from clients.tools import Tools
from coterie import Admin
from coterie.errors import ErrorCode

pytestmark = pytest.mark.real_time

CREWS = [
    pytest.param(["confluent", "kafka-python", "aiokafka"], id="python"),
    pytest.param(["coterie", "coterie"], id="coterie"),
    pytest.param(["java", "java"], marks=needs_apache_kafka, id="java"),
]


@pytest.mark.parametrize("libraries", CREWS)
def test_a_group_goes_on_while_its_coordinator_moves(libraries: list[str], tmp_path: Path) -> None:
    """C4: members, generation and commits are read back by the new coordinator; nobody has to join again."""
    with ThreeNodes(tmp_path) as nodes, Crew(nodes, tmp_path, "moving") as crew:
        topics = Topics(nodes.bootstrap)
        places = topics.create("t", 6)
        for library in libraries:
            crew.start(library, assignor="roundrobin", topics=["t"], session_timeout_ms=20_000)
        crew.wait_until_settled(places)
        generation = nodes.facts.generation("moving")
        (member_id, *_) = nodes.facts.assignments("moving")[-1][1]

        with Stream(topics, places):
            for _ in range(6):
                topics.fill(places, 3)
                node = nodes.move("moving")
        crew.wait_until_committed(topics.ends(places))

        for number, address in enumerate(nodes.bootstrap.split(","), 1):
            with Peer(address) as peer:
                here = ErrorCode.NONE if number == node else ErrorCode.NOT_COORDINATOR
                assert peer.heartbeat("moving", member_id, generation) is here
        loaded = nodes.facts.of("moving", "GroupLoaded")
        assert len(loaded) >= 5 and {one["generation_id"] for one in loaded} == {generation}
        assert not nodes.facts.of("moving", "MemberExpired")
        crew.wait_until_settled(places)
        check_laws(crew, topics.of(places))
        for member in crew.present:
            member.leave()


@pytest.mark.parametrize("libraries", CREWS)
def test_nodes_stop_and_start_while_a_group_produces_consumes_and_commits(libraries: list[str], tmp_path: Path) -> None:
    """Every record that was acknowledged is read; no commit is lost, and none goes backwards."""
    with ThreeNodes(tmp_path) as nodes, Crew(nodes, tmp_path, "falling") as crew:
        topics = Topics(nodes.bootstrap)
        places = topics.create("t", 6)
        for library in libraries:
            crew.start(library, assignor="roundrobin", topics=["t"], session_timeout_ms=20_000)
        crew.wait_until_settled(places)
        with Stream(topics, places):
            for node in (1, 2, 3):
                nodes.broker.stop_node(node)
                topics.fill(places, 3)
                crew.wait_until(lambda: _have_read_all(crew, topics), f"all is read without node {node}")
                nodes.broker.start_node(node)
                topics.fill(places, 3)
        crew.wait_until_committed(topics.ends(places))
        crew.wait_until_settled(places)
        assert not nodes.facts.of("falling", "MemberExpired")
        check_laws(crew, topics.of(places))
        for member in crew.present:
            member.leave()


def _have_read_all(crew: Crew, topics: Topics) -> bool:
    """What was there when it was asked."""
    wanted = {(topic, number, len(values) - 1) for (topic, number), values in topics.produced.items() if values}
    read = {(topic, number, offset) for member in crew.members for topic, number, offset, _ in member.consumed}
    return wanted <= read


@pytest.mark.parametrize("library", ADMINS)
def test_admin_clients_find_groups_of_all_nodes(library: str, tmp_path: Path) -> None:
    """They are listed by their coordinators and put together; each is described and deleted by its own."""
    with ThreeNodes(tmp_path) as nodes:
        admin = ADMINS[library](nodes.bootstrap)
        admin.create("t", 6)
        assert admin.topics()["t"] == 6
        names = {f"group-{number}" for number in range(6)}
        for name in names:
            node = nodes.move(name)
            with Peer(nodes.bootstrap.split(",")[node - 1]) as peer:
                while (errors := peer.commit(name, {("t", 0): 7})) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]:
                    pass
                assert errors == [ErrorCode.NONE]
        assert admin.groups() == names
        for name in names:
            assert admin.describe(name).state == "Empty"
            assert admin.committed(name) == {("t", 0): 7}


def test_admin_clients_list_three_brokers(tmp_path: Path) -> None:
    with ThreeNodes(tmp_path) as nodes:
        for up in ({1, 2, 3}, {2, 3}):
            assert set(AdminClient({"bootstrap.servers": nodes.bootstrap}).list_topics(timeout=60).brokers) == up
            up_for_sure = nodes.bootstrap.split(",")[2]  # kafka-python leaves a socket open that nobody answered
            theirs = KafkaAdminClient(bootstrap_servers=up_for_sure)
            brokers = theirs.describe_cluster()["brokers"]  # with those that are fenced
            assert {one["broker_id"] for one in brokers if not one["is_fenced"]} == up
            theirs.close()
            with Admin({"bootstrap.servers": nodes.bootstrap}) as ours:
                described = ours.describe_cluster()
                assert {one.id for one in described.nodes} == up
            if 1 in up:
                nodes.broker.stop_node(1)


@needs_apache_kafka
def test_apaches_own_tools_see_three_brokers(tmp_path: Path) -> None:
    with ThreeNodes(tmp_path) as nodes, Tools(nodes.bootstrap) as tools:
        tools.topics("--create", "--topic", "t", "--partitions", "6")
        described = tools.topics("--describe", "--topic", "t")
        assert [described.count(f"Leader: {node}") for node in (1, 2, 3)] == [2, 2, 2]
        assert "from brokers 1,2,3" in tools.log_directories("--describe")
        nodes.broker.stop_node(2)
        described = tools.topics("--describe", "--topic", "t")
        assert [described.count(f"Leader: {node}") for node in (1, 2, 3)] == [3, 0, 3]
        assert "from brokers 1,3" in tools.log_directories("--describe")
