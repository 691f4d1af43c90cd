"""What a client believes of its cluster."""

from __future__ import annotations

from uuid import UUID

import pytest

from coterie.client.network.backoff import backoff_ms
from coterie.client.network.metadata import NO_LEADER, Metadata, Node, learn
from coterie.errors import ErrorCode
from coterie.protocol.apis.metadata import Broker, DescribedPartition, DescribedTopic, Response

ID, OTHER_ID = UUID(int=1), UUID(int=2)


def news(epoch: int, leader: int, topic_id: UUID = ID, name: str = "t") -> Response:
    part = DescribedPartition(partition=0, leader_id=leader, leader_epoch=epoch, replicas=[leader], isr=[leader])
    topic = DescribedTopic(name=name, topic_id=topic_id, partitions=[part])
    return Response(brokers=[Broker(node_id=leader, host="h", port=9092)], controller_id=leader, topics=[topic])


def test_news_of_an_older_epoch_is_not_believed() -> None:
    """KIP-320: it comes from a broker that has not heard yet."""
    known = learn(Metadata(), news(5, 1), is_all=False)
    assert learn(known, news(4, 2), is_all=False).leader("t", 0) == 1
    assert learn(known, news(6, 2), is_all=False).leader("t", 0) == 2
    assert learn(known, news(-1, 2), is_all=False).leader("t", 0) == 2, "a broker too old to say an epoch"


def test_a_topic_that_was_made_anew_begins_its_epochs_anew() -> None:
    known = learn(Metadata(), news(5, 1), is_all=False)
    assert learn(known, news(0, 2, OTHER_ID), is_all=False).leader("t", 0) == 2


def test_an_answer_about_some_topics_leaves_the_others() -> None:
    known = learn(Metadata(), news(5, 1), is_all=False)
    assert set(learn(known, news(0, 1, OTHER_ID, "u"), is_all=False).topics) == {"t", "u"}
    assert set(learn(known, news(0, 1, OTHER_ID, "u"), is_all=True).topics) == {"u"}


def test_nodes_are_those_of_the_latest_answer() -> None:
    known = learn(learn(Metadata(), news(5, 1), is_all=False), news(6, 2), is_all=False)
    assert known.nodes == {2: Node(2, "h", 9092)} and known.controller == 2
    assert known.topic_names() == {ID: "t"}


def test_what_is_not_known_has_no_leader() -> None:
    gone = DescribedTopic(name="t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    known = learn(learn(Metadata(), news(5, 1), is_all=False), Response(brokers=[], topics=[gone]), is_all=False)
    assert known.leader("t", 0) == known.leader("u", 0) == NO_LEADER
    assert known.topics["t"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("failures", "plain"), [(1, 100), (2, 200), (4, 800), (5, 1_000), (10_000, 1_000)])
def test_a_pause_doubles_up_to_its_limit(failures: int, plain: int) -> None:
    assert backoff_ms(failures, 100, 1_000, 0.5) == plain
    assert backoff_ms(failures, 100, 1_000, 0) == pytest.approx(plain * 0.8)
    assert backoff_ms(failures, 100, 1_000, 1) == pytest.approx(plain * 1.2)


def test_a_limit_below_the_first_pause_is_no_limit() -> None:
    """As in Java, where retry.backoff.max.ms below retry.backoff.ms means the latter."""
    assert backoff_ms(3, 100, 50, 0.5) == 100


def test_why_there_is_no_leader_is_the_topics_error_a_partition_that_is_not_there_or_the_moment() -> None:
    known = learn(Metadata(), news(5, NO_LEADER), is_all=False)
    gone = learn(
        known,
        Response(brokers=[], topics=[DescribedTopic(name="x", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
        is_all=False,
    )
    assert known.why_no_leader("t", 0, "reading").code is ErrorCode.LEADER_NOT_AVAILABLE
    assert "the topic has 1 partitions" in str(known.why_no_leader("t", 7, "reading"))
    for topic, partition in (("t", 7), ("nowhere", 0), ("x", 0)):
        error = gone.why_no_leader(topic, partition, "reading")
        assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and str(error).startswith("reading")
