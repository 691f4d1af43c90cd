"""ACLs and our clients, on Coterie's broker and on Apache Kafka 4.3.1: the admin, the commands, and rights that end.

Users log in by SASL/PLAIN. On PLAINTEXT everybody is a super user.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner

from client.consumers import PATIENCE_S
from client.peers import Run
from coterie import (
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    Admin,
    AsyncAdmin,
    AuthorizationError,
    Broker,
    Consumer,
    ErrorCode,
    KafkaError,
    NewTopic,
    PatternType,
    Producer,
    ResourcePattern,
    ResourcePatternFilter,
    checked,
)
from coterie.broker.broker_facts import AuthorizationDenied
from coterie.cli.app import app
from coterie.facts import Fact
from secured_kafka import AUTHORIZER, USERS, Cluster

pytestmark = pytest.mark.real_time

BOB = "User:bob"


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.address_of("PLAINTEXT")) as running:
        yield running


@pytest.fixture
def topic(admin: Admin, name: str) -> str:
    checked(admin.create_topics([NewTopic(name, 1)]))
    return name


def bob(cluster: Cluster) -> dict[str, object]:
    return {
        "bootstrap.servers": cluster.address_of("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "bob",
        "sasl.password": USERS["bob"],
    }


def acl(
    name: str,
    operation: AclOperation = AclOperation.READ,
    kind: AclResourceType = AclResourceType.TOPIC,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    return AclBinding(ResourcePattern(kind, name), AccessControlEntry(BOB, "*", operation, permission))


def of(name: str) -> AclBindingFilter:
    return AclBindingFilter(ResourcePatternFilter(name=name))


def shell(cluster: Cluster, *words: str) -> str:
    """Run a command as a super user; return what it prints."""
    result = CliRunner().invoke(app, [*words], env={"COTERIE_BOOTSTRAP": cluster.address_of("PLAINTEXT")})
    assert result.exit_code == 0, result.stderr
    return result.stdout


def eventually(attempt: Callable[[], object]) -> None:
    """A right holds a few milliseconds after it was given (rule S43)."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            attempt()
        except (AuthorizationError, AssertionError):
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


# --- the admin --------------------------------------------------------------------------------------------------------


def test_acls_are_created_found_and_deleted(admin: Admin, name: str) -> None:
    """Rules S48, S50 and S51."""
    prefixed = AclBinding(
        ResourcePattern(AclResourceType.TOPIC, name[:-1], PatternType.PREFIXED),
        AccessControlEntry("User:eve", "10.0.0.1", AclOperation.ALL, AclPermissionType.DENY),
    )
    assert admin.create_acls([acl(name), prefixed, acl(name)]) == {acl(name): None, prefixed: None}
    matching = AclBindingFilter(ResourcePatternFilter(AclResourceType.TOPIC, name, PatternType.MATCH))
    eventually(lambda: _equal(admin.describe_acls(matching), sorted([acl(name), prefixed])))
    assert admin.describe_acls(AclBindingFilter(entry=AccessControlEntryFilter("User:eve"))) == [prefixed]
    none = of(f"{name}-none")
    assert admin.delete_acls([matching, none]) == {matching: sorted([acl(name), prefixed]), none: []}
    eventually(lambda: _equal(admin.describe_acls(matching), []))


def _equal(found: object, expected: object) -> None:
    assert found == expected


def test_an_acl_that_cannot_be_has_an_error_of_its_own(admin: Admin, name: str) -> None:
    """Rule S48."""
    nobody = AclBinding(ResourcePattern(AclResourceType.TOPIC, name), AccessControlEntry("bob"))
    results = admin.create_acls([nobody, acl(name)])
    error = results[nobody]
    assert isinstance(error, KafkaError) and error.code is ErrorCode.INVALID_REQUEST
    assert "Could not parse principal" in str(error) and results[acl(name)] is None


def test_whoever_may_not_alter_the_cluster_may_not_change_acls(cluster: Cluster, name: str) -> None:
    with Admin(bob(cluster)) as admin:
        with pytest.raises(AuthorizationError, match="describing ACLs"):
            admin.describe_acls()
        (error,) = admin.create_acls([acl(name)]).values()
        assert isinstance(error, AuthorizationError)
        (error,) = admin.delete_acls([of(name)]).values()  # type: ignore[assignment]
        assert isinstance(error, AuthorizationError)


def test_the_async_admin_does_the_same(cluster: Cluster, run: Run, name: str) -> None:
    async def story() -> None:
        async with AsyncAdmin(bootstrap_servers=cluster.address_of("PLAINTEXT")) as admin:
            assert await admin.create_acls([acl(name)]) == {acl(name): None}
            assert await admin.delete_acls([of(name)]) == {of(name): [acl(name)]}

    run(story())


# --- the commands -----------------------------------------------------------------------------------------------------


def test_the_command_adds_lists_and_removes_acls(cluster: Cluster, admin: Admin, name: str) -> None:
    added = shell(
        cluster, "acls", "add", "--allow-principal", BOB, "--operation", "read", "--operation", "AlterConfigs",
        "--topic", name, "--deny-principal", "User:eve", "--deny-host", "10.0.0.1",
    )  # fmt: skip
    expected = {
        AclBinding(ResourcePattern(AclResourceType.TOPIC, name), AccessControlEntry(who, host, operation, permission))
        for who, host, permission in (
            (BOB, "*", AclPermissionType.ALLOW),
            ("User:eve", "10.0.0.1", AclPermissionType.DENY),
        )
        for operation in (AclOperation.READ, AclOperation.ALTER_CONFIGS)
    }
    eventually(lambda: _equal(set(admin.describe_acls(of(name))), expected))
    listed = shell(cluster, "acls", "list", "--topic", name)
    assert sorted(listed.split()) == sorted(added.split()), "what was added is what is listed"
    of_bob = shell(cluster, "acls", "list", "--topic", name, "--principal", BOB)
    assert "ALTER_CONFIGS" in of_bob and "User:eve" not in of_bob
    shell(cluster, "acls", "remove", "--allow-principal", BOB, "--operation", "Read", "--topic", name)
    eventually(lambda: _equal(len(admin.describe_acls(of(name))), 3))
    shell(cluster, "acls", "remove", "--topic", name)
    eventually(lambda: _equal(admin.describe_acls(of(name)), []))


def test_the_command_gives_what_a_consumer_and_a_producer_need(cluster: Cluster, admin: Admin, name: str) -> None:
    """Rule S46."""
    shell(
        cluster, "acls", "add", "--allow-principal", BOB, "--consumer", "--producer", "--idempotent",
        "--topic", name, "--group", name, "--transactional-id", name,
    )  # fmt: skip
    topic, group = AclResourceType.TOPIC, AclResourceType.GROUP
    transactional_id = AclResourceType.TRANSACTIONAL_ID
    expected = {
        *(acl(name, operation, topic) for operation in (AclOperation.READ, AclOperation.WRITE)),
        *(acl(name, operation, topic) for operation in (AclOperation.DESCRIBE, AclOperation.CREATE)),
        acl(name, AclOperation.READ, group),
        *(acl(name, operation, transactional_id) for operation in (AclOperation.WRITE, AclOperation.DESCRIBE)),
    }
    eventually(lambda: _equal(set(admin.describe_acls(of(name))), expected))
    cluster_acl = acl("kafka-cluster", AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER)
    assert cluster_acl in admin.describe_acls(of("kafka-cluster"))
    shell(cluster, "acls", "remove", "--cluster")


# --- consumers and producers ------------------------------------------------------------------------------------------


def test_a_consumer_and_a_producer_need_no_other_rights(cluster: Cluster, topic: str) -> None:
    """Rule S46: what kafka-acls grants with --consumer and --producer is enough."""
    shell(cluster, "acls", "add", "--allow-principal", BOB, "--producer", "--topic", topic)
    with Producer(bob(cluster)) as producer:
        eventually(lambda: producer.send(topic, b"first").result(PATIENCE_S))
        producer.send(topic, b"second").result(PATIENCE_S)
    shell(cluster, "acls", "add", "--allow-principal", BOB, "--consumer", "--topic", topic, "--group", topic)
    with Consumer(bob(cluster), group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        values: list[bytes | None] = []
        until = time.monotonic() + PATIENCE_S
        while b"second" not in values and time.monotonic() < until:
            try:
                values += [record.value for record in consumer.poll(0.2)]
            except AuthorizationError:
                continue
        assert values[-1] == b"second"
        consumer.commit()


def test_a_consumer_whose_right_on_the_topic_ends_hears_of_it(cluster: Cluster, admin: Admin, topic: str) -> None:
    shell(cluster, "acls", "add", "--allow-principal", BOB, "--consumer", "--topic", topic, "--group", topic)
    with Producer(bootstrap_servers=cluster.address_of("PLAINTEXT")) as producer:
        producer.send(topic, b"x").result(PATIENCE_S)
    with Consumer(bob(cluster), group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        eventually(lambda: _equal([record.value for record in consumer.poll(1)], [b"x"]))
        shell(cluster, "acls", "remove", "--topic", topic)
        error = _next_error(lambda: consumer.poll(0.2))
    assert topic in str(error) and "TOPIC_AUTHORIZATION_FAILED" in str(error)
    assert str(error).count("\n") == 0, "one sentence"


def test_a_consumer_whose_right_on_the_group_ends_hears_of_it(cluster: Cluster, topic: str) -> None:
    shell(cluster, "acls", "add", "--allow-principal", BOB, "--consumer", "--topic", topic, "--group", topic)
    settings = {**bob(cluster), "heartbeat.interval.ms": 100, "session.timeout.ms": 6_000}
    with Consumer(settings, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])

        def is_member() -> None:
            consumer.poll(0.1)
            assert consumer.assignment()

        eventually(is_member)
        shell(cluster, "acls", "remove", "--group", topic)
        error = _next_error(lambda: consumer.poll(0.2))
        assert topic in str(error) and "GROUP_AUTHORIZATION_FAILED" in str(error)
        assert "READ on the group" in str(error)


def test_a_producer_whose_right_ends_hears_of_it(cluster: Cluster, topic: str) -> None:
    shell(cluster, "acls", "add", "--allow-principal", BOB, "--producer", "--topic", topic)
    with Producer(bob(cluster)) as producer:
        eventually(lambda: producer.send(topic, b"first").result(PATIENCE_S))
        shell(cluster, "acls", "remove", "--topic", topic)
        error = _next_error(lambda: producer.send(topic, b"more").result(PATIENCE_S))
    assert topic in str(error) and "AUTHORIZATION_FAILED" in str(error)


def _next_error(attempt: Callable[[], object]) -> AuthorizationError:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            attempt()
        except AuthorizationError as error:
            return error
    raise AssertionError("the right has ended, and nobody hears of it")


def test_our_clients_ask_for_nothing_that_they_need_no_right_for(name: str) -> None:
    """S46: with WRITE a producer, and with READ a consumer, does its work without a single denial."""
    facts: list[Fact] = []
    users = {"admin": "admin-secret", "bob": "bob-secret"}
    settings = {**AUTHORIZER, "group.initial.rebalance.delay.ms": 0}
    with Broker(users=users, settings=settings, on_fact=facts.append) as broker:
        logins = {
            user: {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": user,
                "sasl.password": password,
            }
            for user, password in users.items()
        }
        with Admin(logins["admin"]) as admin:
            checked(admin.create_topics([NewTopic(name, 2)]))
            group = acl(name, AclOperation.READ, AclResourceType.GROUP)
            checked(admin.create_acls([acl(name, AclOperation.WRITE), acl(name), group]))
        with Producer(logins["bob"]) as producer:
            producer.send(name, b"x").result(PATIENCE_S)
        for subscription in ([name], re.compile(name)):
            with Consumer(logins["bob"], group_id=name, auto_offset_reset="earliest") as consumer:
                consumer.subscribe(subscription)
                until = time.monotonic() + PATIENCE_S
                while not consumer.assignment() and time.monotonic() < until:
                    consumer.poll(0.2)
                consumer.commit()
                assert sum(consumer.end_offsets(consumer.assignment()).values()) == 1
        with Consumer(logins["bob"]) as reader:
            reader.assign([(name, 0), (name, 1)])
            reader.seek_to_beginning()
            eventually(lambda: _equal([record.value for record in reader.poll(0.5)], [b"x"]))
        assert not [fact for fact in facts if isinstance(fact, AuthorizationDenied)]
        with Producer(logins["bob"]) as producer, pytest.raises(AuthorizationError):
            producer.send(f"{name}-other", b"x").result(PATIENCE_S)
        assert [fact for fact in facts if isinstance(fact, AuthorizationDenied)], "denials are told"
