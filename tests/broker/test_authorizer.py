"""The authorizer decides as Kafka's StandardAuthorizer does (rules S38-S44)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.broker.security.authorizer import ALL_OPERATIONS, StandardAuthorizer, host_text, parse_super_users
from coterie.protocol.acls import (
    OPERATIONS_OF,
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
)

ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
O = AclOperation  # noqa: E741
BOB, HERE = "User:bob", "127.0.0.1"


def acl(
    name: str,
    operation: AclOperation = O.READ,
    permission: AclPermissionType = ALLOW,
    pattern: PatternType = LITERAL,
    principal: str = BOB,
    host: str = "*",
    kind: AclResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(ResourcePattern(kind, name, pattern), AccessControlEntry(principal, host, operation, permission))


def may(authorizer: StandardAuthorizer, operation: AclOperation, name: str, principal: str = BOB) -> bool:
    return authorizer.authorize(principal, HERE, operation, TOPIC, name)


# --- one rule at a time -----------------------------------------------------------------------------------------------


def test_without_acls_only_super_users_may_do_anything() -> None:
    """Rule S39."""
    authorizer = StandardAuthorizer(super_users=parse_super_users("User:admin; User:CN=a,O=b;"))
    assert may(authorizer, O.READ, "t", "User:admin") and may(authorizer, O.READ, "t", "User:CN=a,O=b")
    assert not may(authorizer, O.READ, "t")
    assert not may(authorizer, O.READ, "t", "User:Admin")


def test_a_deny_wins_over_an_allow_that_is_more_specific() -> None:
    """Rule S39."""
    allowed = acl("orders")
    for denied in (
        acl("ord", permission=DENY, pattern=PREFIXED),
        acl("orders", permission=DENY, principal="User:*"),
        acl("*", O.ALL, DENY),
    ):
        assert may(StandardAuthorizer([allowed]), O.READ, "orders")
        assert not may(StandardAuthorizer([allowed, denied]), O.READ, "orders")
    assert StandardAuthorizer([denied], super_users=frozenset({BOB})).authorize(BOB, HERE, O.READ, TOPIC, "orders")


@pytest.mark.parametrize("operation", [O.READ, O.WRITE, O.DELETE, O.ALTER, O.ALL])
def test_an_allow_implies_describe_and_a_deny_does_not(operation: AclOperation) -> None:
    """Rule S40."""
    assert may(StandardAuthorizer([acl("t", operation)]), O.DESCRIBE, "t")
    if operation is not O.ALL:
        authorizer = StandardAuthorizer([acl("t", operation, DENY), acl("t", O.DESCRIBE)])
        assert may(authorizer, O.DESCRIBE, "t")


@pytest.mark.parametrize("operation", [O.CREATE, O.DESCRIBE_CONFIGS, O.ALTER_CONFIGS])
def test_other_operations_do_not_imply_describe(operation: AclOperation) -> None:
    """Rule S40."""
    assert not may(StandardAuthorizer([acl("t", operation)]), O.DESCRIBE, "t")


def test_alter_configs_implies_describe_configs() -> None:
    """Rule S40."""
    assert may(StandardAuthorizer([acl("t", O.ALTER_CONFIGS)]), O.DESCRIBE_CONFIGS, "t")
    assert not may(StandardAuthorizer([acl("t", O.ALTER)]), O.DESCRIBE_CONFIGS, "t")
    authorizer = StandardAuthorizer([acl("t", O.DESCRIBE, DENY), acl("t", O.READ)])
    assert may(authorizer, O.READ, "t") and not may(authorizer, O.DESCRIBE, "t")


def test_hosts_are_an_address_or_everything() -> None:
    """Rule S41."""
    for host, expected in (
        ("*", True),
        (HERE, True),
        ("localhost", False),
        ("127.0.0.0/8", False),
        ("10.0.0.1", False),
    ):
        assert may(StandardAuthorizer([acl("t", host=host)]), O.READ, "t") is expected, host


def test_an_ipv6_address_is_the_same_in_all_its_forms() -> None:
    written = acl("t", host="::1")
    assert StandardAuthorizer([written]).authorize(BOB, "0:0:0:0:0:0:0:1", O.READ, TOPIC, "t")
    assert host_text("::ffff:10.0.0.1") == "10.0.0.1" and host_text("fe80::1%eth0") == "fe80::1%eth0"
    assert host_text("a:b") == "a:b"


def test_the_prefix_of_a_star_is_not_everything_and_types_are_apart() -> None:
    """Rules S38, S41."""
    assert not may(StandardAuthorizer([acl("*", pattern=PREFIXED)]), O.READ, "t")
    assert may(StandardAuthorizer([acl("*", pattern=PREFIXED)]), O.READ, "*t")
    assert may(StandardAuthorizer([acl("*")]), O.READ, "t")
    assert not may(StandardAuthorizer([acl("t", kind=GROUP)]), O.READ, "t")
    assert not may(StandardAuthorizer([acl("t", principal="Group:bob")]), O.READ, "t", BOB)


def test_everyone_is_allowed_only_where_no_acl_applies() -> None:
    """Rule S42."""
    authorizer = StandardAuthorizer([acl("t"), acl("own", O.READ, DENY, principal="User:eve")], allow_everyone=True)
    assert may(authorizer, O.WRITE, "other") and may(authorizer, O.READ, "t")
    assert not may(authorizer, O.WRITE, "t") and not may(authorizer, O.READ, "t", "User:eve")
    assert not may(authorizer, O.WRITE, "own", "User:eve") and not may(authorizer, O.WRITE, "own")


def test_a_change_of_acls_counts_at_once() -> None:
    """Rule S43."""
    authorizer = StandardAuthorizer()
    assert not may(authorizer, O.READ, "orders")
    authorizer.replace([acl("ord", pattern=PREFIXED)], ())
    assert may(authorizer, O.READ, "orders")
    authorizer.replace((), [acl("ord", pattern=PREFIXED)])
    assert not may(authorizer, O.READ, "orders") and not list(authorizer.bindings)


def test_the_operations_of_a_type_are_kafkas_bits() -> None:
    """Rule S44."""
    assert [ALL_OPERATIONS[kind] for kind in (TOPIC, GROUP, CLUSTER)] == [3576, 3400, 8096]
    authorizer = StandardAuthorizer([acl("t"), acl("all", O.ALL)])
    assert authorizer.authorized_operations(BOB, HERE, TOPIC, "t") == 264
    assert authorizer.authorized_operations(BOB, HERE, TOPIC, "all") == 3576
    assert authorizer.authorized_operations(BOB, HERE, TOPIC, "other") == 0


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([acl("absent", O.WRITE)], True),
        ([acl("absent", O.READ)], False),
        ([acl("a", O.WRITE), acl("a", O.WRITE, DENY)], False),
        ([acl("a", O.WRITE), acl("a", O.ALL, DENY)], False),
        ([acl("abc", O.WRITE), acl("ab", O.WRITE, DENY, PREFIXED)], False),
        ([acl("abc", O.WRITE, pattern=PREFIXED), acl("abc", O.WRITE, DENY, PREFIXED)], False),
        ([acl("ab", O.WRITE, pattern=PREFIXED), acl("abc", O.WRITE, DENY, PREFIXED)], True),
        ([acl("ab", O.WRITE, pattern=PREFIXED), acl("ab", O.WRITE, DENY)], True),
        ([acl("*", O.WRITE), acl("a", O.WRITE, DENY)], True),
        ([acl("a", O.WRITE), acl("*", O.WRITE, DENY)], False),
        ([acl("a", O.WRITE, principal="User:eve")], False),
        ([acl("a", O.WRITE, host="10.0.0.1")], False),
    ],
)
def test_any_topic_will_do_for_a_producer_id(acls: list[AclBinding], expected: bool) -> None:
    """The row of InitProducerId."""
    assert StandardAuthorizer(acls).authorize_by_resource_type(BOB, HERE, O.WRITE, TOPIC) is expected


def test_decisions_about_very_many_names_are_not_all_kept() -> None:
    authorizer = StandardAuthorizer([acl("*")])
    assert all(may(authorizer, O.READ, f"t{number}") for number in range(50_000))
    assert len(authorizer._decided) <= 20_000


# --- against a model --------------------------------------------------------------------------------------------------

NAMES = st.text("ab*", max_size=3)
OPERATIONS = st.sampled_from([one for one in AclOperation if one > O.ANY])
BINDINGS = st.builds(
    AclBinding,
    st.builds(
        ResourcePattern, st.sampled_from([TOPIC, GROUP]), NAMES.filter(bool), st.sampled_from([LITERAL, PREFIXED])
    ),
    st.builds(
        AccessControlEntry,
        st.sampled_from([BOB, "User:eve", "User:*", "Group:bob"]),
        st.sampled_from(["*", HERE, "10.0.0.1"]),
        OPERATIONS,
        st.sampled_from([ALLOW, DENY]),
    ),
)
IMPLIED = {
    O.DESCRIBE: {O.READ, O.WRITE, O.DELETE, O.ALTER},
    O.DESCRIBE_CONFIGS: {O.ALTER_CONFIGS},
}


def decided(
    acls: Iterable[AclBinding],
    principal: str,
    operation: AclOperation,
    kind: AclResourceType,
    name: str,
    *,
    open_: bool,
) -> bool:
    """The rules as they are written down, one ACL after the other."""
    applying = [
        one
        for one in acls
        if one.pattern.resource_type is kind
        and (
            name.startswith(one.pattern.name)
            if one.pattern.pattern_type is PREFIXED
            else one.pattern.name in {name, "*"}
        )
    ]
    about = [
        one.entry for one in applying if one.entry.principal in {principal, "User:*"} and one.entry.host in {"*", HERE}
    ]
    if any(one.permission_type is DENY and one.operation in {operation, O.ALL} for one in about):
        return False
    allowing = {operation, O.ALL} | IMPLIED.get(operation, set())
    if any(one.permission_type is ALLOW and one.operation in allowing for one in about):
        return True
    return open_ and not applying


@settings(max_examples=300, deadline=None)
@given(
    st.lists(BINDINGS, max_size=12),
    st.lists(st.tuples(st.booleans(), BINDINGS), max_size=6),
    st.lists(
        st.tuples(st.sampled_from([BOB, "User:eve"]), OPERATIONS, st.sampled_from([TOPIC, GROUP]), NAMES), min_size=1
    ),
    st.booleans(),
)
def test_decisions_are_those_of_the_rules_whatever_was_added_and_removed(
    acls: list[AclBinding],
    changes: list[tuple[bool, AclBinding]],
    asked: list[tuple[str, AclOperation, AclResourceType, str]],
    open_: bool,
) -> None:
    authorizer = StandardAuthorizer(acls, allow_everyone=open_)
    known = set(acls)
    for is_added, binding in [(True, None), *changes]:
        if binding is not None:
            authorizer.replace([binding] if is_added else [], [] if is_added else [binding])
            known = known | {binding} if is_added else known - {binding}
        for principal, operation, kind, name in asked:
            expected = decided(known, principal, operation, kind, name, open_=open_)
            assert authorizer.authorize(principal, HERE, operation, kind, name) is expected
            bits = sum(
                1 << one for one in OPERATIONS_OF[kind] if decided(known, principal, one, kind, name, open_=open_)
            )
            assert authorizer.authorized_operations(principal, HERE, kind, name) == bits
    assert set(authorizer.bindings) == known


@settings(max_examples=200, deadline=None)
@given(st.lists(BINDINGS, max_size=8), OPERATIONS)
def test_any_resource_will_do_if_one_of_the_patterns_allows_it(acls: list[AclBinding], operation: AclOperation) -> None:
    """An ALLOW of a pattern counts if nothing denies all names of the pattern: its own name stands for them."""
    authorizer = StandardAuthorizer(acls)

    def about(permission: AclPermissionType) -> list[ResourcePattern]:
        return [
            one.pattern
            for one in acls
            if one.pattern.resource_type is TOPIC
            and one.entry.permission_type is permission
            and one.entry.operation in {operation, O.ALL}
            and one.entry.principal in {BOB, "User:*"}
            and one.entry.host in {"*", HERE}
        ]

    def covers(denied: ResourcePattern, allowed: ResourcePattern) -> bool:
        if denied.pattern_type is PREFIXED:
            is_wild = allowed.pattern_type is LITERAL and allowed.name == "*"
            return not is_wild and allowed.name.startswith(denied.name)
        return denied.name == "*" or (allowed.pattern_type is LITERAL and allowed.name == denied.name)

    expected = any(not any(covers(deny, allow) for deny in about(DENY)) for allow in about(ALLOW))
    hardcoded = authorizer.authorize(BOB, HERE, operation, TOPIC, "hardcode")
    assert authorizer.authorize_by_resource_type(BOB, HERE, operation, TOPIC) is (expected or hardcoded)


# --- filters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (ResourcePatternFilter(), {"ab", "abc", "a-prefix", "*", "g"}),
        (ResourcePatternFilter(TOPIC), {"ab", "abc", "a-prefix", "*"}),
        (ResourcePatternFilter(TOPIC, "ab"), {"ab"}),
        (ResourcePatternFilter(TOPIC, "a", PatternType.ANY), {"a-prefix"}),
        (ResourcePatternFilter(TOPIC, "a", LITERAL), set()),
        (ResourcePatternFilter(TOPIC, "a", PREFIXED), {"a-prefix"}),
        (ResourcePatternFilter(TOPIC, "ab", PatternType.MATCH), {"ab", "a-prefix", "*"}),
        (ResourcePatternFilter(TOPIC, "*", PatternType.MATCH), {"*"}),
        (ResourcePatternFilter(TOPIC, None, PREFIXED), {"a-prefix"}),
        (ResourcePatternFilter(CLUSTER), set()),
    ],
)
def test_a_pattern_filter_finds_what_it_says(wanted: ResourcePatternFilter, found: set[str]) -> None:
    """Rule S50."""
    acls = {
        "ab": acl("ab"),
        "abc": acl("abc"),
        "a-prefix": acl("a", pattern=PREFIXED),
        "*": acl("*"),
        "g": acl("g", kind=GROUP),
    }
    assert {key for key, one in acls.items() if AclBindingFilter(wanted).matches(one)} == found


def test_an_entry_filter_compares_texts_and_has_no_wildcards_but_null_and_any() -> None:
    """Rule S50."""
    everybody = acl("t", O.ALL, principal="User:*")
    assert AccessControlEntryFilter().matches(everybody.entry)
    assert AccessControlEntryFilter(principal="User:*").matches(everybody.entry)
    assert not AccessControlEntryFilter(principal=BOB).matches(everybody.entry)
    assert not AccessControlEntryFilter(operation=O.READ).matches(everybody.entry)
    assert not AccessControlEntryFilter(operation=O.ALL).matches(acl("t").entry)
    assert not AccessControlEntryFilter(permission_type=DENY).matches(everybody.entry)
    assert not AccessControlEntryFilter(host=HERE).matches(everybody.entry)
