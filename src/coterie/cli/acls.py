"""`coterie acls`: each command returns rows. The options are those of kafka-acls.sh (rule S46)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from coterie.cli.options import CommandError
from coterie.cli.output import Cell, Rows
from coterie.client.admin import (
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    Admin,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
)
from coterie.errors import KafkaError
from coterie.protocol.acls import ANY_HOST, CLUSTER_NAME

ACL = ("RESOURCE-TYPE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")
CONSUMER = {
    AclResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    AclResourceType.GROUP: (AclOperation.READ,),
}
PRODUCER = {
    AclResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    AclResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
NEITHER = (AclOperation.UNKNOWN, AclOperation.ANY)


@dataclass(frozen=True)
class Resources:
    """The resources of ACLs, from the options."""

    topics: Sequence[str]
    groups: Sequence[str]
    transactional_ids: Sequence[str]
    cluster: bool
    pattern: str

    @property
    def pattern_type(self) -> PatternType:
        found = {kind.name.lower(): kind for kind in PatternType if kind}.get(self.pattern.strip().lower())
        if found is None:
            raise CommandError(f"--resource-pattern-type {self.pattern!r}: give literal, prefixed, any or match")
        return found

    def patterns(self) -> list[ResourcePattern]:
        kind = self.pattern_type
        named = [
            *((AclResourceType.TOPIC, name) for name in self.topics),
            *((AclResourceType.GROUP, name) for name in self.groups),
            *((AclResourceType.TRANSACTIONAL_ID, name) for name in self.transactional_ids),
        ]
        patterns = [ResourcePattern(resource_type, name, kind) for resource_type, name in named]
        if self.cluster:
            patterns.append(ResourcePattern(AclResourceType.CLUSTER, CLUSTER_NAME))
        return patterns

    def new_patterns(self) -> list[ResourcePattern]:
        """Return the patterns of ACLs to add or remove."""
        if self.pattern_type not in {PatternType.LITERAL, PatternType.PREFIXED}:
            raise CommandError(f"--resource-pattern-type {self.pattern}: an ACL is literal or prefixed")
        return self.patterns()


@dataclass(frozen=True)
class People:
    allowed: Sequence[str]
    denied: Sequence[str]
    allowed_hosts: Sequence[str]
    denied_hosts: Sequence[str]

    def entries(self, operation: AclOperation) -> list[AccessControlEntry]:
        for name in (*self.allowed, *self.denied):
            if ":" not in name:
                raise CommandError(f"{name!r} is not a principal: give its type too, as in User:{name}")
        return [
            AccessControlEntry(principal, host, operation, permission)
            for permission, principals, hosts in (
                (AclPermissionType.ALLOW, self.allowed, self.allowed_hosts),
                (AclPermissionType.DENY, self.denied, self.denied_hosts),
            )
            for principal, host in product(principals, hosts or [ANY_HOST])
        ]


@dataclass(frozen=True)
class Rights:
    operations: Sequence[str]
    consumer: bool
    producer: bool
    idempotent: bool

    def on(self, patterns: Sequence[ResourcePattern]) -> list[tuple[ResourcePattern, AclOperation]]:
        """Return each resource with each operation."""
        if not (self.consumer or self.producer):
            operations = [_operation(text) for text in self.operations] or [AclOperation.ALL]
            return list(product(patterns, operations))
        if self.operations:
            raise CommandError("--operation does not go with --consumer and --producer, which say what is needed")
        types = {pattern.resource_type for pattern in patterns}
        if self.consumer and not {AclResourceType.TOPIC, AclResourceType.GROUP} <= types:
            raise CommandError("--consumer needs --topic and --group: a consumer reads the one and joins the other")
        if AclResourceType.TOPIC not in types:
            raise CommandError("--producer needs --topic")
        found: dict[tuple[ResourcePattern, AclOperation], None] = {}
        for is_given, needs in ((self.producer, PRODUCER), (self.consumer, CONSUMER)):
            for pattern in patterns if is_given else ():
                found |= dict.fromkeys((pattern, operation) for operation in needs.get(pattern.resource_type, ()))
        if self.producer and self.idempotent:
            cluster = ResourcePattern(AclResourceType.CLUSTER, CLUSTER_NAME)
            found[cluster, AclOperation.IDEMPOTENT_WRITE] = None
        return list(found)


def list_all(admin: Admin, resources: Resources, principals: Sequence[str]) -> Rows:
    kind = resources.pattern_type
    wanted = [ResourcePatternFilter(pattern.resource_type, pattern.name, kind) for pattern in resources.patterns()] or [
        ResourcePatternFilter(pattern_type=kind)
    ]
    who: Sequence[str | None] = principals or [None]
    found: set[AclBinding] = set()
    for pattern, principal in product(wanted, who):
        found.update(admin.describe_acls(AclBindingFilter(pattern, AccessControlEntryFilter(principal))))
    hints = [] if found else ["there are no such ACLs; add one with: coterie acls add"]
    return Rows(ACL, _rows(sorted(found)), hints)


def add(admin: Admin, resources: Resources, people: People, rights: Rights) -> Rows:
    bindings = _bindings(resources, people, rights)
    if not bindings:
        raise CommandError("say who: --allow-principal User:NAME or --deny-principal User:NAME")
    results = admin.create_acls(bindings)
    rows = _rows(binding for binding, error in results.items() if error is None)
    return Rows(ACL, rows, errors=[str(error) for error in results.values() if error is not None])


def remove(admin: Admin, resources: Resources, people: People, rights: Rights) -> Rows:
    bindings = _bindings(resources, people, rights)
    filters = [
        AclBindingFilter(
            ResourcePatternFilter(one.pattern.resource_type, one.pattern.name, one.pattern.pattern_type),
            AccessControlEntryFilter(
                one.entry.principal, one.entry.host, one.entry.operation, one.entry.permission_type
            ),
        )
        for one in bindings
    ]
    if not bindings:  # nobody is named: all ACLs of the resources
        if rights.operations or rights.consumer or rights.producer:
            raise CommandError("say whose: --allow-principal User:NAME or --deny-principal User:NAME")
        filters = [
            AclBindingFilter(ResourcePatternFilter(pattern.resource_type, pattern.name, pattern.pattern_type))
            for pattern in resources.new_patterns()
        ]
    results = admin.delete_acls(filters)
    gone = [acl for found in results.values() if not isinstance(found, KafkaError) for acl in found]
    errors = [str(found) for found in results.values() if isinstance(found, KafkaError)]
    hints = [] if gone or errors else ["there were no such ACLs; coterie acls list shows those there are"]
    return Rows(ACL, _rows(dict.fromkeys(gone)), hints, errors=errors)


def _bindings(resources: Resources, people: People, rights: Rights) -> list[AclBinding]:
    patterns = resources.new_patterns()
    if not patterns:
        raise CommandError("say what it is about: --topic, --group, --transactional-id or --cluster")
    return [
        AclBinding(pattern, entry) for pattern, operation in rights.on(patterns) for entry in people.entries(operation)
    ]


def _operation(text: str) -> AclOperation:
    """Return an operation by its name, in any of the ways it is written: DescribeConfigs, DESCRIBE_CONFIGS."""
    names = {one.name.replace("_", "").lower(): one for one in AclOperation if one not in NEITHER}
    found = names.get(text.replace("_", "").replace("-", "").strip().lower())
    if found is None:
        raise CommandError(f"--operation {text!r}: give one of {', '.join(map(_name, names.values()))}")
    return found


def _name(operation: AclOperation) -> str:
    """Return the name as kafka-acls writes it: DescribeConfigs."""
    return operation.name.title().replace("_", "")


def _rows(bindings: Iterable[AclBinding]) -> list[Sequence[Cell]]:
    return [
        (
            pattern.resource_type.name,
            pattern.name,
            pattern.pattern_type.name,
            entry.principal,
            entry.host,
            entry.operation.name,
            entry.permission_type.name,
        )
        for pattern, entry in ((one.pattern, one.entry) for one in bindings)
    ]
