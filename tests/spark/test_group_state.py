"""The state of a group, rebuilt from its log: compared with a second, independent reading, and with the facts."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.consumer.group_world import GroupWorld
from coterie import Broker
from coterie.errors import CoterieError, MalformedError
from coterie.facts import Fact
from coterie.ledger import Rebalance, RebalanceOutcome, fold, write_fact
from coterie.ledger.derived import derived_facts
from coterie.protocol.consumer_group_records import (
    EPOCH,
    ConsumerGroupRecord,
    CurrentAssignment,
    read_consumer_group_record,
    topic_id_text,
    write_consumer_group_record,
)
from coterie.protocol.messages import GroupRecord, StoredGroup, StoredMember
from coterie.protocol.offsets_topic import write_record
from coterie.protocol.subscription import Assignment, Subscription, write_assignment, write_subscription
from coterie.spark.pipeline.decoding import decode_record
from coterie.spark.pipeline.group_state import GroupRebuilder, observed_rebalance
from coterie.spark.pipeline.partition_owners import LogPosition
from ledger.test_consumer_groups import STORIES, converted
from protocol.recorded import lines
from spark.busy_groups import KEEPS_ALL, live_busily
from spark.lived import LIVED, NAMES
from spark.rows import generations, intervals, rebalances
from spark.second_reading import LogRecord, log_of_broker, read_again

KAFKAS = [
    LogRecord(0, number, 1_700_000_000_000 + number * 7, bytes.fromhex(line["key"]), value)
    for number, line in enumerate(lines("consumer_offsets.jsonl"))
    for value in [None if line["value"] is None else bytes.fromhex(line["value"])]
]


@cache
def busy_log() -> tuple[list[LogRecord], list[Fact]]:
    with TemporaryDirectory() as folder:
        facts = live_busily(Path(folder), groups=5, steps=1_500, seed=7)
        with Broker(data=folder, settings=KEEPS_ALL) as broker:
            return log_of_broker(broker.bootstrap_servers), facts


class Reading:
    """All groups of a log; `stops` are the places where the memory is written down and taken up again."""

    def __init__(
        self, log: Sequence[LogRecord], stops: Iterable[int] = (), names: Mapping[str, str] | None = None
    ) -> None:
        self.names = names or {}
        self.groups: dict[str, GroupRebuilder] = {}
        self.generations: list[dict[str, Any]] = []
        self.rebalances: list[dict[str, Any]] = []
        self.intervals: list[dict[str, Any]] = []
        stopping = set(stops)
        for number, one in enumerate(log):
            if number in stopping:
                self._stop()
            row = decode_record(one.key, one.value)
            if row.get("other", {}).get("kind") == "group":
                state = self.groups.setdefault(row["group_id"], GroupRebuilder(row["group_id"], self.names))
                state.record(one.key, one.value, LogPosition(one.partition, one.offset, one.ms))
        self._stop()

    def _stop(self) -> None:
        for name, state in self.groups.items():
            self.generations += state.rows.generations
            self.rebalances += state.rows.rebalances
            self.intervals += state.rows.intervals
            self.groups[name] = GroupRebuilder.from_json(name, self.names, state.to_json())

    def lasting(self) -> list[dict[str, Any]]:
        return [row | {"ended_ms": None} for state in self.groups.values() for row in state.state()["owners"]]


def assert_as_read_again(log: Sequence[LogRecord], reading: Reading) -> None:
    second = read_again(log, reading.names)
    assert intervals([*reading.intervals, *reading.lasting()]) == sorted(second.intervals, key=repr)
    assert generations(reading.generations) == sorted(second.generations, key=repr)
    assert rebalances(reading.rebalances) == sorted(second.rebalances)


def test_a_thousand_rebalances_are_as_a_second_reading_has_them() -> None:
    log, _ = busy_log()
    reading = Reading(log)
    assert len(reading.rebalances) > 1_000
    assert {row["outcome"] for row in reading.rebalances} == {"stable", "empty"}
    assert_as_read_again(log, reading)


def test_what_kafka_wrote_is_as_a_second_reading_has_it() -> None:
    """Recorded from Apache Kafka 4.3.1: classic groups and those of KIP-848."""
    reading = Reading(KAFKAS)
    assert {row["protocol"] for row in reading.rebalances} == {"classic", "consumer"}
    assert_as_read_again(KAFKAS, reading)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_whole_lives_in_kafka_are_as_a_second_reading_has_them(protocol: str) -> None:
    """Members that come, take over from each other, change their minds, go, and come back: moves, epochs and owners."""
    reading = Reading(LIVED, names=NAMES)
    assert_as_read_again(LIVED, reading)
    rebalances_here = [row for row in reading.rebalances if row["protocol"] == protocol]
    assert len(rebalances_here) >= 12 and {row["outcome"] for row in rebalances_here} >= {"stable", "empty"}
    assert any(move["old_owner"] for row in rebalances_here for move in row["moved"]), "somebody took over from another"
    held = {row["topic"] for row in reading.intervals if row["group_id"] == f"busy-{protocol}"}
    assert held == {"orders", "payments"}
    assert {row["group_id"] for row in reading.generations if row["tombstone"]} == {
        "static-classic",
        "static-consumer",
    }


def test_members_of_kip_848_hold_what_they_have_yet_to_give_back() -> None:
    """A target (type 7) is a effect; who owns what is said by the members' current assignments (type 8)."""
    found = [read_consumer_group_record(one.key, one.value) for one in LIVED]
    current = [one.value for one in found if one is not None and isinstance(one.value, CurrentAssignment)]
    assert {value.state for value in current} >= {0, 1}, "somebody had to give something back"
    assert any(value.pending_revocation for value in current)
    reading = Reading(LIVED, names=NAMES)
    by_place: dict[Any, list[Any]] = {}
    for row in reading.intervals:
        if row["group_id"].endswith("consumer"):
            by_place.setdefault((row["group_id"], row["topic"], row["partition"]), []).append(row)
    for held in by_place.values():
        in_turn = sorted(held, key=lambda row: (row["began_ms"], row["ended_ms"]))
        assert all(one["ended_ms"] <= two["began_ms"] for one, two in pairwise(in_turn)), "two had it at once"


@settings(max_examples=20)
@given(st.lists(st.integers(0, 5_000), max_size=12), st.sampled_from(["lived", "kafkas", "busy"]))
def test_where_a_batch_ends_makes_no_difference(stops: list[int], which: str) -> None:
    log = {"lived": LIVED, "kafkas": KAFKAS}.get(which) or busy_log()[0][:1_500]
    whole, parts = Reading(log), Reading(log, [stop % len(log) for stop in stops])
    assert intervals(parts.intervals) == intervals(whole.intervals)
    assert intervals(parts.lasting()) == intervals(whole.lasting())
    assert sorted(map(repr, parts.rebalances)) == sorted(map(repr, whole.rebalances))
    assert sorted(map(repr, parts.generations)) == sorted(map(repr, whole.generations))


@settings(max_examples=10)
@given(st.sets(st.integers(0, 10_000), max_size=8))
def test_observed_rebalances_are_those_of_the_ledger_wherever_a_batch_ends(stops: set[int]) -> None:
    facts = [fact for fact in busy_log()[1] if fact.group_id == "group-0"]
    state, found = GroupRebuilder("group-0"), []
    places = {stop % len(facts) for stop in stops}
    for number, fact in enumerate(facts):
        if number in places:
            found += state.rows.rebalances
            state = GroupRebuilder.from_json("group-0", {}, state.to_json())
        state.fact(write_fact(fact), LogPosition(0, number, fact.at_ms))
    found += state.rows.rebalances
    expected = [observed_rebalance(one) for one in fold(facts) if one.ended_ms is not None]
    assert len(expected) > 100
    assert [{name: row[name] for name in expected[0]} for row in found] == expected


# --- what a log may lack ----------------------------------------------------------------------------------------------


def stored(generation: int, members: dict[str, list[int]], **more: Any) -> StoredGroup:
    return StoredGroup(
        "consumer",
        generation,
        "range",
        next(iter(members), None),
        900 + generation,
        tuple(
            StoredMember(
                name,
                more.get("instance"),
                "client",
                "/host",
                60_000,
                30_000,
                write_subscription(Subscription(["t"])),
                write_assignment(Assignment({"t": numbers})),
            )
            for name, numbers in members.items()
        ),
    )


def read(*values: StoredGroup | None) -> GroupRebuilder:
    state = GroupRebuilder("g")
    for number, value in enumerate(values):
        state.record(*write_record(GroupRecord("g", value)), LogPosition(0, number, 1_000 + number * 10))
    return state


def test_generations_that_are_not_in_the_log_are_counted_and_not_made_up() -> None:
    rows = read(stored(3, {"a": [0, 1]}), stored(7, {"a": [0], "b": [1]})).rows
    assert [(row["generation"], row["missing"]) for row in rows.generations] == [(3, None), (7, 3)]
    assert "not known" in rows.generations[0]["note"]
    (only,) = rows.rebalances
    assert (only["from_generation"], only["generation"], only["missing"]) == (3, 7, 3)
    assert only["came"] == ["b"] and only["cause"] == "1 member joined; 3 generations were not logged"
    assert only["unassigned_ms"] is None, "what the log does not tell is not 0"
    assert only["duration_ms"] == 1_010 - 907


def test_a_group_that_begins_in_the_log_has_its_first_rebalance_told() -> None:
    (only,) = read(stored(0, {}), stored(1, {"a": [0]})).rows.rebalances
    assert only["came"] == ["a"] and only["moved"][0]["old_owner"] == ""


def test_a_lower_generation_is_a_new_life() -> None:
    rows = read(stored(8, {"a": [0]}), stored(1, {"b": [0]})).rows
    assert [row["ended_by"] for row in rows.intervals] == ["group gone"]
    assert "created again" in rows.generations[1]["note"]


def test_a_static_member_under_a_new_id_is_no_rebalance() -> None:
    rows = read(stored(2, {"a": [0]}, instance="i"), stored(2, {"b": [0]}, instance="i")).rows
    assert rows.rebalances == []
    assert "static" in rows.generations[1]["note"]
    assert rows.intervals[0]["ended_by"] == "moved"


def test_a_deleted_group_holds_nothing() -> None:
    state = read(stored(2, {"a": [0]}), None)
    assert state.state()["state"] == "Gone" and state.state()["owners"] == []
    assert state.rows.generations[-1]["tombstone"] and state.rows.intervals[0]["ended_by"] == "group gone"


def test_partitions_nobody_held_for_a_while_are_counted() -> None:
    """Given up in one rebalance and taken in the next, as cooperative members do."""
    rows = read(stored(2, {"a": [0, 1]}), stored(3, {"a": [0]}), stored(4, {"a": [0], "b": [1]})).rows
    last = rows.rebalances[-1]
    assert last["unassigned_ms"] == 10 and last["kept"] == 1
    assert [(move["old_owner"], move["new_owner"]) for move in last["moved"]] == [("a", "b")]


def test_members_of_connect_own_nothing_we_can_name() -> None:
    group = stored(1, {"a": [0]})
    group.protocol_type = "connect"
    state = read(group)
    assert state.state()["owners"] == [] and state.rows.generations[0]["note"] is None


def test_bytes_that_tell_nothing_are_refused_and_change_nothing() -> None:
    state = read(stored(2, {"a": [0]}))
    before = state.to_json()
    for key, value in ((b"\0\2\0\1g", b"\0\3\0"), (b"\0\x0a\0\1g", b"")):
        with pytest.raises(MalformedError):
            state.record(key, value, LogPosition(0, 9, 9))
    with pytest.raises(MalformedError):
        state.fact(b"no json", LogPosition(0, 9, 9))
    assert state.to_json() == before


def test_a_memory_of_another_release_is_not_guessed_at() -> None:
    with pytest.raises(CoterieError, match="this release writes"):
        GroupRebuilder.from_json("g", {}, '{"version": 99}')


# --- consumer groups --------------------------------------------------------------------------------------------------


def as_row(one: Rebalance) -> dict[str, Any]:
    """What a row about a rebalance must say, from the ledger."""
    row = observed_rebalance(one)
    wanted = ("from_generation", "generation", "outcome", "began_ms", "ended_ms", "joined_ms", "joined_after")
    return {name: row[name] for name in (*wanted, "revoked_after", "moved", "kept", "unassigned_ms")}


@pytest.mark.parametrize("story", STORIES)
def test_the_log_of_a_consumer_group_has_the_rebalances_that_its_coordinator_told(story: str) -> None:
    """K27: every step is a record; the state is written down and taken up again after each of them."""
    world = STORIES[story]()
    names = {topic_id_text(topic_id.bytes): name for topic_id, name in world.image.topic_names.items()}
    log = [LogRecord(0, at, one.at_ms, one.key, one.value) for at, one in enumerate(world.world.log)]
    rows = Reading(log, range(len(log)), names).rebalances
    told = [one for one in world.world.ledger.rebalances if one.outcome is not RebalanceOutcome.RUNNING]
    assert len(rows) == len(told) >= 1
    for row, one in zip(rows, told, strict=True):
        expected = as_row(one)
        if one.outcome is not RebalanceOutcome.STABLE:
            expected |= {"kept": row["kept"]}  # the ledger does not know
        assert {name: row[name] for name in expected} == expected


def test_what_kafka_wrote_of_consumer_groups_is_as_the_ledger_derives_it() -> None:
    """Recorded from Apache Kafka 4.3.1: two readers of one log, one for tables and one for the report."""
    read = ((one.ms, read_consumer_group_record(one.key, one.value)) for one in LIVED)
    ids = {UUID(bytes=urlsafe_b64decode(f"{text}==")): name for text, name in NAMES.items()}
    told = fold(derived_facts(((ms, one) for ms, one in read if one is not None), ids))
    rows = [row for row in Reading(LIVED, names=NAMES).rebalances if row["protocol"] == "consumer"]
    key = ("group_id", "generation")
    by_key = {tuple(row[name] for name in key): row for row in rows}
    settled = [one for one in told if one.outcome is RebalanceOutcome.STABLE]
    assert len(settled) >= 10 and any(one.revoked_after_ms for one in settled)
    for one in settled:
        row = by_key[one.group_id, one.generation_id]
        expected = as_row(one)
        assert {name: row[name] for name in expected} == expected


def test_a_classic_group_that_was_converted_shows_the_type_of_its_members_and_no_rebalance() -> None:
    """K24: the first rebalance is that of the consumer member that joins."""
    log = [LogRecord(0, at, ms, *write_consumer_group_record(record)) for at, (ms, record) in enumerate(converted())]
    gone = LogRecord(0, 9, 99, *write_consumer_group_record(ConsumerGroupRecord(EPOCH, "g", "", None)))
    reading = Reading([*log, gone])
    (only,) = reading.rebalances
    assert (only["from_generation"], only["came"], only["outcome"]) == (1, ["b"], "superseded by the next rebalance")
    members = reading.generations[0]["members"]
    assert [(one["type"], one["session_timeout_ms"], one["epoch"]) for one in members] == [
        ("classic", 45_000, 1),
        ("consumer", None, None),
    ]


def test_a_static_member_that_restarted_is_told_apart_from_a_newcomer() -> None:
    """K14: its restart was no rebalance, but the next one finds its new id."""
    log = [
        LogRecord(0, at, one.at_ms, one.key, one.value)
        for at, one in enumerate(STORIES["restart_and_newcomer"]().world.log)
    ]
    state = Reading(log).groups["g"]
    assert state.state()["state"] == "Reconciling"
    closing = Reading([*log, log[1]._replace(value=None)]).rebalances[-1]  # the group is deleted
    assert (closing["came"], closing["left"]) == (["b", "a2"], ["a"])
    assert closing["cause"] == "1 member joined, 1 static member rejoined"


def test_a_settled_epoch_has_every_member_at_its_target() -> None:
    """K22: types 6, 7 and 8 of what Apache Kafka 4.3.1 wrote agree with each other."""
    found = [row for row in Reading(LIVED, names=NAMES).generations if row["protocol"] == "consumer"]
    settled = [row for row in found if row.get("settled") and row["members"]]
    assert len(settled) >= 10
    for row in settled:
        assert row["assignment_epoch"] == row["generation"]
        for member in row["members"]:
            assert (member["epoch"], member["state"], member["type"]) == (row["generation"], "Stable", "consumer")
            assert member["assignment"] == member["target"] and member["pending_revocation"] == []


def test_a_group_that_reconciles_shows_who_is_behind() -> None:
    """K22: what a member must give up is in its assignment and not in its target."""
    world = GroupWorld(t=2, topics=1)
    a = world.member("a").joins("t", assignor="range", rack_id="r1")
    world.member("b").joins("t", pattern="top.*", assignor="range")
    a.beats()
    world.world.advance(1)
    world.member("c").joins("t", assignor="range")  # ends the row of the epoch before
    log = [LogRecord(0, at, one.at_ms, one.key, one.value) for at, one in enumerate(world.world.log)]
    names = {topic_id_text(topic_id.bytes): name for topic_id, name in world.image.topic_names.items()}
    reading = Reading(log, names=names)
    row = next(one for one in reading.generations if not one["settled"])
    first = row["members"][0]
    assert (first["member_id"], first["rack_id"], first["assignor"], first["state"]) == (
        *("a", "r1", "range", "UnrevokedPartitions"),
    )
    assert first["pending_revocation"] == [{"topic": "t", "partition": 1}]
    assert first["target"] == [{"topic": "t", "partition": 0}] and len(first["assignment"]) == 2
    assert row["assignor"] == "range"
    assert reading.generations[-1]["regexes"] == [{"regex": "top.*", "topics": ["topics"]}]
    assert reading.groups["g"].state()["state"] == "Reconciling"


def test_a_group_whose_target_is_not_computed_yet_is_assigning() -> None:
    """K2, K4: after a leave nothing computes it until a member heartbeats."""
    world = STORIES["leave"]()
    first_leave = next(at for at, one in enumerate(world.world.log) if one.value is None)
    log = [LogRecord(0, at, one.at_ms, one.key, one.value) for at, one in enumerate(world.world.log)]
    until = next(at for at in range(first_leave, len(log)) if log[at].value is not None) + 1  # the new epoch
    assert Reading(log[:until]).groups["g"].state()["state"] == "Assigning"
    assert Reading(log).groups["g"].state()["state"] == "Stable"
