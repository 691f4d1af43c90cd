"""A mistake of ours, or of whoever listens to us, costs at most the connection that met it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

import coterie
from broker.driver import World
from broker.peer import Peer
from coterie.broker.broker_effects import Close, TimersDue
from coterie.coordinator.classic import Group
from coterie.coordinator.classic.effects import Effects, OffsetsWritten
from coterie.coordinator.offsets.offset_metadata_manager import offsets_written
from coterie.coordinator.runtime.shard import RULES
from coterie.errors import CoterieError, ErrorCode
from coterie.facts import Emit, Fact, Mistake
from coterie.protocol.apis import create_topics, heartbeat, join_group
from coterie.protocol.frames import request_frame
from coterie.protocol.messages import Heartbeat, JoinGroup, Protocol
from coterie.stories import Story


def test_a_client_with_a_name_that_leaves_no_room_for_an_id_joins_and_harms_nobody() -> None:
    """Rule 3: its id is its name, cut, and a UUID."""
    world = World()
    first = world.client()
    first.find_coordinator()
    leader = first.enter("g")
    rude = world.client()
    request = JoinGroup(None, "g", "", None, "consumer", [Protocol("range", b"")], 10_000, 60_000, "")
    body = join_group.write_request(request, 2)
    rude.send_frame(request_frame(join_group.API.key, 2, 1, "e" * 32_760, body, flexible=False)[4:])
    joined = first.join("g", leader.member_id)
    assert joined.error is ErrorCode.NONE and len(joined.members) == 2
    assert max(len(member.member_id) for member in joined.members) == 32_767


def test_an_answer_that_cannot_be_written_closes_its_connection_and_no_other() -> None:
    world = World()
    client, other = world.client(), world.client()
    client.find_coordinator()
    beat = Heartbeat(None, "g", "m", None, 1)
    with patch.object(world.node._routes[heartbeat.API.key], "write", side_effect=OverflowError("too long")):
        effects = world.node.received(client.connection, client.frame_of(heartbeat, beat, 3), world.now_ms)
    (told,) = [effect.fact for effect in effects if isinstance(effect, Emit)]
    assert isinstance(told, Mistake) and told.doing == "writing an answer of Heartbeat" and "too long" in told.trace
    assert [effect.connection for effect in effects if isinstance(effect, Close)] == [client.connection]
    assert other.ask(heartbeat, beat, 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_one_write_whose_end_fails_does_not_cost_the_others_their_answers() -> None:
    """Each of them is durable, and each but the one is told so."""
    story = Story()
    story.hold_writes()
    story.member("first").commits({"t:0": 0}, gen=-1)  # under way; the two behind it are joined into the next append
    unlucky = story.member("unlucky").commits({"t:0": 1}, gen=-1)
    lucky = story.member("lucky").commits({"t:0": 2}, gen=-1)
    story.world.end_write()
    with patch.dict(RULES[Group], {OffsetsWritten: _fails_once(offsets_written)}):
        story.end_writes()
    assert (unlucky.answer, lucky.answer.errors) == (None, [ErrorCode.NONE])
    assert story.emitted(Mistake).group_id == "g"


def _fails_once(rule: Callable[..., Effects]) -> Callable[..., Effects]:
    calls: list[object] = []

    def fails(*event: Any) -> Effects:
        calls.append(event)
        if len(calls) == 1:
            raise RuntimeError("a mistake")
        return rule(*event)

    return fails


def test_many_topics_in_one_request_are_judged_in_one_walk() -> None:
    """Named twice is answered once; ten thousand names cost no square."""
    topics = [create_topics.NewTopic(name=f"t{number % 5_000}", num_partitions=-7) for number in range(10_000)]
    answer = World().client().ask(create_topics, create_topics.Request(topics=topics))
    assert len(answer.topics) == 5_000
    assert {topic.error for topic in answer.topics} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.real_time
def test_a_listener_that_raises_does_not_stop_the_broker(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[Fact] = []

    def listens(fact: Fact) -> None:
        heard.append(fact)
        raise OSError("the log's disk is full")

    with coterie.Broker(on_fact=listens) as broker, Peer(broker.bootstrap_servers) as peer:
        peer.find_coordinator()
        peer.create("t")
        assert peer.commit("g", {("t", 0): 1}) == [ErrorCode.NONE]
        assert peer.commit("g", {("t", 0): 2}) == [ErrorCode.NONE]
    assert heard
    assert capsys.readouterr().err.count("facts cannot be emitted any more") == 1


@pytest.mark.real_time
@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_nobody_is_told_to_connect_to_every_address_there_is(host: str) -> None:
    with pytest.raises(CoterieError, match="no client can connect to it"), coterie.Broker(host=host):
        pass


def test_an_event_that_nobody_handles_is_a_mistake_and_the_other_timers_fire() -> None:
    world = World()
    with pytest.raises(KeyError):
        world.cluster.handle(object(), world.now_ms)
    fired: list[str] = []

    def fires(event: str, _now_ms: int) -> list[Any]:
        fired.append(event)
        return []

    world.cluster.on[str] = fires
    world.cluster.timers.arm("first", world.now_ms, 7)
    world.cluster.timers.arm("second", world.now_ms, "fires")
    (effect,) = [each for each in world.cluster.handle(TimersDue(), world.now_ms) if isinstance(each, Emit)]
    assert isinstance(effect.fact, Mistake) and effect.fact.doing == "a timer, int" and fired == ["fires"]
