"""franz-go and kafka-go: the newest protocol there is and one of the oldest, JoinGroup v2 and Heartbeat v0.

Building them takes a minute of two cores the first time, so they have a target of their own: make clients-go.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients import test_assignors, test_members
from clients.harness import Crew
from clients.libraries import LIBRARIES, GoLibrary
from clients.producing import Topics
from clients.test_secured import TOKENS, WAYS, Way, token
from secured_kafka import USERS, SecuredCoterie

PROGRAMS = {"franz-go": "franz", "kafka-go": "kafkago"}

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif("COTERIE_GO_CLIENTS" not in os.environ, reason="run by make clients-go"),
    pytest.mark.skipif(not shutil.which("go"), reason="there is no `go` on the PATH to build the programs with"),
]


@pytest.fixture(scope="module", autouse=True)
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the programs. It is made for the tests; modules come from where Go is told to take them."""
    target = tmp_path_factory.mktemp("go")
    shutil.copytree(Path(__file__).with_name("go"), target, dirs_exist_ok=True)
    binaries = [f"./{program}" for program in (*PROGRAMS.values(), "secured")]
    done = subprocess.run(
        ["go", "build", "-o", f"{target}/bin/", *binaries], cwd=target, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"the programs could not be built: {done.stderr[-500:]}")
    for library, program in PROGRAMS.items():
        LIBRARIES[library] = GoLibrary(target / "bin" / program)
    return target / "bin"


both = pytest.mark.parametrize("library", list(PROGRAMS))


@pytest.mark.parametrize(
    ("library", "assignor"),
    [
        *(("franz-go", assignor) for assignor in ("range", "roundrobin", "sticky", "cooperative-sticky")),
        *(("kafka-go", assignor) for assignor in ("range", "roundrobin")),
    ],
)
def test_three_members_share(library: str, assignor: str, crew: Crew, topics: Topics, name: str) -> None:
    test_assignors.test_three_members_share_and_go_on_when_one_leaves(library, assignor, crew, topics, name)


@both
def test_a_killed_member_is_expired(library: str, crew: Crew, topics: Topics, name: str) -> None:
    test_members.test_a_killed_member_is_expired_and_its_partitions_are_read_on(library, crew, topics, name)


@both
def test_a_stopped_group_goes_on(library: str, crew: Crew, topics: Topics, name: str) -> None:
    test_members.test_a_group_that_was_stopped_goes_on_from_its_commit(library, crew, topics, name)


@both
def test_added_partitions_find_an_owner(library: str, crew: Crew, topics: Topics, name: str) -> None:
    test_members.test_partitions_that_are_added_find_an_owner(library, crew, topics, name)


def test_a_static_member_restarts(crew: Crew, topics: Topics, name: str) -> None:
    """kafka-go has no static members."""
    test_members.test_a_static_member_restarts_without_a_rebalance("franz-go", crew, topics, name)


def test_a_pattern_takes_in_later_topics(crew: Crew, topics: Topics, name: str) -> None:
    """kafka-go has no patterns."""
    test_members.test_a_pattern_takes_in_topics_that_are_created_later("franz-go", crew, topics, name)


def test_go_and_python_share_a_group(crew: Crew, topics: Topics, name: str) -> None:
    test_members.share_and_lose_one_after_the_other(
        ["kafka-go", "confluent", "franz-go", "aiokafka"], crew, topics, name
    )


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredCoterie]:
    with SecuredCoterie() as running:
        yield running


@pytest.mark.parametrize("way", [*WAYS, *TOKENS], ids=str)
def test_franz_go_logs_in(built: Path, secured: SecuredCoterie, way: Way, name: str) -> None:
    """S6, S13, S14, S15, S16, S17, S18, S19, S20, S24."""
    told = {
        "bootstrap": secured.address_of(way.listener),
        "protocol": way.protocol,
        "mechanism": way.mechanism,
        "user": "alice",
        "password": USERS["alice"],
        "token": token(),
        "ca": str(secured.certificates.ca),
        "name": name,
    }
    if way.has_certificate:
        leaf = secured.certificates.leaf("franz", "client.test", common_name="franz")
        told |= {"certificate": str(leaf.chain), "key": str(leaf.key)}
    done = subprocess.run([built / "secured", json.dumps(told)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [str(number) for number in range(10)]
