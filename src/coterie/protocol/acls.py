"""Access control lists in Kafka's words: who may do what to which resource, from which host.

An `AclBinding` ties an entry (principal, host, operation, ALLOW or DENY) to the pattern of a resource: LITERAL for one
name, where `*` is every name, or PREFIXED for all names that begin with it. An `AclBindingFilter` finds bindings.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Self

from coterie.structs import DataStruct

WILDCARD = "*"
"""The name of a LITERAL pattern that means every resource of the type."""
ANY_HOST = "*"
ANY_USER = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""


class _Code(IntEnum):
    """A number on the wire. Numbers that this release does not know are UNKNOWN."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return cls(0) if isinstance(value, int) else None


class AclResourceType(_Code):
    """The type of resource that an ACL is about. Kafka calls it `ResourceType`."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    """The way a pattern names resources. ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Code):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(_Code):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_O = AclOperation
OPERATIONS_OF: Mapping[AclResourceType, tuple[AclOperation, ...]] = MappingProxyType(
    {
        AclResourceType.TOPIC: (
            _O.READ,
            _O.WRITE,
            _O.CREATE,
            _O.DELETE,
            _O.ALTER,
            _O.DESCRIBE,
            _O.DESCRIBE_CONFIGS,
            _O.ALTER_CONFIGS,
        ),
        AclResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
        AclResourceType.CLUSTER: (
            _O.CREATE,
            _O.ALTER,
            _O.DESCRIBE,
            _O.CLUSTER_ACTION,
            _O.DESCRIBE_CONFIGS,
            _O.ALTER_CONFIGS,
            _O.IDEMPOTENT_WRITE,
        ),
        AclResourceType.TRANSACTIONAL_ID: (_O.DESCRIBE, _O.WRITE, _O.TWO_PHASE_COMMIT),
        AclResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
        AclResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
    }
)
"""The operations that a resource of each type has (rule S44). A broker stores ACLs of other operations as well."""


class ResourcePattern(DataStruct, frozen=True, order=True):
    """One resource by its name, all that begin with a prefix, or with the name `*` all of a type."""

    resource_type: AclResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def applies_to(self, name: str) -> bool:
        """Return whether ACLs with this pattern apply to the resource of that name (rules S38, S41)."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class AccessControlEntry(DataStruct, frozen=True, order=True):
    principal: str
    """`User:` and a name, or `User:*` for every principal."""
    host: str = ANY_HOST
    """The address that the client connects from, or `*`. Host names and networks match nothing."""
    operation: AclOperation = AclOperation.ALL
    permission_type: AclPermissionType = AclPermissionType.ALLOW


class AclBinding(DataStruct, frozen=True, order=True):
    pattern: ResourcePattern
    entry: AccessControlEntry

    def __str__(self) -> str:
        pattern, entry = self.pattern, self.entry
        name = f"{pattern.pattern_type.name} {pattern.name!r}"
        who = entry.principal if entry.host == ANY_HOST else f"{entry.principal} from {entry.host}"
        what = f"{entry.operation.name} on {pattern.resource_type.name} {name}"
        return f"{entry.permission_type.name} {who} {what}"


class ResourcePatternFilter(DataStruct, frozen=True):
    """Finds patterns. LITERAL and PREFIXED find exactly that kind, ANY both, MATCH all that apply to the name."""

    resource_type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY

    def matches(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (AclResourceType.ANY, pattern.resource_type):
            return False
        wanted = self.pattern_type
        if wanted not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        return pattern.applies_to(self.name) if wanted is PatternType.MATCH else pattern.name == self.name


class AccessControlEntryFilter(DataStruct, frozen=True):
    """Finds entries. None and ANY find all; everything else is compared as it stands."""

    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY

    def matches(self, entry: AccessControlEntry) -> bool:
        return (
            (self.principal is None or self.principal == entry.principal)
            and (self.host is None or self.host == entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission_type in (AclPermissionType.ANY, entry.permission_type)
        )


class AclBindingFilter(DataStruct, frozen=True):
    """Finds ACLs (rule S50). The default finds all of them."""

    pattern: ResourcePatternFilter = ResourcePatternFilter()
    entry: AccessControlEntryFilter = AccessControlEntryFilter()

    def matches(self, binding: AclBinding) -> bool:
        return self.pattern.matches(binding.pattern) and self.entry.matches(binding.entry)
