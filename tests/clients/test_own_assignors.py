"""Unmodified clients whose partitions an assignor of a user deals out, in the broker: librdkafka and Apache's Java."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from apache_kafka import needs_apache_kafka
from clients.harness import BrokerProcess, Crew
from clients.laws import check_laws
from clients.producing import Topics

pytestmark = pytest.mark.real_time

LOPSIDED = '''
from coterie.assignors import Assignor


class Lopsided(Assignor):
    """Deals one partition to each member, and the rest to the first."""

    name = "lopsided"

    def assign(self, members, topics):
        ids = sorted(member.id for member in members)
        shares = {member_id: {} for member_id in ids}
        for name, topic in topics.items():
            for partition in range(topic.partitions):
                owner = ids[partition] if partition < len(ids) else ids[0]
                shares[owner].setdefault(name, []).append(partition)
        return shares
'''


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A package with an entry point, as pip would have installed it."""
    home = tmp_path_factory.mktemp("package")
    (home / "lopsided.py").write_text(LOPSIDED)
    about = home / "lopsided-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lopsided\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[coterie.assignors]\nlopsided = lopsided:Lopsided\n")
    return str(home)


@pytest.fixture(scope="module")
def broker(installed: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", installed)
        running = BrokerProcess(
            tmp_path_factory.mktemp("broker"), {"group.consumer.assignors": "uniform,lopsided,lag-aware"}
        ).start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def topics(broker: BrokerProcess) -> Topics:
    return Topics(broker.bootstrap)


@pytest.mark.parametrize("library", ["confluent", pytest.param("java", marks=needs_apache_kafka)])
def test_members_that_name_it_get_what_it_deals(library: str, crew: Crew, topics: Topics, name: str) -> None:
    """K16: with `group.remote.assignor` alone; `uniform` would give each member two."""
    places = topics.create(name, 6)
    topics.fill(places)
    for _ in range(3):
        crew.start(library, assignor="lopsided", topics=[name], protocol="consumer")
    crew.wait_until_settled(places)
    assert sorted(len(member.owned) for member in crew.members) == [1, 1, 4]
    crew.wait_until_committed(topics.ends(places))
    crew.members[0].leave()
    topics.fill(places)
    crew.wait_until_settled(places)
    crew.wait_until_committed(topics.ends(places))
    assert sorted(len(member.owned) for member in crew.members if member.ended_ms is None) == [1, 5]
    check_laws(crew, topics.of(places))


def test_lag_aware_needs_no_package(crew: Crew, topics: Topics, name: str) -> None:
    """K16: without lag the members get equal numbers."""
    places = topics.create(name, 4)
    for _ in range(2):
        crew.start("confluent", assignor="lag-aware", topics=[name], protocol="consumer")
    crew.wait_until_settled(places)
    assert [len(member.owned) for member in crew.members] == [2, 2]


def test_a_broker_with_an_unknown_assignor_does_not_start(tmp_path: Path) -> None:
    """It says what there is."""
    coterie = str(Path(sys.executable).with_name("coterie"))
    command = [coterie, "serve", "--port=0", f"--data={tmp_path}/data", "--set=group.consumer.assignors=nosuch"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    said = " ".join(done.stderr.split())
    assert 'the unknown assignor "nosuch"; known are uniform, range, lag-aware, roundrobin, sticky' in said
