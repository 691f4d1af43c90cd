"""The broker on real sockets: as a process, and as an object in this one."""

from __future__ import annotations

import contextlib
import gc
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from apache_kafka import free_ports
from broker.peer import Peer, Serving
from coterie import Broker
from coterie.broker.broker_facts import ConnectionDropped, Trouble
from coterie.broker.io.server import Server
from coterie.errors import CoterieError, ErrorCode
from coterie.facts import Fact
from coterie.protocol.apis import api_versions, describe_cluster, heartbeat, join_group, offset_fetch
from coterie.protocol.frames import request_frame
from coterie.protocol.messages import Heartbeat, OffsetFetch

pytestmark = pytest.mark.real_time

QUICK = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2}
QUICK_SETS = [f"--set={name}={value}" for name, value in QUICK.items()]
VERSIONS = api_versions.Request(client_software_name="tester", client_software_version="1")


@pytest.fixture
def facts() -> list[Fact]:
    return []


@pytest.fixture
def broker(facts: list[Fact]) -> Iterator[Broker]:
    with Broker(settings=QUICK, on_fact=facts.append) as broker:
        yield broker


@pytest.fixture
def peer(broker: Broker) -> Iterator[Peer]:
    with Peer(broker.bootstrap_servers) as peer:
        yield peer


def is_alive(broker: Broker) -> bool:
    with Peer(broker.bootstrap_servers) as peer:
        return not peer.ask(api_versions, VERSIONS).error


def server_of(broker: Broker) -> Server:
    """What a test may look at to know what a connection costs."""
    number = broker._ports[0]
    (found,) = [one for one in gc.get_objects() if isinstance(one, Server) and one.ports and one.port.number == number]
    return found


# --- as a process -----------------------------------------------------------------------------------------------------


def test_it_says_where_it_listens_and_answers_there(tmp_path: Path) -> None:
    with Serving(tmp_path / "data", *QUICK_SETS) as broker:
        address = broker.ready()
        assert address.startswith("127.0.0.1:") and not address.endswith(":0")
        with Peer(address) as peer:
            (found,) = peer.ask(describe_cluster, describe_cluster.Request()).brokers
            assert f"{found.host}:{found.port}" == address
            peer.find_coordinator()
            peer.create("t")
            assert peer.produce("t", b"a").base_offset == 0
        broker.signal()
        status, said = broker.ended()
    assert status == 0 and "Traceback" not in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_answers_whoever_waits_and_leaves_the_directory_clean(tmp_path: Path, number: signal.Signals) -> None:
    with Serving(tmp_path / "data", *QUICK_SETS) as broker:
        address = broker.ready()
        with Peer(address) as peer, Peer(address) as joiner, Peer(address) as reader:
            peer.find_coordinator()
            peer.create("t")
            peer.produce("t", b"a")
            member = peer.enter("g")
            newcomer = joiner.join("g")
            joiner.send_join("g", newcomer.member_id)
            reader.send_fetch("t", 1, max_wait_ms=600_000)
            assert peer.heartbeat("g", member.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS  # all have arrived
            began = time.perf_counter()
            broker.signal(number)
            assert joiner.answer().error is ErrorCode.NOT_COORDINATOR
            assert not reader.fetched().error
            assert peer.is_closed_by_broker() and reader.is_closed_by_broker()
        status, said = broker.ended()
        took = time.perf_counter() - began
    assert status == 0 and "Traceback" not in said
    assert took < 25  # nobody waits for the fetch, which would be ten minutes, or for the other join
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with Serving(tmp_path / "data", *QUICK_SETS) as again, Peer(again.ready()) as peer:
        assert peer.read_all("t") == [(0, b"a")]
        assert peer.heartbeat("g", member.member_id, 1) is ErrorCode.NONE


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """The first waits for a client that does not read; the second for nobody."""
    with Serving(tmp_path / "data", *QUICK_SETS) as broker:
        address = broker.ready()
        with Peer(address) as peer, Peer(address) as deaf:
            peer.create("t")
            deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.produce("t", bytes(900_000))
            for _ in range(20):
                deaf.send_fetch("t", 0, max_bytes=10_000_000)
            assert not peer.ask(api_versions, VERSIONS).error
            broker.signal()
            assert peer.is_closed_by_broker()  # so the first has arrived
            assert broker.process.poll() is None
            broker.signal()
            status, _ = broker.ended()
    assert status == 1  # it did not wait for the first to end, which would be 0


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Serving(tmp_path / "data", port=port) as broker:
            status, said = broker.ended()
    assert status == 1
    assert said.startswith("coterie: cannot listen on") and str(port) in said and "in use" in said
    assert "Traceback" not in said
    assert not (tmp_path / "data").exists(), "who gets no port makes no directory"


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("no.such.host.invalid", "a name or an address of this machine"),
        ("a..b", "a name or an address of this machine"),
        ("192.0.2.1", "a name or an address of this machine"),
        ("0.0.0.0", "no client can connect to it"),
    ],
)
def test_a_host_that_cannot_be_listened_on_is_told(tmp_path: Path, host: str, why: str) -> None:
    with Serving(tmp_path / "data", "--host", host) as broker:
        status, said = broker.ended()
    assert status == 1 and said.startswith("coterie: ") and host in said and why in said and "Traceback" not in said
    assert not (tmp_path / "data").exists()


def test_an_address_of_ipv6_stands_in_brackets() -> None:
    with Serving(None, "--host", "::1") as broker:
        address = broker.ready()
        assert address.startswith("[::1]:")
        with Peer(address) as peer:
            (found,) = peer.ask(describe_cluster, describe_cluster.Request()).brokers
            assert (found.host, f"[::1]:{found.port}") == ("::1", address)
    with Broker(host="::1") as object_:
        assert object_.bootstrap_servers.startswith("[::1]:") and is_alive(object_)


def test_a_data_directory_that_is_in_use_is_told(tmp_path: Path) -> None:
    with Serving(tmp_path / "data") as first:
        first.ready()
        with Serving(tmp_path / "data") as second:
            status, said = second.ended()
    assert status == 1 and "in use" in said and "Traceback" not in said


@pytest.mark.parametrize("name", ["something-else", "meta.properties"])
def test_a_data_directory_that_is_not_ours_is_not_touched(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("dear diary")
    with Serving(tmp_path) as broker:
        status, said = broker.ended()
    assert status == 1 and name in said and "Traceback" not in said
    assert (tmp_path / name).read_text() == "dear diary"


def test_a_data_directory_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Serving(tmp_path / "file") as broker:
        status, said = broker.ended()
    assert status == 1 and "file" in said and "Traceback" not in said


# --- as an object -----------------------------------------------------------------------------------------------------


def test_several_brokers_live_in_one_process() -> None:
    with Broker(settings=QUICK) as one, Broker(settings=QUICK) as other:
        assert one.bootstrap_servers != other.bootstrap_servers
        with Peer(one.bootstrap_servers) as a, Peer(other.bootstrap_servers) as b:
            a.create("t")
            b.create("t")
            a.produce("t", b"mine")
            assert (a.read_all("t"), b.read_all("t")) == ([(0, b"mine")], [])


def test_a_broker_is_stopped_and_started_on_the_same_directory(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data", QUICK)
    values: list[tuple[int, bytes]] = []
    for life in range(3):
        with broker, Peer(broker.bootstrap_servers) as peer:
            if not life:
                peer.create("t")
                peer.find_coordinator()
            assert peer.read_all("t") == values
            values.append((life, b"%d" % life))
            assert peer.produce("t", b"%d" % life).base_offset == life
            assert peer.commit("g", {("t", 0): life}) == [ErrorCode.NONE]
            assert peer.offsets_of("g") == {("t", 0): life}
        broker.stop()  # a second stop does nothing


def test_a_broker_that_is_not_running_has_no_address_and_one_that_is_cannot_start(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data", QUICK)
    with pytest.raises(CoterieError, match="not running"):
        _ = broker.bootstrap_servers
    with broker:
        with pytest.raises(CoterieError, match="running already"):
            broker.start()
        with pytest.raises(CoterieError, match="in use"), Broker(tmp_path / "data", QUICK):
            pass
        assert is_alive(broker)


def test_a_broker_whose_port_is_taken_can_be_started_when_it_is_free(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    taken = socket.create_server(("127.0.0.1", port))
    broker = Broker(tmp_path / "data", QUICK, port=port)
    with pytest.raises(CoterieError, match="in use"):
        broker.start()
    taken.close()
    with broker:
        assert is_alive(broker)


THREADS = ("broker", "disk", "tasks", "background")
"""Those of a broker; consumers and Spark queries of other tests have theirs."""


def threads_of_brokers() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(tuple(f"coterie-{one}" for one in THREADS))]


def test_a_broker_that_cannot_start_leaves_no_thread_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.txt").write_text("")
    broker = Broker(tmp_path / "data", QUICK)
    for _ in range(2):
        with pytest.raises(CoterieError, match=r"thesis\.txt"):
            broker.start()
        with pytest.raises(CoterieError, match="not running"):
            _ = broker.bootstrap_servers
        broker.stop()
    assert threads_of_brokers() == []
    (tmp_path / "data" / "thesis.txt").unlink()
    with broker:
        assert is_alive(broker)


def test_a_broker_whose_groups_cannot_be_read_lets_go_of_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(tmp_path / "data", QUICK)
    with monkeypatch.context() as patch:
        patch.setattr("coterie.broker.group_service.GroupService.load_all", lambda _self, _now_ms: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            broker.start()
    assert threads_of_brokers() == []
    with broker:  # port and directory are free
        assert is_alive(broker)


def test_a_stop_before_the_start_and_two_at_once_do_no_harm() -> None:
    broker = Broker(settings=QUICK)
    broker.stop()
    broker.start()
    stops = [threading.Thread(target=broker.stop) for _ in range(3)]
    for stop in stops:
        stop.start()
    for stop in stops:
        stop.join()
    assert threads_of_brokers() == []
    with broker:
        assert is_alive(broker)


# --- what a client may send -------------------------------------------------------------------------------------------

GARBAGE = {
    "a request of the web": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a greeting of TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "two GiB announced": struct.pack(">i", 2**31 - 1) + bytes(100),
    "a negative size": struct.pack(">i", -5) + bytes(100),
    "one byte too much announced": struct.pack(">i", 104_857_601),
    "an unknown API": request_frame(9_999, 0, 1, "x", b"", flexible=False),
    "an unsupported version": request_frame(12, 99, 1, "x", b"", flexible=True),
    "a body that ends early": request_frame(11, 9, 1, "x", b"\x03g", flexible=True),
    "an empty frame": struct.pack(">i", 0),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_a_connection_that_talks_nonsense_ends_and_no_other_notices(
    broker: Broker, peer: Peer, facts: list[Fact], what: str
) -> None:
    """C5, C7: with one fact."""
    with Peer(broker.bootstrap_servers) as other:
        other.socket.sendall(GARBAGE[what])
        assert other.is_closed_by_broker()
    assert not peer.ask(api_versions, VERSIONS).error
    assert len([fact for fact in facts if isinstance(fact, ConnectionDropped)]) == 1


def test_half_a_frame_waits_for_its_other_half(broker: Broker, peer: Peer) -> None:
    whole = peer.frame_of(api_versions, VERSIONS)
    data = struct.pack(">i", len(whole)) + whole
    for byte in data[:-1]:
        peer.socket.sendall(bytes([byte]))
    with Peer(broker.bootstrap_servers) as other:
        assert not other.ask(api_versions, VERSIONS).error
    peer.socket.sendall(data[-1:])
    assert not peer.answer().error


def test_half_a_frame_and_a_hangup_are_no_matter(broker: Broker, facts: list[Fact]) -> None:
    with Peer(broker.bootstrap_servers) as other:
        other.socket.sendall(struct.pack(">i", 1_000_000) + bytes(1000))
    with Peer(broker.bootstrap_servers) as other:
        other.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # ends with a reset
        other.send(api_versions, VERSIONS)
    assert is_alive(broker)
    assert not [fact for fact in facts if isinstance(fact, Trouble)]


def test_many_requests_at_once_are_answered_in_order(peer: Peer) -> None:
    count = 5_000
    one = Heartbeat(None, "g", "nobody", None, 1)
    frames = [peer.frame_of(heartbeat, one) for _ in range(count)]
    peer.socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
    assert {peer.answer() for _ in range(count)} == {ErrorCode.NOT_COORDINATOR}


def test_many_requests_behind_a_parked_one_are_answered_after_it(broker: Broker, peer: Peer) -> None:
    """C6; with acks=0 among them, which have no answers to wake anybody."""
    count = 2_000
    peer.create("t")
    with Peer(broker.bootstrap_servers) as other:
        other.send_fetch("t", 0, max_wait_ms=600_000)
        for number in range(count):
            other.send_produce("t", b"%d" % number * 300, acks=0)
            other.forget()
            if number % 100 == 0:
                other.send(api_versions, VERSIONS)
        peer.produce("t", b"wake up")
        assert other.fetched().records
        assert not any(other.answer().error for _ in range(0, count, 100))
        other.send(api_versions, VERSIONS)
        assert not other.answer().error
        (found,) = [other.fetch("t", 0, max_wait_ms=0)]
        assert found.high_watermark == count + 1


def test_a_client_that_never_reads_costs_a_bounded_memory(broker: Broker, peer: Peer) -> None:
    """It is not answered any more when its buffers are full, then not read any more; the others are."""
    peer.create("t")
    peer.produce("t", bytes(900_000))
    deaf = Peer(broker.bootstrap_servers, timeout_s=0.5)
    deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    frame = deaf.frame_of(heartbeat, Heartbeat(None, "g" * 1_000, "nobody", None, 1))
    data = struct.pack(">i", len(frame)) + frame
    sent = 0
    for _ in range(50):
        deaf.send_fetch("t", 0)
    with contextlib.suppress(TimeoutError):
        while sent < 100_000_000:
            deaf.socket.sendall(data * 100)
            sent += len(data) * 100
    assert sent < 20_000_000, "the broker reads on though nobody reads its answers"
    (link,) = [link for link in server_of(broker).links if link.connection.waiting]
    assert link.transport.get_write_buffer_size() < 3_000_000
    assert link.connection.waiting_bytes < 3_000_000
    assert not peer.ask(api_versions, VERSIONS).error
    deaf.close()
    assert is_alive(broker)


def test_a_client_that_reads_again_gets_everything_in_order(broker: Broker, peer: Peer) -> None:
    peer.create("t")
    peer.produce("t", bytes(900_000))
    with Peer(broker.bootstrap_servers) as slow:
        for _ in range(60):
            slow.send_fetch("t", 0)
        assert not peer.ask(api_versions, VERSIONS).error
        for _ in range(60):
            assert len(slow.fetched().records or b"") > 900_000


def test_there_are_no_more_connections_than_allowed(facts: list[Fact]) -> None:
    with Broker(settings={**QUICK, "max.connections": 3}, on_fact=facts.append) as broker:
        peers = [Peer(broker.bootstrap_servers) for _ in range(3)]
        assert not any(peer.ask(api_versions, VERSIONS).error for peer in peers)
        with Peer(broker.bootstrap_servers) as refused:
            assert refused.is_closed_by_broker()
        assert any(isinstance(fact, ConnectionDropped) and "max.connections" in fact.why for fact in facts)
        peers.pop().close()
        deadline = time.perf_counter() + 60
        while True:
            with Peer(broker.bootstrap_servers) as again, contextlib.suppress(ConnectionError):
                assert not again.ask(api_versions, VERSIONS).error
                break
            assert time.perf_counter() < deadline
        for peer in peers:
            assert not peer.ask(api_versions, VERSIONS).error
            peer.close()


def test_the_ledger_tells_of_a_rebalance(broker: Broker, peer: Peer) -> None:
    peer.find_coordinator()
    peer.enter("g")
    (found,) = peer.ask(offset_fetch, [OffsetFetch(None, "g", None)], 8)
    assert not found.error and join_group.API.key == 11
    assert len(broker.rebalances("g")) == 1


def test_a_connection_that_says_nothing_and_waits_for_nothing_is_closed() -> None:
    """connections.max.idle.ms; whoever waits for an answer is not silent."""
    with (
        Broker(settings={"connections.max.idle.ms": 300}) as broker,
        Peer(broker.bootstrap_servers) as silent,
        Peer(broker.bootstrap_servers) as waiting,
    ):
        waiting.create("t")
        waiting.send_fetch("t", 0, max_wait_ms=1_500)
        assert silent.socket.recv(1) == b""
        assert waiting.fetched().error is ErrorCode.NONE


@pytest.mark.parametrize("name", ["socket.receive.buffer.bytes", "socket.send.buffer.bytes"])
def test_a_connection_has_the_buffers_that_the_settings_name(name: str) -> None:
    """What a client has sent ahead waits in its own buffers, not in ours: as in Kafka, whose default is 100 KiB."""
    option = {"socket.receive.buffer.bytes": socket.SO_RCVBUF, "socket.send.buffer.bytes": socket.SO_SNDBUF}[name]
    for size in (102_400, 30_000):
        with Broker(settings={**QUICK, name: size}) as broker, Peer(broker.bootstrap_servers) as peer:
            assert not peer.ask(api_versions, VERSIONS).error
            (link,) = server_of(broker).port.links
            assert link.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, option) == 2 * size, (
                "Linux doubles what it is asked for, for its own bookkeeping"
            )
