"""The authorizer decides from ACLs what a principal may do, as Kafka's `StandardAuthorizer` does (rules S38-S44).

A super user may do everything. Else a DENY that matches wins, then an ALLOW that matches; how specific a pattern is
does not matter. Without either the answer is no, or yes if `allow.everyone.if.no.acl.found` is set and no ACL at all
applies to the resource. `AuthHelper` asks it on behalf of the handlers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from types import MappingProxyType

from coterie.protocol.acls import (
    ANY_HOST,
    ANY_USER,
    OPERATIONS_OF,
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)

_O = AclOperation
_ALLOWS: Mapping[AclOperation, frozenset[AclOperation]] = MappingProxyType(
    {
        **{operation: frozenset({operation, _O.ALL}) for operation in AclOperation},
        _O.DESCRIBE: frozenset({_O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER, _O.ALL}),
        _O.DESCRIBE_CONFIGS: frozenset({_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.ALL}),
    }
)
"""The operations whose ALLOW allows an operation. A DENY implies nothing: it denies its own operation (rule S40)."""

ALL_OPERATIONS: Mapping[AclResourceType, int] = MappingProxyType(
    {kind: sum(1 << operation for operation in operations) for kind, operations in OPERATIONS_OF.items()}
)
"""All operations of each type of resource, as bits."""

_MOST_DECISIONS = 20_000
"""Clients choose the names that they ask for, so decisions are not kept for all of them."""
_HARDCODED = "hardcode"
"""The topic that Kafka asks about first when any topic will do."""

Entries = dict[AccessControlEntry, None]
"""A set with an order."""


class _Acls:
    """The ACLs on resources of one type: by the name of a literal, and by prefix."""

    def __init__(self) -> None:
        self.literal: dict[str, Entries] = {}
        self.prefixed: dict[str, Entries] = {}
        self._lengths: list[int] = []
        """The lengths of the prefixes, in order."""

    def of(self, pattern_type: PatternType) -> dict[str, Entries]:
        return self.prefixed if pattern_type is PatternType.PREFIXED else self.literal

    def patterns_changed(self) -> None:
        self._lengths = sorted({len(prefix) for prefix in self.prefixed})

    def applying_to(self, name: str) -> Iterator[Entries]:
        """Return the entries of each pattern that applies to a resource, with one lookup for each that could."""
        for key in {name, WILDCARD}:
            if key in self.literal:
                yield self.literal[key]
        for length in self._lengths:
            if length > len(name):
                break
            entries = self.prefixed.get(name[:length])
            if entries is not None:
                yield entries


class StandardAuthorizer:
    def __init__(
        self,
        acls: Iterable[AclBinding] = (),
        *,
        super_users: frozenset[str] = frozenset(),
        allow_everyone: bool = False,
    ) -> None:
        """`allow_everyone` is `allow.everyone.if.no.acl.found`."""
        self._super_users = super_users
        self._allow_everyone = allow_everyone
        self._bindings: dict[AclBinding, None] = {}
        self._acls = {kind: _Acls() for kind in AclResourceType}
        self._decided: dict[tuple[str, str, AclOperation, AclResourceType, str], bool] = {}
        """Decisions since the ACLs last changed."""
        self.replace(acls, ())

    # --- ACLs ---------------------------------------------------------------------------------------------------------

    @property
    def bindings(self) -> Iterable[AclBinding]:
        return self._bindings.keys()

    def find(self, wanted: AclBindingFilter) -> list[AclBinding]:
        return [binding for binding in self._bindings if wanted.matches(binding)]

    def replace(self, added: Iterable[AclBinding], removed: Iterable[AclBinding]) -> None:
        """Add ACLs and remove others. The next decision knows about it, on open connections too (rule S43)."""
        touched: set[AclResourceType] = set()
        for binding in removed:
            if binding in self._bindings:
                del self._bindings[binding]
                pattern = binding.pattern
                by_name = self._acls[pattern.resource_type].of(pattern.pattern_type)
                del by_name[pattern.name][binding.entry]
                if not by_name[pattern.name]:
                    del by_name[pattern.name]
                touched.add(pattern.resource_type)
        for binding in added:
            self._bindings[binding] = None
            pattern = binding.pattern
            by_name = self._acls[pattern.resource_type].of(pattern.pattern_type)
            by_name.setdefault(pattern.name, {})[binding.entry] = None
            touched.add(pattern.resource_type)
        for kind in touched:
            self._acls[kind].patterns_changed()
        self._decided.clear()

    # --- decisions ----------------------------------------------------------------------------------------------------

    def authorize(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        """Return whether a principal may do this to a resource."""
        key = (principal, host, operation, resource_type, name)
        decision = self._decided.get(key)
        if decision is None:
            if len(self._decided) >= _MOST_DECISIONS:
                self._decided.clear()
            decision = self._decided[key] = self._decide(principal, host_text(host), operation, resource_type, name)
        return decision

    def _decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        allowed, has_acls = False, False
        allowing = _ALLOWS[operation]
        for entries in self._acls[resource_type].applying_to(name):
            has_acls = True
            for entry in entries:
                if not _is_about(entry, principal, host):
                    continue
                if entry.permission_type is AclPermissionType.DENY:
                    if entry.operation in (operation, _O.ALL):
                        return False
                elif entry.operation in allowing:
                    allowed = True
        return allowed or (self._allow_everyone and not has_acls)

    def authorize_by_resource_type(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """Return whether there is any resource of a type, existing or not, that a principal may do this to.

        An ALLOW counts unless a DENY covers its whole pattern: the same literal, a prefix of it, or `*`.
        """
        if self.authorize(principal, host, operation, resource_type, _HARDCODED):
            return True  # super users, and all clients where there are no ACLs
        acls = self._acls[resource_type]
        peer = host_text(host)

        def named(by_name: dict[str, Entries], permission: AclPermissionType) -> set[str]:
            return {
                name
                for name, entries in by_name.items()
                if any(
                    entry.permission_type is permission
                    and entry.operation in (operation, _O.ALL)
                    and _is_about(entry, principal, peer)
                    for entry in entries
                )
            }

        denied, denied_prefixes = (named(one, AclPermissionType.DENY) for one in (acls.literal, acls.prefixed))
        if WILDCARD in denied:
            return False
        allowed = named(acls.literal, AclPermissionType.ALLOW)
        if WILDCARD in allowed:
            return True
        candidates = (allowed - denied) | named(acls.prefixed, AclPermissionType.ALLOW)
        return any(
            not any(name[:length] in denied_prefixes for length in range(1, len(name) + 1)) for name in candidates
        )

    def authorized_operations(self, principal: str, host: str, resource_type: AclResourceType, name: str) -> int:
        """Return the operations of the type that a principal may do to a resource, as bits (rule S44)."""
        return sum(
            1 << operation
            for operation in OPERATIONS_OF[resource_type]
            if self.authorize(principal, host, operation, resource_type, name)
        )


def _is_about(entry: AccessControlEntry, principal: str, host: str) -> bool:
    """Return whether an entry is about a principal at a host (rule S41)."""
    return entry.principal in (principal, ANY_USER) and (entry.host == ANY_HOST or host_text(entry.host) == host)


def host_text(host: str) -> str:
    """Return an address in the one form in which it is compared: IPv6 has several, `::1` and `0:0:0:0:0:0:0:1`."""
    if ":" not in host:
        return host
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def parse_super_users(setting: str) -> frozenset[str]:
    """Return the principals of `super.users`, which are separated by semicolons: names may have commas in them."""
    return frozenset(principal for principal in map(str.strip, setting.split(";")) if principal)
