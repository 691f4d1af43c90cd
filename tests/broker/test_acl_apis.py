"""DescribeAcls, CreateAcls and DeleteAcls (rules S47-S51), and the ACLs on disk."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from broker.driver import Client, World
from coterie.broker.broker_facts import AuthorizationDenied
from coterie.broker.handlers.quick_heartbeat import QuickHeartbeat
from coterie.broker.security.auth_helper import MOST_DENIALS
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclBindingFilter
from coterie.protocol.apis import (
    create_acls,
    delete_acls,
    describe_acls,
    describe_transactions,
    find_coordinator,
    heartbeat,
    list_groups,
    metadata,
)
from coterie.protocol.frames import request_frame
from coterie.protocol.messages import Heartbeat, ListGroups
from coterie.storage import MemoryFiles
from coterie.storage.files import read_file, replace_file
from coterie.storage.log_errors import DamagedFileError
from coterie.storage.metadata_files import ACLS
from coterie.storage.repair import carry_out, inspect

SETTINGS = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:admin"}
ANY, TOPIC, GROUP, CLUSTER = 1, 2, 3, 4
MATCH, LITERAL, PREFIXED = 2, 3, 4
READ, ALLOW = 3, 3


def world(files: MemoryFiles | None = None, **more: Any) -> World:
    return World(files, {**SETTINGS, **more})


def user(where: World, name: str) -> Client:
    client = where.client()
    client.connection.principal = f"User:{name}"
    return client


def acl(**given: Any) -> create_acls.Creation:
    values = {
        "resource_type": TOPIC,
        "resource_name": "t",
        "principal": "User:bob",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return create_acls.Creation(**{**values, **given})


def create(client: Client, *acls: create_acls.Creation) -> list[tuple[ErrorCode, str | None]]:
    answer = client.ask(create_acls, create_acls.Request(creations=acls))
    return [(result.error, result.message) for result in answer.results]


def filter_values(**given: Any) -> dict[str, Any]:
    everything = {
        "resource_type_filter": ANY,
        "pattern_type_filter": ANY,
        "operation": ANY,
        "permission_type": ANY,
    }
    return {**everything, **given}


def describe(client: Client, **given: Any) -> set[tuple[str, str]]:
    """Each ACL by the name of its resource and its principal."""
    answer = client.ask(describe_acls, describe_acls.Request(**filter_values(**given)))
    assert not answer.error, answer.message
    return {(resource.resource_name, one.principal) for resource in answer.resources for one in resource.acls}


def delete(client: Client, *filters: dict[str, Any]) -> list[delete_acls.FilterResult]:
    request = delete_acls.Request(filters=[delete_acls.Filter(**filter_values(**one)) for one in filters])
    return list(client.ask(delete_acls, request).filter_results)


# --- creating, describing, deleting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_acl_is_created_described_and_deleted(version: int) -> None:
    admin = user(world(), "admin")
    request = create_acls.Request(creations=[acl(resource_pattern_type=PREFIXED)])
    (created,) = admin.ask(create_acls, request, version).results
    assert (created.error, created.message) == (ErrorCode.NONE, "")
    asked = describe_acls.Request(**filter_values())
    (found,) = admin.ask(describe_acls, asked, version).resources
    assert (found.resource_type, found.resource_name, found.pattern_type) == (TOPIC, "t", PREFIXED)
    assert [(one.principal, one.host, one.operation) for one in found.acls] == [("User:bob", "*", READ)]
    deletion = delete_acls.Request(filters=[delete_acls.Filter(**filter_values())])
    (deleted,) = admin.ask(delete_acls, deletion, version).filter_results
    assert (deleted.error, len(deleted.matching_acls)) == (ErrorCode.NONE, 1)
    assert describe(admin) == set()


def test_the_same_acl_again_is_no_error_and_stays_one() -> None:
    """Rule S48."""
    where = world()
    admin = user(where, "admin")
    assert create(admin, acl(), acl()) == [(ErrorCode.NONE, "")] * 2
    assert create(admin, acl()) == [(ErrorCode.NONE, "")]
    authorizer = where.cluster.auth.authorizer
    assert authorizer is not None and len(authorizer.find(AclBindingFilter())) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"resource_name": ""}, "Invalid empty resource name"),
        (
            {"resource_type": CLUSTER, "resource_name": "c"},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        (
            {"principal": "bob"},
            (
                "Could not parse principal from `bob` (no colon is present separating the principal type from the "
                "principal name)"
            ),
        ),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 99}, "Invalid patternType UNKNOWN"),
        ({"operation": 99}, "Invalid operation UNKNOWN"),
        ({"permission_type": 99}, "Invalid permissionType UNKNOWN"),
    ],
)
def test_an_acl_that_cannot_be_is_refused_by_itself(given: dict[str, Any], message: str) -> None:
    """Rule S48."""
    admin = user(world(), "admin")
    assert create(admin, acl(**given), acl()) == [(ErrorCode.INVALID_REQUEST, message), (ErrorCode.NONE, "")]
    assert describe(admin) == {("t", "User:bob")}


@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
def test_words_of_filters_refuse_the_whole_request(field: str) -> None:
    """Rule S49."""
    admin = user(world(), "admin")
    assert [error for error, _ in create(admin, acl(), acl(**{field: ANY}))] == [ErrorCode.INVALID_REQUEST] * 2
    assert describe(admin) == set()


@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
def test_a_field_that_is_unknown_closes_the_connection(field: str) -> None:
    """Rule S49."""
    admin = user(world(), "admin")
    admin.send(create_acls, create_acls.Request(creations=[acl(**{field: 0})]))
    assert admin.closed is not None and "UNKNOWN" in admin.closed


def test_filters_match_what_would_apply_to_a_resource() -> None:
    """Rule S50."""
    admin = user(world(), "admin")
    create(
        admin,
        acl(resource_name="ab"),
        acl(resource_name="a", resource_pattern_type=PREFIXED),
        acl(resource_name="*", principal="User:*"),
        acl(resource_name="c"),
    )
    matching = describe(admin, resource_name_filter="ab", pattern_type_filter=MATCH)
    assert matching == {("ab", "User:bob"), ("a", "User:bob"), ("*", "User:*")}
    assert describe(admin, resource_name_filter="ab", pattern_type_filter=LITERAL) == {("ab", "User:bob")}
    assert describe(admin, principal_filter="User:*") == {("*", "User:*")}


def test_a_filter_with_numbers_of_a_later_release_finds_nothing_and_deletes_nothing() -> None:
    """Rule S51."""
    admin = user(world(), "admin")
    create(admin, acl())
    assert describe(admin, operation=99) == set()
    results = delete(admin, {"operation": 99}, {"pattern_type_filter": 99}, {"resource_name_filter": "none"})
    assert [(result.error, result.message) for result in results] == [
        (ErrorCode.INVALID_REQUEST, "Unknown entryFilter."),
        (ErrorCode.INVALID_REQUEST, "Unknown patternFilter."),
        (ErrorCode.NONE, ""),
    ]
    assert describe(admin) == {("t", "User:bob")}


def test_an_acl_that_two_filters_find_is_in_both_answers() -> None:
    """Rule S51."""
    admin = user(world(), "admin")
    create(admin, acl(), acl(resource_name="u"))
    results = delete(admin, {"resource_name_filter": "t"}, {"resource_type_filter": TOPIC})
    found = [{one.resource_name for one in result.matching_acls} for result in results]
    assert found == [{"t"}, {"t", "u"}]


def test_without_an_authorizer_there_are_no_acls() -> None:
    """Rule S47."""
    client = World().client()
    answer = client.ask(describe_acls, describe_acls.Request(**filter_values()))
    expected = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    assert (answer.error, answer.message) == expected
    refused = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    assert create(client, acl()) == [refused]
    assert [(result.error, result.message) for result in delete(client, {})] == [refused]


# --- in force ---------------------------------------------------------------------------------------------------------


def test_a_right_is_given_and_taken_on_an_open_connection() -> None:
    """Rule S43."""
    where = world()
    admin, bob = user(where, "admin"), user(where, "bob")
    admin.create("t")
    assert bob.fetch("t", 0, max_wait_ms=0).error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    create(admin, acl())
    assert bob.fetch("t", 0, max_wait_ms=0).error is ErrorCode.NONE
    delete(admin, {})
    assert bob.fetch("t", 0, max_wait_ms=0).error is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_the_short_way_of_a_heartbeat_needs_the_right_too() -> None:
    where = world()
    admin, bob = user(where, "admin"), user(where, "bob")
    create(admin, acl(resource_type=GROUP, resource_name="g"))
    admin.find_coordinator("g")
    joined = bob.enter("g")
    body = heartbeat.write_request(Heartbeat(None, "g", joined.member_id, None, joined.generation_id), 4)
    frame = request_frame(heartbeat.API.key, 4, 7, "tester", body, flexible=True)[4:]
    short_way = QuickHeartbeat(bob.connection, where.cluster.auth.authorizer)
    coordinator = where.node.coordinator
    assert short_way.answer(coordinator, frame, where.now_ms) is not None
    delete(admin, {})
    assert short_way.answer(coordinator, frame, where.now_ms) is None
    assert bob.heartbeat("g", joined.member_id, joined.generation_id) is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_fetch_that_waits_keeps_the_rights_that_it_came_with() -> None:
    where = world()
    admin, bob = user(where, "admin"), user(where, "bob")
    admin.create("t")
    create(admin, acl())
    bob.send_fetch("t", 0, max_wait_ms=10_000)
    delete(admin, {})
    admin.produce("t", b"a")
    assert bob.fetched().error is ErrorCode.NONE


def test_a_transaction_is_described_with_the_right_on_its_id() -> None:
    where = world()
    admin, bob = user(where, "admin"), user(where, "bob")
    create(admin, acl(resource_type=5, resource_name="x", operation=8))
    request = find_coordinator.Request(keys=["x"], key_type=find_coordinator.TRANSACTION)
    assert not bob.ask(find_coordinator, request).coordinators[0].error
    found = bob.ask(describe_transactions, describe_transactions.Request(transactional_ids=["x", "y"]))
    assert [one.error for one in found.transaction_states] == [
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ]


def test_a_produce_without_acks_that_is_denied_closes_the_connection() -> None:
    """There is no answer to carry the error."""
    where = world()
    admin, bob = user(where, "admin"), user(where, "bob")
    admin.create("t")
    bob.send_produce("t", b"a", acks=0)
    assert bob.closed is not None and "TOPIC_AUTHORIZATION_FAILED" in bob.closed


def test_denials_are_told_once_each_and_not_for_what_is_left_out_silently() -> None:
    """S37."""
    where = world()
    bob = user(where, "bob")
    user(where, "admin").create("t")
    bob.ask(metadata, metadata.Request(topics=None))
    bob.ask(list_groups, ListGroups(None))
    assert not [fact for fact in where.facts if isinstance(fact, AuthorizationDenied)]
    bob.ask(metadata, metadata.Request(topics=[metadata.Topic(name="t")], allow_auto_topic_creation=False))
    (fact,) = [fact for fact in where.facts if isinstance(fact, AuthorizationDenied)]
    said = (fact.principal, fact.operation, fact.resource_type, fact.resource_name, fact.host, fact.request)
    assert said == ("User:bob", "DESCRIBE", "TOPIC", "t", "10.0.0.1", "Metadata")


def test_a_request_for_very_many_things_does_not_fill_the_log_with_denials() -> None:
    where = world()
    topics = [metadata.Topic(name=f"t{number}") for number in range(10 * MOST_DENIALS)]
    answer = user(where, "bob").ask(metadata, metadata.Request(topics=topics))
    assert {topic.error for topic in answer.topics} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert len([fact for fact in where.facts if isinstance(fact, AuthorizationDenied)]) == MOST_DENIALS


# --- on disk ----------------------------------------------------------------------------------------------------------


def test_acls_outlive_a_restart() -> None:
    files = MemoryFiles()
    first = world(files)
    create(user(first, "admin"), acl(), acl(resource_name="\N{SNOWMAN}", principal="User:CN=a,O=b"))
    first.stop()
    second = world(files)
    assert describe(user(second, "admin")) == {("t", "User:bob"), ("\N{SNOWMAN}", "User:CN=a,O=b")}


def test_an_acl_that_the_disk_refuses_is_not_in_force_and_the_client_hears_of_it() -> None:
    class FullFiles(MemoryFiles):
        is_full = False

        def rename(self, old: str, new: str) -> None:
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().rename(old, new)

    files = FullFiles()
    where = world(files)
    admin = user(where, "admin")
    files.is_full = True
    ((error, message),) = create(admin, acl())
    assert error and message is not None and "coterie-acls.json" in message
    assert describe(admin) == set() and any("coterie-acls.json" in trouble for trouble in where.troubles)


@pytest.mark.parametrize("damage", ["changed", "missing", "old", "empty", "without its first line", "not ours"])
def test_damaged_acls_stop_the_broker_and_are_repaired(damage: str) -> None:
    files = MemoryFiles()
    first = world(files)
    admin = user(first, "admin")
    create(admin, acl())
    old = read_file(files, ACLS.path)
    create(admin, acl(resource_name="u"))
    first.stop()
    content = read_file(files, ACLS.path)
    damaged = {
        "changed": content.replace(b"bob", b"eve"),
        "missing": None,
        "old": old,
        "empty": b"",
        "without its first line": content.split(b"\n", 1)[1],
        "not ours": ACLS.encode(b'{"number": 2, "acls": [{}]}'),
    }[damage]
    files.delete(ACLS.path)
    if damaged is not None:
        replace_file(files, ACLS.path, damaged)
    with pytest.raises(DamagedFileError, match=r"coterie-acls\.json"):
        world(files)
    findings = inspect(files, cluster_id="c")
    assert [finding.path for finding in findings.files] == [ACLS.path]
    carry_out(files, findings, "aside", b"")
    repaired = world(files)
    assert describe(user(repaired, "admin")) == set()
    create(user(repaired, "admin"), acl())
    repaired.stop()
    assert describe(user(world(files), "admin")) == {("t", "User:bob")}


def test_a_broker_without_an_authorizer_leaves_the_acls_alone() -> None:
    files = MemoryFiles()
    first = world(files)
    create(user(first, "admin"), acl())
    first.stop()
    World(files).stop()
    assert describe(user(world(files), "admin")) == {("t", "User:bob")}
