"""Our clients at clusters with ACLs: what `kafka-acls --consumer` and `--producer` grant is enough, and what is not
allowed is raised at once (S46 and S57). The clusters are Coterie's broker and Apache Kafka 4.3.1.
"""

from __future__ import annotations

import pytest

from client.consumers import PATIENCE_S
from coterie import Admin, AuthorizationError, Consumer, ErrorCode, KafkaError, NewTopic, Producer, checked
from coterie.protocol.acls import AccessControlEntry, AclBinding, AclOperation, AclResourceType, ResourcePattern
from secured_kafka import USERS, Cluster

pytestmark = pytest.mark.real_time

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
READ, WRITE, DESCRIBE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE


def settings_of(cluster: Cluster, user: str) -> dict[str, object]:
    return {
        "bootstrap.servers": cluster.address_of("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": USERS[user],
    }


def prepare(cluster: Cluster, name: str, *rights: tuple[str, AclResourceType, AclOperation]) -> None:
    """Make a topic with one record, and grant users rights on the topic or the group of that name."""
    acls = [
        AclBinding(ResourcePattern(kind, name), AccessControlEntry(f"User:{user}", operation=operation))
        for user, kind, operation in rights
    ]
    with Admin(bootstrap_servers=cluster.address_of("PLAINTEXT")) as admin:
        checked(admin.create_topics([NewTopic(name, 1)]))
        checked(admin.create_acls(acls))
    with Producer(bootstrap_servers=cluster.address_of("PLAINTEXT")) as producer:
        producer.send(name, b"first").result(PATIENCE_S)


def test_the_rights_of_a_consumer_and_of_a_producer_are_enough(cluster: Cluster, name: str) -> None:
    """S46: neither needs anything on the cluster; the producer is idempotent."""
    consuming = [("carol", TOPIC, READ), ("carol", TOPIC, DESCRIBE), ("carol", GROUP, READ)]
    producing = [("bob", TOPIC, WRITE), ("bob", TOPIC, DESCRIBE), ("bob", TOPIC, CREATE)]
    prepare(cluster, name, *consuming, *producing)
    with Producer(settings_of(cluster, "bob")) as producer:
        producer.send(name, b"second").result(PATIENCE_S)
    settings = {**settings_of(cluster, "carol"), "group.id": name, "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.subscribe([name])
        assert [next(consumer).value, next(consumer).value] == [b"first", b"second"]
        consumer.commit()
        (committed,) = consumer.committed((name, 0)).values()
        assert committed is not None and committed.offset == 2


@pytest.mark.parametrize(
    ("rights", "code"),
    [
        ([("carol", TOPIC, READ)], ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ([("carol", GROUP, READ)], ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
    ids=["without the group", "without the topic"],
)
def test_a_consumer_without_a_right_is_told_at_once(
    cluster: Cluster, name: str, rights: list[tuple[str, AclResourceType, AclOperation]], code: ErrorCode
) -> None:
    prepare(cluster, name, *rights)
    with Consumer({**settings_of(cluster, "carol"), "group.id": name}) as consumer:
        consumer.subscribe([name])
        with pytest.raises(AuthorizationError) as raised:
            consumer.poll(PATIENCE_S)
    assert raised.value.code is code and not raised.value.retriable


def test_a_producer_and_an_admin_without_a_right_are_told_at_once(cluster: Cluster, name: str) -> None:
    prepare(cluster, name, ("carol", TOPIC, DESCRIBE))
    settings = {**settings_of(cluster, "carol"), "enable.idempotence": False}
    with Producer(settings) as producer, pytest.raises(AuthorizationError) as raised:
        producer.send(name, b"value").result(PATIENCE_S)
    assert raised.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with Producer(settings_of(cluster, "carol")) as producer, pytest.raises(AuthorizationError) as raised:
        producer.send(name, b"value").result(PATIENCE_S)
    assert raised.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "it needs a producer id first"
    with Admin(settings_of(cluster, "carol")) as admin:
        refused = admin.create_topics([NewTopic(f"{name}-2", 1)])[f"{name}-2"]
    assert isinstance(refused, KafkaError) and refused.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
