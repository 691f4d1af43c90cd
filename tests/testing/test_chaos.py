"""Chaos: what a seed draws is always the same, a failing run is made as short as it can be, and can be pasted."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from coterie import Consumer
from coterie.errors import CoterieError, KafkaError
from coterie.facts import Cause
from coterie.testing import FaultNotFiredError, KafkaBroker, chaos
from coterie.testing.chaos_runs import PlannedFault, _experiment, _Run, draw
from testing.consumers import LIBRARIES, members

# --- drawing ----------------------------------------------------------------------------------------------------------

DRAWN: list[list[str]] = [
    [
        'kafka_broker.faults.on("Heartbeat", nth=1).expire_member()',
        'kafka_broker.faults.on("Heartbeat", nth=2).answer("COORDINATOR_LOAD_IN_PROGRESS")',
        'kafka_broker.faults.on("FindCoordinator", nth=2).answer("COORDINATOR_LOAD_IN_PROGRESS")',
        'kafka_broker.faults.on("SyncGroup", nth=2).answer("COORDINATOR_LOAD_IN_PROGRESS", times=3)',
        'kafka_broker.faults.on("SyncGroup", nth=2).move_coordinator()',
    ],
    [
        'kafka_broker.faults.on("OffsetCommit", nth=1).move_coordinator()',
    ],
    [
        'kafka_broker.faults.on("JoinGroup", nth=1).move_coordinator()',
        'kafka_broker.faults.on("OffsetCommit", nth=3).move_coordinator()',
        'kafka_broker.faults.on("OffsetFetch", nth=2).lose_answer()',
        'kafka_broker.faults.on("JoinGroup", nth=3).answer("COORDINATOR_NOT_AVAILABLE", times=2)',
        'kafka_broker.faults.on("OffsetFetch", nth=1).move_coordinator()',
    ],
    [
        'kafka_broker.faults.on("Heartbeat", nth=1).answer("COORDINATOR_NOT_AVAILABLE", times=2)',
        'kafka_broker.faults.on("Fetch", nth=1).drop_connection()',
    ],
]


def test_a_seed_always_draws_the_same_faults() -> None:
    assert [list(map(str, draw(seed))) for seed in range(4)] == DRAWN
    assert [draw(seed) for seed in range(50)] == [draw(seed) for seed in range(50)]
    assert len({tuple(draw(seed)) for seed in range(200)}) > 180


def test_all_that_is_drawn_can_be_a_fault() -> None:
    broker = KafkaBroker()
    drawn = [one for seed in range(300) for one in draw(seed)]
    assert all(one.on(broker).what for one in drawn)
    assert {one.action for one in drawn} == {
        "drop_connection",
        "lose_answer",
        "delay",
        "answer",
        "expire_member",
        "move_coordinator",
    }
    assert "move_coordinator" not in {one.action for seed in range(300) for one in draw(seed, nodes=1)}
    newer = {one.api for seed in range(300) for one in draw(seed, protocol="consumer")}
    assert "ConsumerGroupHeartbeat" in newer and not newer & {"JoinGroup", "SyncGroup", "Heartbeat"}
    assert max(len(draw(seed, faults=3)) for seed in range(300)) == 3


# --- making a run shorter ---------------------------------------------------------------------------------------------

FAULTS = [PlannedFault("JoinGroup", number, "drop_connection") for number in range(1, 6)]


def _fail_with(*needed: PlannedFault, fires: Sequence[PlannedFault] = FAULTS) -> tuple[AssertionError, int]:
    """Run an experiment whose test fails if these faults are there; return its failure, and how many runs it took."""
    runs = 0
    experiment = _experiment([3, 7], lambda seed: FAULTS if seed == 7 else FAULTS[:1], shrink=True)
    plan = next(experiment)
    while True:
        runs += 1
        run = _Run(plan, hits=[int(one in fires) for one in plan])
        if set(needed) <= set(plan) and len(plan) != 1 + (not needed):
            run.error = AssertionError(f"failed with {len(plan)}")
        try:
            plan = experiment.send(run)
        except AssertionError as error:
            return error, runs


def test_faults_are_left_out_until_none_can_be() -> None:
    error, _ = _fail_with(FAULTS[1], FAULTS[4])
    assert str(error) == "failed with 2"
    (note,) = error.__notes__
    assert "chaos: seed 7 failed" in note and "--coterie-seed 7" in note
    assert _pasted(note) == [str(FAULTS[1]), str(FAULTS[4])]


def test_faults_that_did_not_fire_are_left_out_at_once() -> None:
    error, runs = _fail_with(FAULTS[0], FAULTS[1], fires=FAULTS[:2])
    assert runs == 1 + 1 + 1 + 2  # seed 3, seed 7, the two that fired, each of them alone
    assert _pasted(error.__notes__[0]) == [str(FAULTS[0]), str(FAULTS[1])]
    assert f"{FAULTS[4]}  # did not fire" in error.__notes__[0]


def _pasted(note: str) -> list[str]:
    code = re.search(r"    with \(\n((?: {8}.*,\n)+)    \):", note)
    return [] if code is None else [line.strip().removesuffix(",") for line in code[1].splitlines()]


def test_a_test_that_fails_without_faults_is_said_to() -> None:
    @chaos(seeds=[4])
    def test(kafka_broker: KafkaBroker) -> None:
        assert kafka_broker.topic("orders").partitions == 1

    with pytest.raises(AssertionError) as failure:
        test()
    assert "fails without any fault as well" in failure.value.__notes__[0] and not _pasted(failure.value.__notes__[0])


# --- a consumer with a mistake ----------------------------------------------------------------------------------------


def _reads_some_records_again(broker: KafkaBroker) -> list[bytes]:
    """Process ten records, and commit each. When a commit fails, it is forgotten that the record was processed."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers},
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=1,
    )
    processed: list[bytes] = []
    consumer.subscribe(["orders"])
    with consumer:
        while broker.group("billing").committed.get("orders-0", 0) < 10:
            for record in consumer.poll(0.05):
                processed.append(record.value or b"")
                with suppress(KafkaError):
                    consumer.commit({(record.topic, record.partition): record.offset + 1})
    return processed


def _each_is_processed_once(kafka_broker: KafkaBroker) -> None:
    kafka_broker.produce("orders", [b"%d" % number for number in range(10)])
    kafka_broker.topic("orders").assert_processed_once(_reads_some_records_again(kafka_broker))


def _expires_after_a_commit(fault: PlannedFault) -> bool:
    return (fault.api, fault.action) == ("OffsetCommit", "expire_member")


def test_a_mistake_of_a_consumer_is_found_and_replayed_by_pasting() -> None:
    seed = next(seed for seed in range(1_000) if len(draw(seed)) > 2 and any(map(_expires_after_a_commit, draw(seed))))
    with pytest.raises(AssertionError, match="processed too often") as failure:
        chaos(seeds=[seed], topics={"orders": 1})(_each_is_processed_once)()
    (note,) = failure.value.__notes__
    (pasted,) = _pasted(note)
    assert pasted in [str(fault) for fault in draw(seed) if _expires_after_a_commit(fault)], note
    assert f"seed {seed} failed" in note and "what happened:" in note
    code = f"with (\n    {pasted},\n):\n    test(kafka_broker)"
    with (
        KafkaBroker(topics={"orders": 1}, nodes=2) as broker,
        pytest.raises(AssertionError, match="processed too often"),
    ):
        exec(code, {"kafka_broker": broker, "test": _each_is_processed_once})


@pytest.mark.parametrize("library", ["ours", "confluent-kafka", "kafka-python"])
def test_consumers_without_a_mistake_pass(library: str) -> None:
    @chaos(seeds=[1, 4, 5], topics={"orders": 2})
    def nothing_is_lost(kafka_broker: KafkaBroker) -> None:
        kafka_broker.produce("orders", [b"%d" % number for number in range(10)])
        consumer = LIBRARIES[library](kafka_broker, "a")
        try:
            kafka_broker.group("billing").wait_committed("orders", 0, 10, timeout=60)
        finally:
            consumer.stop()
        assert set(consumer.read) == {b"%d" % number for number in range(10)}

    nothing_is_lost()


# --- how it is used ---------------------------------------------------------------------------------------------------


def test_each_run_has_a_broker_of_its_own_and_the_arguments_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Case:
        @chaos(seeds=3, settings={"num.partitions": 7})
        @pytest.mark.kafka(topics={"orders": 2}, nodes=1)
        def test(self, kafka_broker: KafkaBroker, more: str) -> None:
            assert (
                kafka_broker.topic("orders").partitions == 2 and kafka_broker.create_topic("auto", -1).partitions == 7
            )
            seen.append((kafka_broker, more, kafka_broker.bootstrap_servers.count(",")))

    Case().test(more="x")
    assert len({id(broker) for broker, _, _ in seen}) == 3 and {one[1:] for one in seen} == {("x", 0)}
    monkeypatch.setenv("COTERIE_SEED", "11")
    Case().test(more="y")
    assert len(seen) == 4
    monkeypatch.setenv("COTERIE_SEED", "eleven")
    with pytest.raises(CoterieError, match="COTERIE_SEED is 'eleven'"):
        Case().test(more="z")


def test_a_coroutine_function_is_run_in_the_loop_of_the_test() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @chaos(seeds=2)
    async def test(kafka_broker: KafkaBroker) -> None:
        loops.append(asyncio.get_running_loop())
        await kafka_broker.group("billing").wait_empty_async()
        assert len(loops) < 2, "the second"

    async def main() -> None:
        with pytest.raises(AssertionError, match="the second") as failure:
            await test()
        assert "fails without any fault as well" in failure.value.__notes__[0]
        assert set(loops) == {asyncio.get_running_loop()}

    asyncio.run(main())


def test_a_skip_is_no_failure() -> None:
    runs = []

    @chaos(seeds=5)
    def test(kafka_broker: KafkaBroker) -> None:
        runs.append(kafka_broker)
        pytest.skip("not here")

    with pytest.raises(pytest.skip.Exception):
        test()
    assert len(runs) == 1


def test_what_cannot_be_run_is_refused() -> None:
    with pytest.raises(CoterieError, match="must take the parameter kafka_broker"):
        chaos(seeds=3)(lambda: None)
    wrong: list[dict[str, Any]] = [{"seeds": 0}, {"seeds": []}, {"faults": 0}, {"protocol": "share"}]
    for given in wrong:
        with pytest.raises(CoterieError, match=next(iter(given))):
            chaos(**given)


# --- faults at a request ----------------------------------------------------------------------------------------------


@pytest.mark.kafka(topics={"orders": 2}, nodes=3)
def test_a_coordinator_moves_when_a_request_comes(kafka_broker: KafkaBroker) -> None:
    group = kafka_broker.group("billing")
    with members(kafka_broker, "a"):
        for is_named in (False, True):
            before = kafka_broker.run_on_broker(lambda server: server.coordinator_of("billing"))
            wanted = before % 3 + 1
            node = wanted if is_named else None
            with kafka_broker.faults.on("Heartbeat", group="billing", nth=1).move_coordinator(node) as fault:
                fault.wait_hit(timeout=60)
            moved = kafka_broker.run_on_broker(lambda server: server.coordinator_of("billing"))
            assert moved == wanted and fault.hits[0].error == "NOT_COORDINATOR"
        kafka_broker.produce("orders", [b"x"], partition=0)
        group.wait_committed("orders", 0, 1, timeout=60)


@pytest.mark.kafka(topics={"orders": 2})
def test_a_member_expires_when_a_request_comes(kafka_broker: KafkaBroker) -> None:
    group = kafka_broker.group("billing")
    with members(kafka_broker, "a", "b"):
        with kafka_broker.faults.on("Heartbeat", member="a", nth=1).expire_member() as fault:
            expired = group.wait_rebalance(Cause.SESSION_EXPIRED, timeout=60)
        (hit,) = fault.hits
        assert expired.culprit == hit.member and hit.error == "UNKNOWN_MEMBER_ID"
        group.wait_stable(members=2, timeout=60)


@pytest.mark.kafka(topics={"orders": 1})
def test_requests_without_a_group_or_a_member_are_passed_over(kafka_broker: KafkaBroker) -> None:
    moving = kafka_broker.faults.on("Fetch").move_coordinator()
    expiring = kafka_broker.faults.on("Fetch").expire_member()
    with members(kafka_broker, "a"):
        for fault, why in ((moving, "it names no group"), (expiring, "it has no member id")):
            fault.begin()
            for _ in range(2):  # the second is read by a fetch that began later than the fault
                kafka_broker.produce("orders", [b"x"])
                written = len(kafka_broker.topic("orders").records)
                kafka_broker.group("billing").wait_committed("orders", 0, written, timeout=60)
            with pytest.raises(FaultNotFiredError, match=why):
                fault.end()


def test_pytest_runs_one_seed_and_reports_it(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from coterie.testing import chaos\n\n\n"
        "@chaos(seeds=3)\ndef test_it(kafka_broker, tmp_path):\n"
        "    assert tmp_path.exists()\n    assert kafka_broker.groups\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--coterie-seed", "17", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 1 and "1 failed" in done.stdout, done.stdout
    assert "chaos: seed 17 failed" in done.stdout and "fails without any fault as well" in done.stdout
