"""franz-go and kafka-go: the newest protocol there is and one of the oldest, JoinGroup v2 and Heartbeat v0.

franz-go has transactions as well, with the newest requests.

franz-go is also a member of consumer groups (KIP-848). It falls back to the classic protocol without a word, so those
tests ask the broker which protocol the members use.

Building them takes a minute of two cores the first time, so they have a target of their own: make clients-go.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from apache_kafka import needs_apache_kafka
from clients import test_assignors, test_consumer_groups, test_members
from clients import transactional_programs as situations
from clients.either import EitherBroker, apache_kafka, coterie
from clients.harness import BrokerProcess, Crew
from clients.laws import check_laws, witness_of
from clients.libraries import LIBRARIES, GoLibrary
from clients.producing import Topics
from clients.test_consumer_protocol import QUICK_GROUPS, judge
from clients.test_secured import TOKENS, WAYS, Way, token
from coterie import Admin, checked
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
    binaries = [f"./{program}" for program in (*PROGRAMS.values(), "secured", "transactions")]
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


CONSUMER = {"assignor": "uniform", "protocol": "consumer"}


def protocols(crew: Crew) -> dict[str, str]:
    """From the client id of each member that is there to the protocol that it uses, as the broker tells it."""
    with Admin(bootstrap_servers=crew.broker.bootstrap) as admin:
        members = checked(admin.describe_groups([crew.group]))[crew.group].members
    return {member.client_id: member.type or "classic" for member in members}


def shares(crew: Crew) -> list[int]:
    """How many partitions each member has that is there."""
    return [len(member.read().owned) for member in crew.present]


def group_types(crew: Crew) -> list[str]:
    """The types that the group had in turn."""
    types = (one["group_type"] for one in crew.broker.facts.of(crew.group, "RebalanceStarted"))
    return [one for one, _ in itertools.groupby(types)]


def test_consumer_group_members_of_franz_go_come_go_and_are_killed(crew: Crew, topics: Topics, name: str) -> None:
    """K10, K13."""
    test_consumer_groups.test_members_come_go_and_are_killed("franz-go", crew, topics, name)
    assert group_types(crew) == ["consumer"]
    assert protocols(crew) == {crew.members[0].client_id: "consumer"}


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_franz_go_librdkafka_and_our_consumer_share_a_consumer_group(
    assignor: str, crew: Crew, topics: Topics, name: str
) -> None:
    """K11, K13: one after the other leaves or is killed, until a member of franz-go has all."""
    places = topics.create(name, 8)
    topics.fill(places)
    told = {"assignor": assignor, "topics": [name], "protocol": "consumer"}
    libraries = ["confluent", "franz-go", "coterie", "franz-go"]
    members = [crew.start(library, **told) for library in libraries]
    crew.wait_until_settled(places)
    assert [len(member.owned) for member in members] == [2, 2, 2, 2]
    assert protocols(crew) == {member.client_id: "consumer" for member in members}
    for go in (members[0].leave, members[1].kill, members[2].leave):
        topics.fill(places)
        go()
        topics.fill(places)
        crew.wait_until_settled(places)
        crew.wait_until_committed(topics.ends(places))
    assert members[3].owned == places
    assert group_types(crew) == ["consumer"]
    check_laws(crew, topics.of(places))


def test_a_suspended_member_of_franz_go_comes_back(crew: Crew, topics: Topics, name: str) -> None:
    """K8, K10: its session has run out meanwhile, so it loses what it had and joins as a new member."""
    places = topics.create(name, 4)
    topics.fill(places)
    told = {"topics": [name], **CONSUMER}
    stays, late = crew.start("franz-go", **told), crew.start("franz-go", **told)
    crew.wait_until_settled(places)
    crew.wait_until_committed(topics.ends(places))
    late.suspend()
    topics.fill(places)
    crew.wait_until(lambda: stays.read().owned == places, "the other has all")
    late.resume()
    crew.wait_until(lambda: bool(late.told("lost")), "the suspended member knows that it has lost them")
    crew.wait_until_settled(places)
    topics.fill(places)
    crew.wait_until_committed(topics.ends(places))
    assert [len(member.owned) for member in (stays, late)] == [2, 2]
    (expired,) = crew.broker.facts.of(name, "MemberExpired")
    assert crew.broker.facts.member_ids(name)[expired["member_id"]] == late.client_id
    assert protocols(crew) == {stays.client_id: "consumer", late.client_id: "consumer"}
    check_laws(crew, topics.of(places))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_consumer_group_of_franz_go_outlives_its_broker(end: str, tmp_path: Path) -> None:
    """K27: members, epochs and assignments are read back, and nobody has to join again."""
    patient = {"group.consumer.session.timeout.ms": 45_000}
    with BrokerProcess(tmp_path, patient) as broker, Crew(broker, tmp_path, "outlives") as crew:
        topics = Topics(broker.bootstrap)
        places = topics.create("t", 6)
        topics.fill(places)
        for _ in range(3):
            crew.start("franz-go", topics=["t"], **CONSUMER)
        crew.wait_until_settled(places)
        crew.wait_until_committed(topics.ends(places))
        rebalances = crew.rebalances()
        getattr(broker, end)()
        broker.start()
        topics.fill(places)
        crew.wait_until_settled(places)
        crew.wait_until_committed(topics.ends(places))
        (loaded,) = broker.facts.of("outlives", "GroupLoaded")
        assert len(loaded["members"]) == 3
        assert crew.rebalances() == rebalances
        assert set(protocols(crew).values()) == {"consumer"}
        check_laws(crew, topics.of(places))
        for member in crew.present:
            member.leave()


def test_added_partitions_find_an_owner_in_a_consumer_group(crew: Crew, topics: Topics, name: str) -> None:
    """K28: the broker gives them out, before the members have heard of them in any metadata."""
    places = topics.create(name, 2)
    topics.fill(places)
    for _ in range(2):
        crew.start("franz-go", topics=[name], **CONSUMER)
    crew.wait_until_settled(places)
    places |= topics.grow(name, 6)
    topics.fill(places)
    crew.wait_until_settled(places)
    crew.wait_until_shares_are([3, 3])
    crew.wait_until_committed(topics.ends(places))
    assert group_types(crew) == ["consumer"]
    check_laws(crew, topics.of(places))


def test_a_pattern_of_franz_go_is_matched_by_the_broker(crew: Crew, topics: Topics, name: str) -> None:
    """K7: franz-go puts .* on both sides of it; a topic that is created later is taken in."""
    places = topics.create(f"{name}-a", 2)
    topics.create(f"not-{name}-a", 2)
    topics.fill(places)
    for _ in range(2):
        crew.start("franz-go", pattern=f"{name}-.*", metadata_max_age_ms=500, **CONSUMER)
    crew.wait_until_settled(places)
    places |= topics.create(f"{name}-b", 2)
    topics.fill(places)
    crew.wait_until_settled(places)
    crew.wait_until_shares_are([2, 2])
    crew.wait_until_committed(topics.ends(places))
    assert group_types(crew) == ["consumer"]
    check_laws(crew, topics.of(places))


@pytest.mark.parametrize(
    ("classic", "consumer", "assignor"),
    [
        ("franz-go", "franz-go", "range"),
        ("franz-go", "franz-go", "cooperative-sticky"),
        ("franz-go", "confluent", "cooperative-sticky"),
        ("confluent", "franz-go", "range"),
    ],
)
def test_a_classic_group_is_upgraded_and_downgraded(
    classic: str, consumer: str, assignor: str, crew: Crew, topics: Topics, name: str
) -> None:
    """K24 to K26."""
    test_consumer_groups.upgrade_and_downgrade(classic, consumer, crew, topics, name, assignor)
    assert group_types(crew) == ["classic", "consumer", "classic"]


def test_static_members_of_franz_go_change_their_protocol(crew: Crew, topics: Topics, name: str) -> None:
    """K14, K25, K26."""
    test_consumer_groups.test_static_members_take_over_from_those_of_the_other_protocol("franz-go", crew, topics, name)
    assert len(crew.broker.facts.of(name, "MemberReplaced")) == 4
    assert set(protocols(crew).values()) == {"classic"}


@pytest.fixture(scope="module", params=["coterie", pytest.param("kafka", marks=needs_apache_kafka)])
def either(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EitherBroker]:
    """One for what clients cannot do, which must be the same on both."""
    starts = {"coterie": coterie, "kafka": apache_kafka}
    settings = {**QUICK_GROUPS, **situations.QUICK_TIMEOUTS, "group.initial.rebalance.delay.ms": "0"}
    with starts[request.param](tmp_path_factory.mktemp(request.param), settings) as running:
        yield running


def test_a_static_member_of_franz_go_comes_back_when_its_session_has_run_out(
    either: EitherBroker, tmp_path: Path, name: str
) -> None:
    """K5, K14: franz-go 1.22 leaves with epoch -2 and without its instance id, and does not tell that it is refused."""
    topics = Topics(either.bootstrap)
    places = topics.create(name, 4)
    topics.fill(places)
    told = {"topics": [name], **CONSUMER}
    with Crew(either, tmp_path, name) as crew:
        stays = crew.start("franz-go", instance_id="stays", **told)
        goes = crew.start("franz-go", instance_id="goes", **told)
        crew.wait_until(lambda: shares(crew) == [2, 2], "both have two")
        ends = topics.ends(places)
        crew.wait_until(lambda: either.facts.committed(name) == ends, "everything is committed")
        goes.leave()
        topics.fill(places)
        back = crew.start("franz-go", instance_id="goes", **told)
        crew.wait_until(lambda: bool(back.told("error")), "the instance id is still taken")
        assert "UNRELEASED_INSTANCE_ID" in back.told("error")[0]["error"]
        crew.wait_until(lambda: stays.read().owned == places, "the session of the old member has run out")
        crew.wait_until(lambda: shares(crew) == [2, 2], "the new member has joined")
        topics.fill(places)
        ends = topics.ends(places)
        crew.wait_until(lambda: either.facts.committed(name) == ends, "everything is committed")
        judge(either, name, [witness_of(member) for member in crew.members], topics.of(places))


def test_a_group_of_kafka_go_is_upgraded_only_when_it_is_empty(either: EitherBroker, tmp_path: Path, name: str) -> None:
    """K24, K25: kafka-go 0.4 calls its subscriptions version 1 and leaves out the field that version 1 has.

    Nor can it join a consumer group.
    """
    topics = Topics(either.bootstrap)
    places = topics.create(name, 4)
    topics.fill(places)
    with Crew(either, tmp_path, name) as crew:
        old = crew.start("kafka-go", assignor="range", topics=[name])
        crew.wait_until(lambda: shares(crew) == [4], "kafka-go has all")
        new = crew.start("franz-go", topics=[name], **CONSUMER)
        crew.wait_until(lambda: bool(new.told("error")), "the upgrade is refused")
        assert "GROUP_ID_NOT_FOUND" in new.told("error")[0]["error"]
        topics.fill(places)
        ends = topics.ends(places)
        crew.wait_until(lambda: either.facts.committed(name) == ends, "kafka-go reads on")
        assert old.owned == places and not new.owned
        old.leave()
        crew.wait_until(lambda: shares(crew) == [4], "franz-go has all")
        topics.fill(places)
        ends = topics.ends(places)
        crew.wait_until(lambda: either.facts.committed(name) == ends, "everything is committed")
        again = crew.start("kafka-go", assignor="range", topics=[name])
        crew.wait_until(lambda: bool(again.told("error")), "kafka-go is refused")
        assert again.told("error")[0]["error"].startswith("[-1] Unknown")
        assert protocols(crew) == {new.client_id: "consumer"}
        judge(either, name, [witness_of(member) for member in crew.members], topics.of(places))


def test_franz_go_commits_and_aborts(built: Path, either: EitherBroker, name: str) -> None:
    situations.check_commits_and_aborts(built / "transactions", either, name)


def test_franz_go_fences_an_older_producer(built: Path, either: EitherBroker, name: str) -> None:
    error = situations.check_fencing(built / "transactions", either, name)
    assert "PRODUCER_FENCED" in error, error


def test_a_transaction_of_franz_go_times_out(built: Path, either: EitherBroker, name: str) -> None:
    """TT2: franz-go 1.22 gives up after a commit that is too late. After a record that is too late it can go on."""
    error, after = situations.check_timeout(built / "transactions", either, name, "commit")
    assert "INVALID_TXN_STATE" in error and "INVALID_TXN_STATE" in after, (error, after)
    error, after = situations.check_timeout(built / "transactions", either, f"{name}-2", "send")
    assert "INVALID_PRODUCER_EPOCH" in error and not after, (error, after)


def test_franz_go_reads_processes_and_writes(built: Path, either: EitherBroker, name: str) -> None:
    situations.check_read_process_write(built / "transactions", either, name)


def test_franz_go_goes_on_after_a_crash(built: Path, either: EitherBroker, name: str) -> None:
    situations.check_crash(built / "transactions", either, name)


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
