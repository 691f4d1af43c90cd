"""AuthHelper decides what the client of a call may do. Without an authorizer, every client may do everything.

Each handler asks at the beginning, before it looks whether what was asked for exists. What an API needs is where it is
handled, and in section 7 of docs/semantics-security.md. Denials become facts, as Kafka writes them to its audit log
(S37).
"""

from __future__ import annotations

from collections.abc import Iterable

from coterie.broker.broker_effects import Effects
from coterie.broker.broker_facts import AuthorizationDenied, Reporter
from coterie.broker.calls import Call
from coterie.broker.security.authorizer import ALL_OPERATIONS, StandardAuthorizer
from coterie.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType

MOST_DENIALS = 100
"""The number of denials of one event that are reported: a request may name a million resources."""


class AuthHelper:
    def __init__(self, authorizer: StandardAuthorizer | None, reporter: Reporter) -> None:
        self.authorizer = authorizer
        self._reporter = reporter
        self.denials: list[AuthorizationDenied] = []
        """Denials that are not reported yet; `Cluster.after` reports them when the event ends."""

    def authorize(
        self,
        call: Call,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str = CLUSTER_NAME,
        *,
        logs: bool = True,
    ) -> bool:
        """Return whether the client may do this to a resource. `logs` is off for what is left out silently."""
        if self.authorizer is None:
            return True
        connection = call.connection
        if self.authorizer.authorize(connection.principal, connection.host, operation, resource_type, name):
            return True
        if logs:
            self._deny(call, operation, resource_type, name)
        return False

    def denied(
        self, call: Call, operation: AclOperation, resource_type: AclResourceType, names: Iterable[str]
    ) -> frozenset[str]:
        """Return those resources that the client may not do this to: mostly none, and then at no cost."""
        if self.authorizer is None:
            return frozenset()
        return frozenset(
            name for name in dict.fromkeys(names) if not self.authorize(call, operation, resource_type, name)
        )

    def authorize_by_resource_type(self, call: Call, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Return whether there may be any resource of a type that the client may do this to."""
        if self.authorizer is None:
            return True
        connection = call.connection
        return self.authorizer.authorize_by_resource_type(
            connection.principal, connection.host, operation, resource_type
        )

    def authorized_operations(self, call: Call, resource_type: AclResourceType, name: str = CLUSTER_NAME) -> int:
        """Return what the client may do to a resource, as bits (rule S44)."""
        if self.authorizer is None:
            return ALL_OPERATIONS[resource_type]
        connection = call.connection
        return self.authorizer.authorized_operations(connection.principal, connection.host, resource_type, name)

    def cluster_operations(self, call: Call) -> int:
        """Return what the client may do to the cluster; nothing if it may not describe it."""
        if not self.authorize(call, AclOperation.DESCRIBE, AclResourceType.CLUSTER, logs=False):
            return 0
        return self.authorized_operations(call, AclResourceType.CLUSTER)

    # --- facts --------------------------------------------------------------------------------------------------------

    def _deny(self, call: Call, operation: AclOperation, resource_type: AclResourceType, name: str) -> None:
        if len(self.denials) >= MOST_DENIALS:
            return
        connection = call.connection
        self.denials.append(
            AuthorizationDenied(
                0,
                "",
                principal=connection.principal,
                operation=operation.name,
                resource_type=resource_type.name,
                resource_name=name,
                host=connection.host,
                request=call.route.api.name,
            )
        )

    def report(self, now_ms: int) -> Effects:
        denials, self.denials = self.denials, []
        for denial in denials:
            denial.at_ms = now_ms
        return [self._reporter.fact(denial) for denial in denials]
