"""The rights that transactions need, as Kafka asks for them; tests/conformance/acls has its answers (TI8)."""

from __future__ import annotations

from typing import Any

from broker.driver import World
from broker.transactional import QUICK, TransactionalClient
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.apis import add_partitions_to_txn, create_acls

NONE, TXID = ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
CLUSTER_DENIED, TOPIC_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
SETTINGS = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:admin", **QUICK}
CLUSTER, TOPIC, GROUP = AclResourceType.CLUSTER, AclResourceType.TOPIC, AclResourceType.GROUP
ID = AclResourceType.TRANSACTIONAL_ID
T0 = ("t", 0)


class Rights:
    """A client that may do nothing, and an admin who allows it this and that."""

    def __init__(self) -> None:
        world = World(settings=SETTINGS)
        self.admin = TransactionalClient(world)
        self.admin.connection.principal = "User:admin"
        self.admin.create("t", 3)
        self.admin.find()
        self.admin.find_coordinator()
        self.admin.init()
        self.bob = TransactionalClient(world)
        self.bob.connection.principal = "User:bob"
        self.bob.ids = self.admin.ids

    def allow(self, operation: AclOperation, kind: AclResourceType, name: str = "kafka-cluster") -> None:
        values: dict[str, Any] = {"principal": "User:bob", "host": "*", "permission_type": 3}
        acl = create_acls.Creation(resource_type=kind, resource_name=name, operation=operation, **values)
        (result,) = self.admin.ask(create_acls, create_acls.Request(creations=[acl])).results
        assert not result.error, result.message


def test_ids_are_for_those_who_may_write() -> None:
    """TI8: WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster, or WRITE on any topic."""
    rights = Rights()
    bob = rights.bob
    assert bob.init().error is TXID
    assert bob.init(tx=None).error is CLUSTER_DENIED
    assert bob.find().error is TXID
    rights.allow(AclOperation.WRITE, ID, "orders-tx")
    assert not bob.find().error
    assert not bob.init().error
    assert bob.init(tx=None).error is CLUSTER_DENIED
    rights.allow(AclOperation.WRITE, TOPIC, "some")
    assert not bob.init(tx=None).error
    other = Rights()
    other.allow(AclOperation.IDEMPOTENT_WRITE, CLUSTER)
    assert not other.bob.init(tx=None).error


def test_a_transaction_needs_rights_on_id_topic_and_group() -> None:
    """TA1, TA3, TO1, TP1."""
    rights = Rights()
    bob = rights.bob
    assert bob.add(T0)[T0] is TXID
    assert bob.add_offsets() is TXID
    assert bob.end(commit=True).error is TXID
    assert bob.write(b"a").error is TXID
    assert bob.commit_offsets({T0: 1}) == [TXID]
    assert bob.describe()[0].error is TXID
    assert bob.listing().transaction_states == []
    rights.allow(AclOperation.WRITE, ID, "orders-tx")
    assert bob.add(T0)[T0] is TOPIC_DENIED
    assert bob.write(b"a").error is TOPIC_DENIED
    assert bob.add_offsets() is GROUP_DENIED
    assert bob.commit_offsets({T0: 1}) == [GROUP_DENIED]
    rights.allow(AclOperation.READ, GROUP, "g")
    assert bob.commit_offsets({T0: 1}) == [TOPIC_DENIED]
    assert bob.state == "Empty", "WRITE implies DESCRIBE"
    rights.allow(AclOperation.WRITE, TOPIC, "t")
    rights.allow(AclOperation.READ, TOPIC, "t")
    assert bob.add(T0)[T0] is NONE
    assert bob.commit_offsets({T0: 1}) == [NONE]
    assert not bob.write(b"a").error
    assert [one.transactional_id for one in bob.listing().transaction_states] == ["orders-tx"]
    assert bob.partitions == [T0], "the topic of the groups may not be described"
    assert not bob.end(commit=True).error


def test_brokers_and_admins_need_rights_on_the_cluster() -> None:
    """TA3, TL7."""
    rights = Rights()
    bob = rights.bob
    request = add_partitions_to_txn.Request(transactions=[])
    assert bob.ask(add_partitions_to_txn, request, 4).error is CLUSTER_DENIED
    assert bob.write_markers((4711, 0)) is CLUSTER_DENIED
    rights.allow(AclOperation.ALTER, CLUSTER)
    assert bob.write_markers((4711, 0)) is NONE
    rights.allow(AclOperation.CLUSTER_ACTION, CLUSTER)
    assert bob.ask(add_partitions_to_txn, request, 4).error is NONE
