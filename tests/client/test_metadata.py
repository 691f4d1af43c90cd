"""What a client believes of its cluster."""

from __future__ import annotations

from uuid import UUID

import pytest

from coterie.client.network.backoff import Retries, backoff_ms
from coterie.client.network.metadata import NO_LEADER, ClusterMetadata, Metadata, Node, ask_for, learn
from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.apis import find_coordinator
from coterie.protocol.apis.metadata import Broker, DescribedPartition, DescribedTopic, Response
from coterie.settings.client_settings import ClientSettings

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


# --- ages, and what is asked -----------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> ClusterMetadata:
    return ClusterMetadata(ClientSettings.of({"bootstrap.servers": ["a:1", "b:2"], "metadata.max.age.ms": 300_000}))


def test_metadata_is_old_until_it_is_learned_and_again_after_its_age(cluster: ClusterMetadata) -> None:
    assert cluster.is_old(0.0) and not cluster.knows("t", 0.0) and cluster.leader("t", 0, 0.0) == NO_LEADER
    assert cluster.learned(news(5, 1), 10.0, is_all=False) is cluster.known
    assert not cluster.is_old(309.9) and cluster.knows("t", 309.9)
    assert cluster.leader("t", 0, 309.9) == 1 and cluster.controller(309.9) == 1
    assert cluster.is_old(310.0) and not cluster.knows("t", 310.0)
    assert cluster.leader("t", 0, 310.0) == cluster.controller(310.0) == NO_LEADER, "it has to be asked again"
    assert cluster.known.leader("t", 0) == 1, "what is old is still there"


def test_each_topic_has_an_age_of_its_own(cluster: ClusterMetadata) -> None:
    cluster.learned(news(5, 1), 0.0, is_all=False)
    cluster.learned(news(5, 1, OTHER_ID, "u"), 200.0, is_all=False)
    assert not cluster.knows("t", 300.0) and cluster.knows("u", 300.0) and not cluster.is_old(300.0)
    cluster.learned(news(5, 1, OTHER_ID, "u"), 250.0, is_all=True)
    assert not cluster.knows("t", 251.0), "the answer had all topics, and not this one"


def test_what_expired_is_asked_again(cluster: ClusterMetadata) -> None:
    cluster.learned(news(5, 1), 0.0, is_all=False)
    cluster.expire()
    assert cluster.is_old(0.0) and not cluster.knows("t", 0.0) and cluster.known.leader("t", 0) == 1


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Response(brokers=[], topics=[], error=ErrorCode.REBOOTSTRAP_REQUIRED), ErrorCode.LEADER_NOT_AVAILABLE),
        (
            Response(brokers=[], topics=[], error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
        (Response(brokers=[], topics=[]), ErrorCode.LEADER_NOT_AVAILABLE),
    ],
)
def test_an_answer_without_metadata_teaches_nothing(
    cluster: ClusterMetadata, answer: Response, code: ErrorCode
) -> None:
    """KIP-1102: a cluster that asks for a bootstrap is forgotten."""
    cluster.learned(news(5, 1), 0.0, is_all=False)
    with pytest.raises(KafkaError) as caught:
        cluster.learned(answer, 400.0, is_all=False)
    assert caught.value.code is code and cluster.is_old(400.0)
    assert bool(cluster.known.nodes) == (answer.error is not ErrorCode.REBOOTSTRAP_REQUIRED)


def test_a_node_is_known_by_metadata_as_a_coordinator_or_as_a_bootstrap_server(cluster: ClusterMetadata) -> None:
    assert cluster.node(-1) == Node(-1, "a", 1) and cluster.node(-2) == Node(-2, "b", 2) and cluster.node(7) is None
    found = find_coordinator.Response(coordinators=[find_coordinator.Coordinator(key="g", node_id=7, host="c", port=3)])
    assert cluster.learned_coordinator("g", find_coordinator.GROUP, found) == cluster.node(7) == Node(7, "c", 3)
    cluster.learned(news(5, 7), 0.0, is_all=False)
    assert cluster.node(7) == Node(7, "h", 9092), "metadata is newer"


def test_a_coordinator_that_is_not_there_is_an_error(cluster: ClusterMetadata) -> None:
    nobody = find_coordinator.Coordinator(
        key="x", node_id=-1, host="", port=-1, error=ErrorCode.COORDINATOR_NOT_AVAILABLE, message="not yet"
    )
    with pytest.raises(KafkaError, match=r'coordinator of transactional id "x".*not yet') as caught:
        cluster.learned_coordinator("x", find_coordinator.TRANSACTION, find_coordinator.Response(coordinators=[nobody]))
    assert caught.value.retriable and cluster.node(-1) == Node(-1, "a", 1)
    with pytest.raises(KafkaError, match="the broker named 0, and a group has exactly one"):
        cluster.learned_coordinator("g", find_coordinator.GROUP, find_coordinator.Response(coordinators=[]))


@pytest.mark.parametrize(("strategy", "still"), [("rebootstrap", 2), ("none", 0)])
def test_bootstrap_servers_are_tried_if_there_is_nothing_else_or_as_settings_say(strategy: str, still: int) -> None:
    """KIP-899."""
    cluster = ClusterMetadata(
        ClientSettings.of({"bootstrap.servers": ["a:1", "b:2"], "metadata.recovery.strategy": strategy})
    )
    assert len(cluster.bootstrap_nodes) == 2
    cluster.learned(news(5, 1), 0.0, is_all=False)
    assert len(cluster.bootstrap_nodes) == still


def test_topics_are_asked_for_in_order_and_none_means_all() -> None:
    asked = ask_for(["b", "a"], allow_auto_create=True)
    assert [topic.name for topic in asked.topics or ()] == ["a", "b"] and asked.allow_auto_topic_creation
    assert ask_for(None, allow_auto_create=False).topics is None and ask_for((), allow_auto_create=False).topics == []


# --- retries ----------------------------------------------------------------------------------------------------------


def test_a_retriable_error_is_tried_again_and_the_last_one_is_said_in_the_end() -> None:
    retries = Retries()
    assert str(retries.timed_out("asking", 1500)) == "asking: the cluster did not answer (gave up after 1.5 s)"
    assert retries.again(KafkaError("first", ErrorCode.REQUEST_TIMED_OUT)) and not retries.needs_metadata
    assert retries.again(KafkaError("second", ErrorCode.NOT_LEADER_OR_FOLLOWER)) and retries.needs_metadata
    assert not retries.again(KafkaError("for good", ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert retries.failures == 2
    assert str(retries.timed_out("", 1000)) == "second (gave up after 1 s)"
