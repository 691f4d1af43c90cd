"""What happens to members in life, on Coterie and on Apache Kafka 4.3.1 alike: one suite, the broker a parameter.

Our own members alone, and among Java's, librdkafka's and kafka-python's, while records keep coming. Judged is what the
members tell and what `__consumer_offsets` holds, by the laws of `laws.py`; no broker is asked for more than any broker
has. `make conformance` runs all of it; plain pytest runs a handful.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.either import EitherBroker, apache_kafka, coterie
from clients.harness import Crew, Place
from clients.laws import longest_gap_ms, witness_of
from clients.producing import PACE_MS, Topics
from clients.trial import CASTS, Trial, cooperative_only, everywhere

pytestmark = pytest.mark.real_time

READS_ON_WITHIN_MS = 10 * PACE_MS
"""How much longer than its producer who keeps a partition may pause in a rebalance. Records come every PACE_MS, and a
read adds little to that; ten times that is room for two busy cores. Who waited for the rebalance would pause as long as
it."""
REBALANCE_MS = 5 * READS_ON_WITHIN_MS
"""A rebalance that is shorter than this would not tell the two apart."""


@pytest.fixture(scope="session")
def coterie_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EitherBroker]:
    with coterie(tmp_path_factory.mktemp("coterie")) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EitherBroker]:
    with apache_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def trial(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> Iterator[Trial]:
    whose, _, cast = request.param.partition("-")
    broker: EitherBroker = request.getfixturevalue(f"{whose}_broker")
    with Crew(broker, tmp_path, name) as crew:
        yield Trial(broker, CASTS[cast], crew, Topics(broker.bootstrap), name)


def everybody(trial: Trial) -> set[Place]:
    """Two partitions each for those who are there in the end, of which two are ours."""
    return trial.topics.create(trial.name, 2 * (2 + len(trial.cast.others)))


@everywhere("coterie-mixed-cooperative", "kafka-ours-cooperative")
def test_a_member_that_joins_takes_its_share(trial: Trial) -> None:
    places = everybody(trial)
    with trial.stream(places):
        first = trial.ours()
        trial.others()
        trial.crew.wait_until_settled(places)
        second = trial.ours()
        trial.crew.wait_until_settled(places)
        assert len(first.owned) == len(second.owned) == 2
        trial.wait_until_read_on(places)
    trial.finish(places)


@everywhere()
def test_a_member_that_leaves_is_followed_at_once(trial: Trial) -> None:
    """M9: it says goodbye, so nobody waits for its session to run out, which is longer than our patience."""
    trial.told = {"session_timeout_ms": 240_000}
    places = everybody(trial)
    with trial.stream(places):
        goes = trial.ours()  # it came first, so it leads, and another has to lead after it
        trial.others()
        trial.ours()
        trial.crew.wait_until_settled(places)
        goes.leave()
        trial.crew.wait_until_settled(places)
        trial.wait_until_read_on(places)
    trial.finish(places)


@everywhere("coterie-ours-cooperative")
def test_what_a_killed_member_had_is_read_on_by_the_others(trial: Trial) -> None:
    """Rule 14: SIGKILL says no goodbye, so the session has to run out."""
    trial.told = {"session_timeout_ms": 6_000}
    places = everybody(trial)
    with trial.stream(places):
        victim = trial.ours()
        trial.others()
        trial.ours()
        trial.crew.wait_until_settled(places)
        victim.kill()
        trial.crew.wait_until_settled(places)
        trial.wait_until_read_on(places)
    trial.finish(places)


@everywhere()
def test_long_processing_is_no_absence(trial: Trial) -> None:
    """M8: heartbeats go on while the user's code is busy, here for longer than a whole session."""
    trial.told = {"session_timeout_ms": 4_000, "slow_ms": 6_000}
    places = everybody(trial)
    with trial.stream(places):
        slow = trial.ours()
        trial.others()
        trial.ours()
        trial.crew.wait_until_settled(places)
        generation, committed = trial.generation, len(slow.told("committed"))
        slow.slow_down()
        (busy,) = slow.told("busy")
        trial.crew.wait_until(
            lambda: any(one["at_ms"] > busy["at_ms"] for one in slow.told("committed")),
            "the long processing is committed",
        )
        trial.wait_until_read_on(places)
    assert trial.generation == generation, "somebody was thrown out, or joined again"
    assert len(slow.told("committed")) > committed
    trial.finish(places)


@everywhere("coterie-ours-range")
def test_who_does_not_poll_in_time_loses_its_partitions_and_comes_back(trial: Trial) -> None:
    """M8: after max.poll.interval.ms it leaves by itself; what it does then is done again, and its commit fails."""
    places = everybody(trial)
    with trial.stream(places):
        slow = trial.ours(max_poll_interval_ms=3_000, slow_ms=15_000)
        trial.others()
        trial.ours()
        trial.crew.wait_until_settled(places)
        had = set(slow.owned)
        slow.slow_down()
        (busy,) = slow.told("busy")
        rest = [member for member in trial.crew.present if member is not slow]
        trial.crew.wait_until(
            lambda: set().union(*(member.read().owned for member in rest)) == places, "the others have it all"
        )
        done = [one for one in slow.told("consumed") if one["at_ms"] > busy["at_ms"]]
        assert not done, "the processing ended before the others had its partitions: nothing is shown"
        trial.crew.wait_until(lambda: bool(slow.told("lost")), "the slow member is told what it lost")
        assert {(*one,) for one in slow.told("lost")[0]["partitions"]} == had
        trial.crew.wait_until_settled(places)
        trial.wait_until_read_on(places)
    assert [one for one in slow.told("commit_failed") if one["at_ms"] > busy["at_ms"]], "a commit too late was taken"
    trial.finish(places)


@everywhere("coterie-ours-cooperative")
def test_a_static_member_restarts_without_a_rebalance(trial: Trial) -> None:
    """KIP-345, and KIP-814 since it leads: the same instance id takes over where the old process stood."""
    trial.told = {"session_timeout_ms": 60_000}
    places = everybody(trial)
    with trial.stream(places):
        goes = trial.ours(instance_id="goes")
        trial.crew.wait_until_settled(places)  # alone: so it leads
        trial.others()
        trial.ours(instance_id="stays")
        trial.crew.wait_until_settled(places)
        generation, had = trial.generation, set(goes.owned)
        rest = [member for member in trial.crew.present if member is not goes]
        heard = [len(member.told("assigned")) + len(member.told("revoked")) for member in rest]
        goes.leave()
        back = trial.ours(instance_id="goes")
        trial.crew.wait_until(lambda: back.read().owned == had, "the restarted member has what it had")
        trial.wait_until_read_on(places)
    assert trial.generation == generation
    assert heard == [len(member.told("assigned")) + len(member.told("revoked")) for member in rest], "disturbed"
    trial.finish(places)


@everywhere("coterie-ours-cooperative")
def test_partitions_that_are_added_find_an_owner(trial: Trial) -> None:
    """M5: whoever leads watches the topics of all, and asks for a rebalance when they have grown."""
    trial.told = {"metadata_max_age_ms": 500}
    places = everybody(trial)
    with trial.stream(places) as stream:
        trial.ours()
        trial.others()
        trial.ours()
        trial.crew.wait_until_settled(places)
        places = places | trial.topics.grow(trial.name, len(places) + 4)
        trial.crew.wait_until_settled(places)
        stream.places = places
        trial.wait_until_read_on(places)
    trial.finish(places)


@everywhere("coterie-ours-range")
def test_a_topic_that_appears_and_matches_the_pattern_is_read(trial: Trial) -> None:
    """Java's VerifiableConsumer takes no pattern: it reads the first topic, as a member of the same group may."""
    first, later = f"{trial.name}-a", f"{trial.name}-b"
    places = trial.topics.create(first, 2 * (2 + len(trial.cast.others)))
    told = {"pattern": f"{trial.name}-.*", "topics": [], "metadata_max_age_ms": 500}
    with trial.stream(places) as stream:
        trial.ours(**told)
        for library in trial.cast.others:
            trial.start(library, **(told if library != "java" else {"topics": [first]}))
        trial.ours(**told)
        trial.crew.wait_until_settled(places)
        places = places | trial.topics.create(later, 4)
        trial.crew.wait_until_settled(places)
        stream.places = places
        trial.wait_until_read_on(places)
    trial.finish(places)


@everywhere()
def test_a_group_outlives_a_restart_of_the_broker(trial: Trial) -> None:
    """C4: members and commits are read back; nobody has to join again, and nothing is lost."""
    trial.told = {"session_timeout_ms": 120_000}
    places = everybody(trial)
    with trial.stream(places):
        trial.ours()
        trial.others()
        trial.ours()
        trial.crew.wait_until_settled(places)
        trial.wait_until_read_on(places)
        generation = trial.generation
        trial.broker.restart()
        trial.wait_until_read_on(places)
    assert trial.generation == generation
    trial.finish(places)


@cooperative_only()
def test_cooperative_members_read_on_what_they_keep_while_a_rebalance_is_open(trial: Trial) -> None:
    """KIP-429. The rebalance is held open by a member that is busy, and does not hear of it before it polls again.

    Measured are ours and Java's. Of the others the script stands still, on either broker: librdkafka sends a commit on
    the connection whose join is parked, so that it waits for the rebalance, and kafka-python does not return from a
    poll.
    """
    trial.told = {"session_timeout_ms": 30_000, "slow_ms": 15_000}
    places = everybody(trial)
    with trial.stream(places) as stream:
        busy = trial.ours()
        keeps = [member for member in (trial.ours(), *trial.others()) if member.library in {"coterie", "java"}]
        trial.crew.wait_until_settled(places)
        trial.wait_until_read_on(places)
        before = [(member, place) for member in keeps for place in member.owned]
        busy.slow_down()
        (at_work,) = busy.told("busy")
        trial.ours()
        from_ms, until_ms = trial.rebalance_while(lambda: busy.told("consumed")[-1]["at_ms"] < at_work["at_ms"])
        trial.crew.wait_until_settled(places)
        trial.wait_until_read_on(places)
    assert until_ms - from_ms >= REBALANCE_MS, "the rebalance was too short to tell reading from waiting"
    came = longest_gap_ms(stream.came_at_ms, from_ms, until_ms)
    gaps = {
        f"{member.library} {place[1]}": longest_gap_ms(witness_of(member).read_at_ms(place), from_ms, until_ms)
        for member, place in before
    }
    measured = f"in a rebalance of {until_ms - from_ms} ms records paused for {came} ms, and who reads them for {gaps}"
    print(measured)  # noqa: T201 - pytest -rP shows it
    assert len(gaps) == 2 * len(keeps) and max(gaps.values()) <= came + READS_ON_WITHIN_MS, measured
    trial.finish(places)
