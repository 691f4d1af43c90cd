"""The broker goes and comes back: clients find it again, groups go on where they stood."""

from __future__ import annotations

from pathlib import Path

import pytest

from apache_kafka import needs_apache_kafka
from clients.harness import BrokerProcess, Crew
from clients.laws import check_laws
from clients.producing import Topics

pytestmark = pytest.mark.real_time


@pytest.mark.parametrize(
    "libraries",
    [["confluent", "kafka-python", "aiokafka"], pytest.param(["java", "java", "java"], marks=needs_apache_kafka)],
    ids=["python", "java"],
)
def test_a_group_outlives_a_restart_of_the_broker(libraries: list[str], tmp_path: Path) -> None:
    """Members and commits are read back (C4); nobody has to join again, and nobody is lost."""
    with BrokerProcess(tmp_path) as broker, Crew(broker, tmp_path, "outlives") as crew:
        topics = Topics(broker.bootstrap)
        places = topics.create("t", 6)
        topics.fill(places)
        for library in libraries:
            crew.start(library, assignor="roundrobin", topics=["t"], session_timeout_ms=20_000)
        crew.wait_until_settled(places)
        crew.wait_until_committed(topics.ends(places))
        generation = broker.facts.generation("outlives")

        broker.stop()
        broker.start()
        topics.fill(places)
        crew.wait_until_settled(places)
        crew.wait_until_committed(topics.ends(places))

        (loaded,) = broker.facts.of("outlives", "GroupLoaded")
        assert (loaded["state"], loaded["generation_id"], len(loaded["members"])) == ("Stable", generation, 3)
        assert not broker.facts.of("outlives", "MemberExpired")
        check_laws(crew, topics.of(places))
        for member in crew.present:
            member.leave()


def test_a_group_of_both_protocols_outlives_crashes_of_the_broker(tmp_path: Path) -> None:
    """K24 to K27: after the upgrade, and after the downgrade, the group is what it was when the broker was killed."""
    with BrokerProcess(tmp_path) as broker, Crew(broker, tmp_path, "crashed") as crew:
        topics = Topics(broker.bootstrap)
        places = topics.create("t", 6)
        topics.fill(places)
        told = {"topics": ["t"], "session_timeout_ms": 60_000}
        crew.start("confluent", assignor="range", **told)
        crew.wait_until_settled(places)
        newer = crew.start("coterie", assignor="uniform", topics=["t"], protocol="consumer")
        crew.wait_until_settled(places)

        broker.kill()
        broker.start()
        topics.fill(places)
        crew.wait_until_settled(places)
        crew.wait_until_committed(topics.ends(places))
        (loaded,) = broker.facts.of("crashed", "GroupLoaded")
        assert len(loaded["members"]) == 2

        newer.leave()
        crew.wait_until_settled(places)
        broker.kill()
        broker.start()
        topics.fill(places)
        crew.wait_until_settled(places)
        crew.wait_until_committed(topics.ends(places))
        assert len(broker.facts.of("crashed", "GroupLoaded")[-1]["members"]) == 1
        check_laws(crew, topics.of(places))
