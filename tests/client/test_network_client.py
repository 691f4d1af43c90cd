"""The way into a cluster: bootstrap, leaders, lanes, and brokers that come and go."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator

import pytest

import coterie
from client.peers import HANG_UP, Asked, Peer, Run, answer_to, until
from coterie.client.network.network_client import NetworkClient
from coterie.client.network.runtime import background
from coterie.errors import ConnectionLostError, CoterieError, ErrorCode, KafkaError, RequestTimedOutError
from coterie.protocol.apis import find_coordinator, heartbeat, metadata
from coterie.protocol.messages import Heartbeat
from coterie.settings.client_settings import ClientSettings

pytestmark = pytest.mark.real_time

QUICK = {"retry.backoff.ms": 1, "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 5, "retry.backoff.max.ms": 5}
BEAT = Heartbeat(None, "g", "m", None, 1)


@pytest.fixture(scope="module")
def broker() -> Iterator[coterie.Broker]:
    with coterie.Broker() as running:
        yield running


def settings(*servers: str, **more: object) -> ClientSettings:
    return ClientSettings.of({**QUICK, "bootstrap.servers": list(servers)}, **more)


def described(asked: Asked, peer: Peer, *topics: metadata.DescribedTopic, node_id: int = 1) -> bytes:
    brokers = [metadata.Broker(node_id=node_id, host="127.0.0.1", port=peer.port)]
    return answer_to(asked, metadata.Response(brokers=brokers, controller_id=node_id, topics=topics))


def topic(leader: int, error: ErrorCode = ErrorCode.NONE) -> metadata.DescribedTopic:
    part = metadata.DescribedPartition(partition=0, leader_id=leader, replicas=[1], isr=[1])
    return metadata.DescribedTopic(name="t", error=error, partitions=[] if error else [part])


def test_one_server_of_the_list_that_lives_is_enough(run: Run, broker: coterie.Broker) -> None:
    async def story() -> None:
        cluster = NetworkClient(settings("127.0.0.1:1", broker.bootstrap_servers, "127.0.0.1:2"))
        known = await cluster.refresh(["made"], allow_auto_create=True)
        assert set(known.nodes) == {1} and await cluster.controller() == 1
        assert await cluster.leader("made", 0) == 1
        assert (await cluster.find_coordinator("g")).id == 1
        await cluster.close()

    run(story())


def test_when_nobody_answers_each_address_says_why(run: Run) -> None:
    async def story() -> None:
        cluster = NetworkClient(settings("127.0.0.1:1", "127.0.0.1:2", default_api_timeout_ms=100))
        with pytest.raises(RequestTimedOutError) as caught:
            await cluster.refresh()
        assert "cannot connect to 127.0.0.1:1: " in str(caught.value)
        assert "cannot connect to 127.0.0.1:2: " in str(caught.value)
        await cluster.close()

    run(story())


def test_a_request_has_as_long_as_it_says_also_to_connect(run: Run) -> None:
    async def story() -> None:
        async with Peer(lambda _: None, handshakes=False) as mute, Peer(lambda _: None) as silent:
            for peer, said in ((mute, "no answer within 50 ms"), (silent, "did not answer Heartbeat within 50 ms")):
                cluster = NetworkClient(settings(peer.bootstrap))
                if peer is silent:
                    await cluster.connection(-1)
                with pytest.raises(RequestTimedOutError, match=said):
                    await cluster.send_within(-1, heartbeat, BEAT, timeout_ms=50, lane="")
                await cluster.close()

    run(story())


def test_lanes_have_connections_of_their_own_and_share_within(run: Run, broker: coterie.Broker) -> None:
    """Rule M11: a long fetch never delays a heartbeat."""

    async def story() -> None:
        cluster = NetworkClient(settings(broker.bootstrap_servers))
        await cluster.refresh()
        wanted = ["", "", "coordinator", "fetch", "fetch"]
        opened = await asyncio.gather(*(cluster.connection(1, lane) for lane in wanted))
        assert len({id(one) for one in opened}) == 3
        assert opened[0] is opened[1] and opened[3] is opened[4] is await cluster.connection(1, "fetch")
        await cluster.close()
        assert all(one.is_closed for one in opened)

    run(story())


def test_a_leader_is_believed_until_it_is_old_or_expired(run: Run) -> None:
    async def story() -> None:
        leaders = [1, 1, -1]
        async with Peer(lambda asked: described(asked, peer, topic(leaders.pop(0)))) as peer:
            cluster = NetworkClient(peer.settings())
            assert cluster.is_metadata_old
            assert [await cluster.leader("t", 0) for _ in range(3)] == [1, 1, 1] and len(leaders) == 2
            cluster.expire()
            assert await cluster.leader("t", 0) == 1 and len(leaders) == 1
            cluster.expire()
            with pytest.raises(KafkaError, match="the partition has no leader at the moment") as caught:
                await cluster.leader("t", 0)
            assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE and caught.value.retriable
            await cluster.close()

    run(story())


def test_news_of_one_topic_is_no_news_of_another(run: Run) -> None:
    """After a leader moved, each topic is asked for again, whichever is asked for first."""

    async def story() -> None:
        leader = [1]

        def script(asked: Asked) -> object:
            request = metadata.read_request(asked.frame, asked.at, asked.version)
            part = metadata.DescribedPartition(partition=0, leader_id=leader[0], replicas=[1], isr=[1])
            names = [each.name for each in request.topics or ()]
            return described(asked, peer, *(metadata.DescribedTopic(name=name, partitions=[part]) for name in names))

        async with Peer(script) as peer:
            cluster = NetworkClient(peer.settings())
            assert [await cluster.leader(name, 0) for name in "tu"] == [1, 1]
            leader[0] = 2
            cluster.expire()
            assert [await cluster.leader(name, 0) for name in "tu"] == [2, 2]
            assert cluster.knows("t") and not cluster.knows("v")
            await cluster.close()

    run(story())


def test_a_topic_or_partition_that_is_not_there_is_said(run: Run) -> None:
    async def story() -> None:
        error = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        async with Peer(lambda asked: described(asked, peer, topic(1, *error))) as peer:
            cluster = NetworkClient(peer.settings())
            with pytest.raises(KafkaError, match="the topic's ACLs do not allow it"):
                await cluster.leader("t", 0)
            error.clear()
            with pytest.raises(KafkaError, match="t-7: the topic has 1 partitions"):
                await cluster.leader("t", 7)
            await cluster.close()

    run(story())


def test_those_who_ask_the_same_share_one_question(run: Run) -> None:
    async def story() -> None:
        async with Peer(lambda asked: described(asked, peer, topic(1))) as peer:
            cluster = NetworkClient(peer.settings())
            await asyncio.gather(*(cluster.leader("t", 0) for _ in range(20)))
            assert [asked.key for asked in peer.asked] == [18, 3]
            await cluster.close()

    run(story())


def test_a_broker_that_vanishes_is_found_again(run: Run) -> None:
    async def story() -> None:
        lives = [HANG_UP, HANG_UP]

        def script(asked: Asked) -> object:
            if asked.key == heartbeat.API.key:
                return lives.pop() if lives else answer_to(asked, ErrorCode.NONE)
            return described(asked, peer)

        async with Peer(script) as peer:
            cluster = NetworkClient(peer.settings())
            await cluster.refresh()

            async def beat() -> ErrorCode:
                answer: ErrorCode = await cluster.send(1, heartbeat, BEAT, lane="coordinator")
                return answer

            with pytest.raises(ConnectionLostError):
                await beat()
            assert await cluster.retry(beat, what="beating") is ErrorCode.NONE
            await cluster.close()

    run(story())


def test_a_call_that_never_works_ends_in_time_and_says_what_it_met(run: Run) -> None:
    async def story() -> None:
        async with Peer(lambda asked: described(asked, peer, topic(-1))) as peer:
            cluster = NetworkClient(peer.settings())
            with pytest.raises(
                RequestTimedOutError, match=r"reading t: .*LEADER_NOT_AVAILABLE.* \(gave up after 0.06 s\)"
            ):
                await cluster.retry(lambda: cluster.leader("t", 0), what="reading t", timeout_ms=60)
            await cluster.close()

    run(story())


def test_an_error_that_is_for_good_is_not_tried_again(run: Run) -> None:
    async def story() -> None:
        tries: list[int] = []

        async def attempt() -> None:
            tries.append(1)
            raise KafkaError.of(ErrorCode.INVALID_GROUP_ID, "joining")

        cluster = NetworkClient(settings("127.0.0.1:1"))
        with pytest.raises(KafkaError, match="a group needs an id that is not empty"):
            await cluster.retry(attempt, what="joining")
        assert len(tries) == 1
        await cluster.close()

    run(story())


@pytest.mark.parametrize("count", [0, 2])
def test_a_group_has_exactly_one_coordinator(run: Run, count: int) -> None:
    """Rule M11."""

    async def story() -> None:
        found = [find_coordinator.Coordinator(key="g", node_id=1, host="h", port=1)] * count
        async with Peer(lambda asked: answer_to(asked, find_coordinator.Response(coordinators=found))) as peer:
            cluster = NetworkClient(peer.settings())
            with pytest.raises(KafkaError, match=f"the broker named {count}, and a group has exactly one"):
                await cluster.find_coordinator("g")
            await cluster.close()

    run(story())


def test_a_coordinator_that_is_refused_says_the_brokers_words(run: Run) -> None:
    async def story() -> None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        found = [find_coordinator.Coordinator(key="g", error=error, message="still waking up")]
        async with Peer(lambda asked: answer_to(asked, find_coordinator.Response(coordinators=found))) as peer:
            cluster = NetworkClient(peer.settings())
            with pytest.raises(KafkaError, match=re.escape('group "g": still waking up (COORDINATOR_NOT')) as caught:
                await cluster.find_coordinator("g")
            assert caught.value.retriable
            await cluster.close()

    run(story())


def test_a_cluster_that_moved_is_found_by_its_bootstrap_servers(run: Run) -> None:
    """KIP-899: metadata.recovery.strategy=rebootstrap; with none, only the nodes that were told are tried."""

    async def story() -> None:
        told_away = metadata.Response(
            brokers=[metadata.Broker(node_id=7, host="127.0.0.1", port=1)], controller_id=7, topics=[]
        )
        async with Peer(lambda asked: answer_to(asked, told_away)) as peer:
            cluster = NetworkClient(peer.settings())
            await cluster.refresh()
            await cluster.refresh()
            await cluster.close()
            stubborn = NetworkClient(
                peer.settings(**{"metadata.recovery.strategy": "none", "default.api.timeout.ms": 2000})
            )
            await stubborn.refresh()
            with pytest.raises(RequestTimedOutError, match=re.escape("cannot connect to 127.0.0.1:1")):
                await stubborn.refresh()
            await stubborn.close()

    run(story())


def test_a_node_that_comes_back_elsewhere_is_followed(run: Run) -> None:
    async def story() -> None:
        async with Peer(lambda asked: answer_to(asked, ErrorCode.NONE)) as second:
            async with Peer(lambda asked: described(asked, peers[0])) as first:
                peers = [first]
                cluster = NetworkClient(first.settings())
                await cluster.refresh()
                before = await cluster.connection(1)
                peers[0] = second
                await cluster.refresh()
                after = await cluster.connection(1)
                assert (before.address.port, after.address.port) == (first.port, second.port)
                assert before.is_closed and await cluster.send(1, heartbeat, BEAT) is ErrorCode.NONE
            await cluster.close()

    run(story())


def test_a_node_nobody_has_heard_of_is_said(run: Run, broker: coterie.Broker) -> None:
    async def story() -> None:
        cluster = NetworkClient(settings(broker.bootstrap_servers))
        with pytest.raises(ConnectionLostError, match="the cluster has no node 99 at the moment"):
            await cluster.send(99, heartbeat, BEAT)
        await cluster.close()

    run(story())


def test_close_ends_what_is_under_way_and_whoever_waits_is_told(run: Run) -> None:
    async def story() -> None:
        async with Peer(lambda _: None, handshakes=False) as peer:
            cluster = NetworkClient(peer.settings())
            waiting = [asyncio.ensure_future(cluster.refresh([name])) for name in "ab"]
            await until(lambda: peer.connections == 1)
            await cluster.close()
            await cluster.close()
            for each in waiting:
                with pytest.raises(CoterieError, match="this client is closed"):
                    await each
            with pytest.raises(CoterieError, match="this client is closed"):
                await cluster.send(None, heartbeat, BEAT)

    run(story())


def test_one_who_is_cancelled_does_not_spoil_it_for_the_others(run: Run) -> None:
    async def story() -> None:
        async with Peer(lambda asked: described(asked, peer, topic(1))) as peer:
            cluster = NetworkClient(peer.settings())
            impatient, patient = (asyncio.ensure_future(cluster.leader("t", 0)) for _ in range(2))
            await asyncio.sleep(0)
            impatient.cancel()
            assert await patient == 1 and impatient.cancelled()
            await cluster.close()

    run(story())


# The thread of the synchronous faces


def test_the_thread_runs_coroutines_for_those_who_have_none(broker: coterie.Broker) -> None:
    async def story() -> int:
        cluster = NetworkClient(settings(broker.bootstrap_servers))
        try:
            return await cluster.controller()
        finally:
            await cluster.close()

    assert background().run(story()) == 1
    assert background() is background()


def test_the_thread_does_not_wait_for_itself() -> None:
    async def nothing() -> None: ...

    async def asks_itself() -> None:
        background().run(nothing())

    with pytest.raises(CoterieError, match="would wait for itself"):
        background().run(asks_itself())


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_has_a_thread_of_its_own_and_old_clients_say_so() -> None:
    async def pid() -> int:
        return os.getpid()

    before = background()
    child = os.fork()
    if not child:
        status = 1
        try:
            fresh = background()
            with pytest.raises(CoterieError, match="before the process forked"):
                before.run(pid())
            status = 0 if fresh is not before and fresh.run(pid()) == os.getpid() else 2
        finally:
            os._exit(status)
    signal.alarm(20)
    assert os.waitpid(child, 0)[1] == 0
    signal.alarm(0)
