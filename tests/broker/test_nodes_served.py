"""Several nodes on real sockets: their ports, and what becomes of connections when a node stops."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from apache_kafka import free_ports_in_a_row
from broker.peer import Peer, Serving
from coterie import Broker
from coterie.errors import CoterieError, ErrorCode
from coterie.facts import Fact, Mistake
from coterie.protocol.api import ConfigSource, ResourceType
from coterie.protocol.apis import describe_configs, describe_log_dirs, metadata
from coterie.storage import DiskChange, DiskFiles, FlushTarget

pytestmark = pytest.mark.real_time

SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 3}


@pytest.fixture
def facts() -> list[Fact]:
    return []


@pytest.fixture
def broker(facts: list[Fact]) -> Iterator[Broker]:
    with Broker(settings=SETTINGS, nodes=3, on_fact=facts.append) as running:
        yield running
    assert not [fact for fact in facts if isinstance(fact, Mistake)]


def addresses(broker: Broker) -> list[str]:
    return broker.bootstrap_servers.split(",")


def leaders_of(peer: Peer, topic: str) -> list[int]:
    answer = peer.ask(metadata, metadata.Request(topics=[metadata.Topic(name=topic)]))
    return [one.leader_id for one in answer.topics[0].partitions]


def test_each_node_has_a_port_and_all_of_them_are_where_to_begin(broker: Broker) -> None:
    found = addresses(broker)
    assert len(set(found)) == 3
    for address in found:
        with Peer(address) as peer:
            answer = peer.ask(metadata, metadata.Request(topics=[]))
            assert [f"{one.host}:{one.port}" for one in answer.brokers] == found
            assert [one.node_id for one in answer.brokers] == [1, 2, 3]


def test_a_node_that_stops_closes_its_connections_and_no_others_and_listens_again_where_it_did(broker: Broker) -> None:
    first, second, third = (Peer(address) for address in addresses(broker))
    first.create("t", 3)
    assert sorted(leaders_of(third, "t")) == [1, 2, 3]
    broker.stop_node(2)
    assert second.is_closed_by_broker()
    with pytest.raises(ConnectionRefusedError):
        Peer(addresses(broker)[1])
    assert 2 not in leaders_of(first, "t")
    broker.start_node(2)
    assert sorted(leaders_of(third, "t")) == [1, 2, 3]
    with Peer(addresses(broker)[1]) as again:
        number = leaders_of(again, "t").index(2)
        assert again.produce("t", b"a", partition=number).base_offset == 0
    for peer in (first, second, third):
        peer.close()


def test_who_waits_at_a_node_that_stops_is_answered_before_its_connection_is_closed(broker: Broker) -> None:
    with Peer(addresses(broker)[0]) as client:
        client.create("t", 3)
        node = client.find_coordinator("g").node_id
    address = addresses(broker)[node - 1]
    with Peer(address) as one, Peer(address) as two, Peer(address) as reader:
        one.enter("g", version=3)
        two.send_join("g", version=3)  # waits for the first one to come back
        number = leaders_of(one, "t").index(node)
        reader.send_fetch("t", 0, partition=number, max_wait_ms=60_000)
        leaders_of(one, "t")  # what the others sent has arrived by now, or is answered all the same
        broker.stop_node(node)
        assert two.answer().error is ErrorCode.NOT_COORDINATOR
        assert reader.fetched().error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert all(peer.is_closed_by_broker() for peer in (one, two, reader))


def test_a_produce_and_a_commit_that_wait_for_the_disk_of_a_node_that_stops_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledged is durable; and nobody is left without an answer because the disk was slow."""
    is_slow = threading.Event()
    flush = FlushTarget.run

    def slowly(self: FlushTarget) -> None:
        if is_slow.is_set():
            time.sleep(0.3)
        flush(self)

    monkeypatch.setattr(FlushTarget, "run", slowly)
    with Broker(tmp_path / "data", SETTINGS, nodes=3) as broker:
        with Peer(addresses(broker)[0]) as client:
            client.create("t", 3)
            node = client.find_coordinator("g").node_id
            number = leaders_of(client, "t").index(node)
        address = addresses(broker)[node - 1]
        with Peer(address) as producer, Peer(address) as committer, Peer(address) as third:
            is_slow.set()
            producer.send_produce("t", b"a", partition=number)
            committer.send_commit("g", {("t", 0): 5})
            third.heartbeat("g", "m", 1)
            broker.stop_node(node)
            produced, (committed,) = producer.produced(), committer.committed()
            assert (produced.error, produced.base_offset) == (ErrorCode.NONE, 0)
            assert committed in {ErrorCode.NONE, ErrorCode.NOT_COORDINATOR}
            assert all(peer.is_closed_by_broker() for peer in (producer, committer, third))
        is_slow.clear()
        there = node % 3 + 1
        with Peer(addresses(broker)[there - 1]) as client:
            leader = leaders_of(client, "t")[number]
        with Peer(addresses(broker)[leader - 1]) as client:
            assert client.read_all("t", number) == [(0, b"a")]


def test_stopping_and_starting_many_times_under_load_loses_nothing(tmp_path: Path) -> None:
    """One producer that asks again whom to ask, with a sequence, so that what is sent twice is there once."""
    acknowledged: list[bytes] = []
    stop = threading.Event()
    with Broker(tmp_path / "data", SETTINGS, nodes=3) as broker:
        with Peer(addresses(broker)[0]) as client:
            client.create("t")

        def produce() -> None:
            number = 0
            while not stop.is_set():
                value = b"%d" % number
                if _produce_somewhere(broker, value, (7, 0, number)):
                    acknowledged.append(value)
                    number += 1

        thread = threading.Thread(target=produce)
        thread.start()
        for node in (1, 2, 3, 1, 2, 3, 1, 2, 3):
            before = len(acknowledged)
            broker.stop_node(node)
            while len(acknowledged) < before + 5:
                time.sleep(0.005)
            broker.start_node(node)
        stop.set()
        thread.join()
        with Peer(addresses(broker)[0]) as client:
            leader = leaders_of(client, "t")[0]
        with Peer(addresses(broker)[leader - 1]) as client:
            assert [value for _, value in client.read_all("t")] == acknowledged
    assert len(acknowledged) >= 45


def test_a_node_that_is_started_while_it_stops_is_up_and_listens(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is done whole before the next: when it was asked to start, it was still up."""
    with Peer(addresses(broker)[0]) as peer:
        peer.create("t", 3)
    stops = threading.Event()
    change = DiskChange.run

    def slowly(self: DiskChange[object]) -> None:
        stops.set()
        time.sleep(0.2)
        change(self)

    monkeypatch.setattr(DiskChange, "run", slowly)
    stopping = threading.Thread(target=broker.stop_node, args=[2])
    stopping.start()
    stops.wait()
    broker.start_node(2)
    stopping.join()
    with Peer(addresses(broker)[1]) as peer:
        answer = peer.ask(metadata, metadata.Request(topics=[]))
        assert [one.node_id for one in answer.brokers] == [1, 2, 3]


def _produce_somewhere(broker: Broker, value: bytes, producer: tuple[int, int, int]) -> bool:
    for address in addresses(broker):
        try:
            with Peer(address) as peer:
                if not peer.produce("t", value, producer=producer).error:
                    return True
        except OSError:
            continue
    return False


def test_what_cannot_be_done_is_raised_where_it_is_asked_for(broker: Broker) -> None:
    with pytest.raises(CoterieError, match="no node 9; the nodes are"):
        broker.stop_node(9)
    with pytest.raises(CoterieError, match="no node 9; the nodes are"):
        broker.start_node(9)
    with pytest.raises(CoterieError, match="node 1 is running already"):
        broker.start_node(1)
    with pytest.raises(CoterieError, match="topic 't' has no partition 0"):
        broker.move_partition("t", 0, 2)
    broker.move_coordinator("g", 2)
    with Peer(addresses(broker)[0]) as peer:
        assert peer.find_coordinator("g").node_id == 2
    with pytest.raises(CoterieError, match="0 nodes; a broker has 1 to 100"):
        Broker(nodes=0)
    stopped = Broker(nodes=2)
    with pytest.raises(CoterieError, match="not running"):
        stopped.stop_node(1)


def test_a_node_whose_port_was_taken_meanwhile_does_not_start(broker: Broker) -> None:
    broker.stop_node(3)
    host, _, port = addresses(broker)[2].rpartition(":")
    with socket.create_server((host, int(port))):
        with pytest.raises(CoterieError, match="cannot listen on"):
            broker.start_node(3)
        with Peer(addresses(broker)[0]) as peer:
            assert [one.node_id for one in peer.ask(metadata, metadata.Request(topics=[])).brokers] == [1, 2]
    broker.start_node(3)
    Peer(addresses(broker)[2]).close()


def test_the_command_takes_ports_in_a_row_and_says_all_of_them() -> None:
    with Serving(None, "--nodes", "3", port=(first := free_ports_in_a_row(3))) as served:
        said = served.ready().split(",")
        assert said == [f"127.0.0.1:{first + index}" for index in range(3)]
        with Peer(said[2]) as peer:
            answer = peer.ask(metadata, metadata.Request(topics=[]))
            assert [(one.node_id, one.port) for one in answer.brokers] == [(n, first + n - 1) for n in (1, 2, 3)]
        served.signal()
        assert served.ended()[0] == 0


def test_what_clients_are_told_may_be_another_row_of_ports() -> None:
    with Serving(None, "--nodes", "2", "--advertise", "broker.example.org:19092") as served:
        with Peer(served.ready().split(",")[1]) as peer:
            told = peer.ask(metadata, metadata.Request(topics=[])).brokers
            assert [(one.host, one.port) for one in told] == [
                ("broker.example.org", 19092),
                ("broker.example.org", 19093),
            ]
        served.signal()
        assert served.ended()[0] == 0


def test_if_one_of_the_ports_is_taken_nothing_is_touched(tmp_path: Path) -> None:
    first = free_ports_in_a_row(3)
    with (
        socket.create_server(("127.0.0.1", first + 1)),
        pytest.raises(CoterieError, match=f"cannot listen on 127.0.0.1:{first + 1}"),
    ):
        Broker(tmp_path / "data", port=first, nodes=3).start()
    assert not (tmp_path / "data").exists()
    with pytest.raises(CoterieError, match="the last one is 65535"):
        Broker(port=65_534, nodes=3).start()


def test_the_loop_does_not_wait_for_the_disk_when_leaders_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with everything else that changes the data directory."""
    on_loop: list[str] = []
    rename = DiskFiles.rename

    def watched(self: DiskFiles, old: str, new: str) -> None:
        if threading.current_thread().name == "coterie-broker":
            on_loop.append(new)
        rename(self, old, new)

    with Broker(tmp_path / "data", SETTINGS, nodes=3) as broker:
        with Peer(addresses(broker)[0]) as client:
            client.create("t", 9)
            client.find_coordinator("g")
        monkeypatch.setattr(DiskFiles, "rename", watched)
        broker.stop_node(2)
        broker.move_coordinator("g", 3)
        broker.start_node(2)
        monkeypatch.undo()
    assert on_loop == []
    kept = (tmp_path / "data" / "t-0" / "leader-epoch-checkpoint").read_text()
    assert kept.splitlines()[0] == "0"


def test_a_node_describes_the_settings_it_runs_with(tmp_path: Path) -> None:
    """Its own id, addresses and directory, whether settings or arguments gave them; as in Kafka they were given."""
    with Broker(tmp_path, settings=SETTINGS, nodes=2) as broker:
        for number, address in enumerate(addresses(broker), 1):
            with Peer(address) as peer:
                names = ["node.id", "log.dirs", "listeners", "advertised.listeners"]
                resource = describe_configs.Resource(
                    resource_type=ResourceType.BROKER, resource_name=str(number), configuration_keys=names
                )
                request = describe_configs.Request(resources=[resource], include_synonyms=True)
                configs = {one.name: one for one in peer.ask(describe_configs, request).results[0].configs}
            expected = [str(number), str(tmp_path.resolve()), f"PLAINTEXT://{address}", f"PLAINTEXT://{address}"]
            assert [configs[name].value for name in names] == expected
            assert {one.config_source for one in configs.values()} == {ConfigSource.STATIC_BROKER}
            assert [configs[name].synonyms[0].value for name in names] == expected


def test_the_log_directory_tells_the_space_of_its_disk(tmp_path: Path) -> None:
    asked = describe_log_dirs.Request(topics=None)
    with Broker(tmp_path, settings=SETTINGS) as broker, Peer(addresses(broker)[0]) as peer:
        (found,) = peer.ask(describe_log_dirs, asked).results
        assert found.path == str(tmp_path.resolve())
        assert found.total_bytes >= found.usable_bytes > 0
    with Broker(settings=SETTINGS) as broker, Peer(addresses(broker)[0]) as peer:
        (found,) = peer.ask(describe_log_dirs, asked).results
        assert (found.total_bytes, found.usable_bytes) == (-1, -1), "memory is no disk"
