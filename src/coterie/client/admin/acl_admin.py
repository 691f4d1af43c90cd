"""ACLs: who may do what. The types are those of `coterie.protocol.acls`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from coterie.client.admin.results import FOR_TOPICS, each, failure
from coterie.client.arguments import all_of
from coterie.client.network.network_client import NetworkClient
from coterie.errors import IllegalArgumentError, KafkaError
from coterie.protocol.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from coterie.protocol.apis import create_acls, delete_acls, describe_acls

EVERYTHING = AclBindingFilter()
_A_BINDING = (
    '[AclBinding(ResourcePattern(AclResourceType.TOPIC, "orders"), AccessControlEntry("User:bob", '
    "operation=AclOperation.READ))]"
)
_A_FILTER = '[AclBindingFilter(ResourcePatternFilter(AclResourceType.TOPIC, "orders"))]'


class AclsAdmin:
    _cluster: NetworkClient

    async def describe_acls(self, wanted: AclBindingFilter = EVERYTHING) -> list[AclBinding]:
        """List the ACLs that a filter finds.

        Args:
            wanted: What to find; all ACLs if it is not given.

        Returns:
            The ACLs, in order of their resources.

        Raises:
            KafkaError: The broker refused, or could not be reached in time.
        """
        if not isinstance(wanted, AclBindingFilter):
            raise IllegalArgumentError(f"{wanted!r} is not a filter: give {_A_FILTER[1:-1]}")
        request = describe_acls.Request(
            resource_type_filter=wanted.pattern.resource_type,
            resource_name_filter=wanted.pattern.name,
            pattern_type_filter=wanted.pattern.pattern_type,
            principal_filter=wanted.entry.principal,
            host_filter=wanted.entry.host,
            operation=wanted.entry.operation,
            permission_type=wanted.entry.permission_type,
        )

        async def attempt() -> list[AclBinding]:
            response: describe_acls.Response = await self._cluster.send(None, describe_acls, request)
            if response.error:
                raise KafkaError.of(response.error, "describing ACLs", response.message)
            return sorted(
                AclBinding(
                    ResourcePattern(
                        AclResourceType(resource.resource_type),
                        resource.resource_name,
                        PatternType(resource.pattern_type),
                    ),
                    AccessControlEntry(
                        acl.principal, acl.host, AclOperation(acl.operation), AclPermissionType(acl.permission_type)
                    ),
                )
                for resource in response.resources
                for acl in resource.acls
            )

        return await self._cluster.retry(attempt, what="describing ACLs")

    async def create_acls(self, acls: Collection[AclBinding]) -> dict[AclBinding, KafkaError | None]:
        """Create ACLs. One that exists already is no error.

        Args:
            acls: The ACLs to create.

        Returns:
            None for each ACL that is there now, or the error it met.
        """
        wanted = all_of(acls, AclBinding, _A_BINDING)

        async def ask(left: Sequence[AclBinding]) -> dict[AclBinding, KafkaError | None]:
            request = create_acls.Request(creations=[_creation(binding) for binding in left])
            response: create_acls.Response = await self._cluster.send(None, create_acls, request)
            return {
                binding: failure(result.error, f"creating the ACL {binding}", result.message)
                for binding, result in zip(left, response.results, strict=False)
            }

        return await each(
            self._cluster, wanted, ask, what=lambda binding: f"creating the ACL {binding}", again=FOR_TOPICS
        )

    async def delete_acls(
        self, filters: Collection[AclBindingFilter]
    ) -> dict[AclBindingFilter, list[AclBinding] | KafkaError]:
        """Delete all ACLs that filters find.

        Args:
            filters: What to delete. To find nothing is no error.

        Returns:
            The ACLs that each filter found and that are deleted, or the error it met.
        """
        wanted = all_of(filters, AclBindingFilter, _A_FILTER)

        async def ask(left: Sequence[AclBindingFilter]) -> dict[AclBindingFilter, list[AclBinding] | KafkaError]:
            request = delete_acls.Request(filters=[_filter(one) for one in left])
            response: delete_acls.Response = await self._cluster.send(None, delete_acls, request)
            return {
                one: KafkaError.of(result.error, "deleting ACLs", result.message) if result.error else _deleted(result)
                for one, result in zip(left, response.filter_results, strict=False)
            }

        return await each(self._cluster, wanted, ask, what=lambda _: "deleting ACLs", again=FOR_TOPICS)


def _creation(binding: AclBinding) -> create_acls.Creation:
    pattern, entry = binding.pattern, binding.entry
    return create_acls.Creation(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        resource_pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )


def _filter(wanted: AclBindingFilter) -> delete_acls.Filter:
    return delete_acls.Filter(
        resource_type_filter=wanted.pattern.resource_type,
        resource_name_filter=wanted.pattern.name,
        pattern_type_filter=wanted.pattern.pattern_type,
        principal_filter=wanted.entry.principal,
        host_filter=wanted.entry.host,
        operation=wanted.entry.operation,
        permission_type=wanted.entry.permission_type,
    )


def _deleted(result: delete_acls.FilterResult) -> list[AclBinding]:
    return sorted(
        AclBinding(
            ResourcePattern(AclResourceType(acl.resource_type), acl.resource_name, PatternType(acl.pattern_type)),
            AccessControlEntry(
                acl.principal, acl.host, AclOperation(acl.operation), AclPermissionType(acl.permission_type)
            ),
        )
        for acl in result.matching_acls
        if not acl.error
    )
