"""What happens to groups is kept as a topic, read back as facts, and explains the same rounds as the ledger knew."""

from __future__ import annotations

from broker.driver import World
from coterie.apis import metadata
from coterie.broker.kept_facts import WRITE_EVERY_MS
from coterie.errors import ErrorCode
from coterie.facts import Fact, GroupDied, GroupLoaded, OffsetsStored, RoundStarted
from coterie.ledger import fold, read_fact
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.log import MemoryFiles
from coterie.wire.batch import batches
from coterie.wire.records import records
from logs import FaultyFiles


def kept(world: World) -> list[Fact]:
    log = world.node.log(FACTS_TOPIC, 0)
    if log is None:
        return []
    data = log.read(log.log_start, 1 << 20, log.durable_end)
    found = [read_fact(record.value or b"") for at, header in batches(data) for record in records(data, header, at)]
    return [fact for fact in found if fact is not None]


def world_with_a_round(files: MemoryFiles | None = None, **settings: object) -> World:
    world = World(files, {name.replace("_", "."): value for name, value in settings.items()})
    client = world.client()
    client.find_coordinator()
    client.create("t")
    member = client.enter("g")
    client.commit("g", {("t", 0): 7}, member=member)
    return world


def test_facts_are_kept_in_order_and_explain_the_rounds_again() -> None:
    world = world_with_a_round()
    assert kept(world) == [], "many at once, a few times a second"
    world.advance(WRITE_EVERY_MS)
    told = [fact for fact in world.facts if not isinstance(fact, OffsetsStored)]
    assert kept(world) == told and any(isinstance(fact, RoundStarted) for fact in told)
    assert fold(kept(world)) == fold(world.facts)


def test_commits_are_not_among_them() -> None:
    world = world_with_a_round()
    world.advance(WRITE_EVERY_MS)
    assert any(isinstance(fact, OffsetsStored) for fact in world.facts)
    assert not any(isinstance(fact, OffsetsStored) for fact in kept(world))


def test_an_orderly_stop_keeps_the_last_ones_and_the_next_start_goes_on() -> None:
    files = MemoryFiles()
    world = world_with_a_round(files)
    world.stop()
    again = World(files)
    assert isinstance(kept(again)[-1], GroupDied), "that it was unloaded"
    again.advance(WRITE_EVERY_MS)
    assert isinstance(kept(again)[-1], GroupLoaded)


def test_the_topic_is_the_brokers_own() -> None:
    world = world_with_a_round()
    world.advance(WRITE_EVERY_MS)
    client = world.client()
    (topic,) = client.ask(metadata, metadata.Request(topics=[metadata.Topic(name=FACTS_TOPIC)]), 12).topics
    assert topic.is_internal and len(topic.partitions) == 1
    assert client.produce(FACTS_TOPIC, b"x").error is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_nothing_is_kept_if_it_is_not_wanted() -> None:
    world = world_with_a_round(coterie_facts_enable=False)
    world.advance(WRITE_EVERY_MS)
    assert FACTS_TOPIC not in world.node.directory.topics


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
