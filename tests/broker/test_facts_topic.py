"""Facts are kept in a topic and read back; they explain the same rebalances as the ledger did."""

from __future__ import annotations

from broker.driver import World
from coterie.broker.maintenance.facts_topic import WRITE_EVERY_MS
from coterie.errors import ErrorCode
from coterie.facts import Fact, GroupDied, GroupLoaded, GroupUnloaded, OffsetsStored, RebalanceStarted
from coterie.ledger import fold, read_fact
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.protocol.apis import metadata
from coterie.protocol.batch import batches
from coterie.protocol.records import records
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import MemoryFiles, facts_log_config
from logs import FaultyFiles


def kept(world: World) -> list[Fact]:
    log = world.node.replicas.log(FACTS_TOPIC, 0)
    if log is None:
        return []
    data = log.read(log.log_start_offset, 1 << 20, log.durable_end)
    found = [read_fact(record.value or b"") for at, header in batches(data) for record in records(data, header, at)]
    return [fact for fact in found if fact is not None]


def world_with_a_rebalance(files: MemoryFiles | None = None, **settings: object) -> World:
    world = World(files, {name.replace("_", "."): value for name, value in settings.items()})
    client = world.client()
    client.find_coordinator()
    client.create("t")
    member = client.enter("g")
    client.commit("g", {("t", 0): 7}, member=member)
    return world


def test_facts_are_kept_in_order_and_explain_the_rebalances_again() -> None:
    world = world_with_a_rebalance()
    assert kept(world) == [], "many at once, a few times a second"
    world.advance(WRITE_EVERY_MS)
    told = [fact for fact in world.facts if not isinstance(fact, OffsetsStored)]
    assert kept(world) == told and any(isinstance(fact, RebalanceStarted) for fact in told)
    assert fold(kept(world)) == fold(world.facts)


def test_commits_are_not_among_them() -> None:
    world = world_with_a_rebalance()
    world.advance(WRITE_EVERY_MS)
    assert any(isinstance(fact, OffsetsStored) for fact in world.facts)
    assert not any(isinstance(fact, OffsetsStored) for fact in kept(world))


def test_an_orderly_stop_keeps_the_last_ones_and_the_next_start_goes_on() -> None:
    files = MemoryFiles()
    world = world_with_a_rebalance(files)
    world.stop()
    again = World(files)
    assert isinstance(kept(again)[-1], GroupUnloaded), "that it was unloaded"
    again.advance(WRITE_EVERY_MS)
    assert isinstance(kept(again)[-1], GroupLoaded)


def test_the_topic_is_the_brokers_own() -> None:
    world = world_with_a_rebalance()
    world.advance(WRITE_EVERY_MS)
    client = world.client()
    (topic,) = client.ask(metadata, metadata.Request(topics=[metadata.Topic(name=FACTS_TOPIC)]), 12).topics
    assert topic.is_internal and len(topic.partitions) == 1
    assert client.produce(FACTS_TOPIC, b"x").error is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_nothing_is_kept_if_it_is_not_wanted() -> None:
    world = world_with_a_rebalance(coterie_facts_enable=False)
    world.advance(WRITE_EVERY_MS)
    assert FACTS_TOPIC not in world.cluster.directory.topics


def test_they_are_bounded_by_size_and_a_flood_does_not_wait_for_the_next_look() -> None:
    """Also a topic that an earlier version created, whose own configs say nothing of it."""
    files = MemoryFiles()
    most = 4 << 20
    world = World(files, {"coterie.facts.retention.bytes": most, "log.retention.check.interval.ms": 10**9})
    for number in range(40):
        fact = GroupDied(world.now_ms, "g", f"{number} " + "x" * 300_000)
        world.cluster.facts_topic.add(fact, world.now_ms)
        world.advance(WRITE_EVERY_MS)
    log = world.node.replicas.log(FACTS_TOPIC, 0)
    assert log is not None and log.log_end_offset == 40
    assert 0 < log.size <= most + (2 << 20)
    assert (
        log.log_start_offset > 20 and [fact.why.split()[0] for fact in kept(world) if isinstance(fact, GroupDied)][-1:]
    )
    assert world.cluster.directory.topics[FACTS_TOPIC].configs == {}


def test_the_topics_own_retention_goes_first() -> None:
    settings = BrokerSettings.of({"coterie.facts.retention.bytes": 1 << 20})
    assert facts_log_config({}, settings).retention_bytes == 1 << 20
    assert facts_log_config({"retention.bytes": "5000000"}, settings).retention_bytes == 5_000_000
    assert facts_log_config({}, BrokerSettings.of({"coterie.facts.retention.bytes": -1})).retention_bytes == -1


def test_a_disk_that_refuses_them_is_told_of_and_the_groups_go_on() -> None:
    files = FaultyFiles()
    world = World(files)
    client = world.client()
    client.find_coordinator()
    member = client.enter("g")
    files.room = 0
    world.advance(WRITE_EVERY_MS)
    assert any("facts about groups could not be kept" in trouble for trouble in world.troubles)
    assert client.heartbeat("g", member.member_id, 1) is ErrorCode.NONE
