"""DescribeAcls, CreateAcls and DeleteAcls (rules S47-S51)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from coterie.broker.broker_effects import Effects, Work
from coterie.broker.broker_facts import Reporter
from coterie.broker.calls import Call, Handler, Responses
from coterie.broker.handlers.refusals import CLUSTER_DENIED, Refusal
from coterie.broker.maintenance.directory_changes import Changes
from coterie.broker.security.acl_store import AclStore
from coterie.broker.security.auth_helper import AuthHelper
from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.acls import (
    CLUSTER_NAME,
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
from coterie.protocol.apis import create_acls, delete_acls, describe_acls
from coterie.storage import LogError
from coterie.structs import DataStruct

_UNKNOWN = 0
"""A number that means unknown. A client that sends it has made a mistake, and is disconnected (rule S49)."""
_NO_AUTHORIZER = Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")

Answer = Callable[[Refusal | None, int], Effects]
"""Answers the request, with why the disk has refused, if it has, and the time."""


class AclApis(DataStruct, frozen=True, eq=False):
    responses: Responses
    auth: AuthHelper
    store: AclStore
    changes: Changes
    reporter: Reporter

    def handlers(self) -> Mapping[int, Handler]:
        return {
            describe_acls.API.key: self._describe_acls,
            create_acls.API.key: self._create_acls,
            delete_acls.API.key: self._delete_acls,
        }

    # --- DescribeAcls -------------------------------------------------------------------------------------------------

    def _describe_acls(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        wanted = _filter(describe_acls.read_request(frame, at, call.version))
        response = describe_acls.Response()
        if not self.auth.authorize(call, AclOperation.DESCRIBE, AclResourceType.CLUSTER):
            response.error, response.message = CLUSTER_DENIED
        elif self.store.authorizer is None:
            response.error = ErrorCode.SECURITY_DISABLED
            response.message = "No Authorizer is configured on the broker"
        elif _unknown_part(wanted) is None:
            response.resources = _by_pattern(self.store.authorizer.find(wanted))
        return self.responses.answer(call, response, now_ms)

    # --- CreateAcls ---------------------------------------------------------------------------------------------------

    def _create_acls(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        """Create each ACL that is valid. If it exists already, that is no error, and it is not added again."""
        creations = create_acls.read_request(frame, at, call.version).creations
        for one in creations:
            _check_known(one.resource_type, one.resource_pattern_type, one.operation, one.permission_type)
        bindings = [_binding(one) for one in creations]
        refusal = self._refusal(call)
        meant_for_filters = next(filter(None, map(_filter_word, bindings)), None)
        refusals = [refusal or meant_for_filters or _refusal_of(binding) for binding in bindings]
        valid = [binding for binding, refused in zip(bindings, refusals, strict=True) if refused is None]

        def answer(failed: Refusal | None, at_ms: int) -> Effects:
            results = [_created(refused or failed) for refused in refusals]
            return self.responses.answer(call, create_acls.Response(results=results), at_ms)

        if not valid:
            return answer(None, now_ms)
        self.changes.ask(call, lambda at_ms: self._change(valid, (), answer, at_ms))
        return []

    # --- DeleteAcls ---------------------------------------------------------------------------------------------------

    def _delete_acls(self, call: Call, frame: bytes, at: int, _now_ms: int) -> Effects:
        """Delete what the filters find. An ACL that two of them find is in both of their answers."""
        filters = [_filter(one) for one in delete_acls.read_request(frame, at, call.version).filters]
        refusal = self._refusal(call)
        refusals = [refusal or _unknown_part(one) for one in filters]

        def judge(at_ms: int) -> Effects:
            authorizer = self.store.authorizer
            found = [
                authorizer.find(one) if authorizer is not None and refused is None else []
                for one, refused in zip(filters, refusals, strict=True)
            ]

            def answer(failed: Refusal | None, then_ms: int) -> Effects:
                results = [
                    _deleted(refused or failed, bindings) for refused, bindings in zip(refusals, found, strict=True)
                ]
                return self.responses.answer(call, delete_acls.Response(filter_results=results), then_ms)

            removed = list(dict.fromkeys(binding for bindings in found for binding in bindings))
            return self._change((), removed, answer, at_ms)

        self.changes.ask(call, judge)
        return []

    # --- changes ------------------------------------------------------------------------------------------------------

    def _refusal(self, call: Call) -> Refusal | None:
        """Return why a client may not change ACLs at all."""
        if not self.auth.authorize(call, AclOperation.ALTER, AclResourceType.CLUSTER):
            return CLUSTER_DENIED
        return _NO_AUTHORIZER if self.store.authorizer is None else None

    def _change(
        self, added: Sequence[AclBinding], removed: Sequence[AclBinding], answer: Answer, now_ms: int
    ) -> Effects:
        """Change the ACLs in turn; nothing is written for ACLs that are there already."""
        authorizer = self.store.authorizer
        known = set(authorizer.bindings) if authorizer is not None else set()
        new = [binding for binding in dict.fromkeys(added) if binding not in known]
        if not new and not removed:
            return answer(None, now_ms)

        def then(outcome: LogError | None, at_ms: int) -> Effects:
            if outcome is None:
                return answer(None, at_ms)
            failed = Refusal(outcome.code, str(outcome))
            return [self.reporter.trouble(str(outcome), at_ms), *answer(failed, at_ms)]

        return [Work(self.store.change(new, removed), then)]


# --- from the wire ----------------------------------------------------------------------------------------------------


def _check_known(*numbers: int) -> None:
    if _UNKNOWN in numbers:
        raise MalformedError("an ACL or filter with a field that is UNKNOWN (0)")


def _binding(one: create_acls.Creation) -> AclBinding:
    return AclBinding(
        ResourcePattern(AclResourceType(one.resource_type), one.resource_name, PatternType(one.resource_pattern_type)),
        AccessControlEntry(
            one.principal, one.host, AclOperation(one.operation), AclPermissionType(one.permission_type)
        ),
    )


def _filter(one: describe_acls.Request | delete_acls.Filter) -> AclBindingFilter:
    _check_known(one.resource_type_filter, one.pattern_type_filter, one.operation, one.permission_type)
    return AclBindingFilter(
        ResourcePatternFilter(
            AclResourceType(one.resource_type_filter),
            one.resource_name_filter,
            PatternType(one.pattern_type_filter),
        ),
        AccessControlEntryFilter(
            one.principal_filter, one.host_filter, AclOperation(one.operation), AclPermissionType(one.permission_type)
        ),
    )


def _unknown_part(wanted: AclBindingFilter) -> Refusal | None:
    """Return the refusal of a filter with numbers of a later release."""
    if not (wanted.pattern.resource_type and wanted.pattern.pattern_type):
        return Refusal(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if not (wanted.entry.operation and wanted.entry.permission_type):
        return Refusal(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
    return None


def _filter_word(binding: AclBinding) -> Refusal | None:
    """Return the refusal of all ACLs of a request, one of which has a word that only filters have (rule S49)."""
    pattern, entry = binding.pattern, binding.entry
    for field, value, words in (
        ("resourceType", pattern.resource_type, {AclResourceType.ANY}),
        ("patternType", pattern.pattern_type, {PatternType.ANY, PatternType.MATCH}),
        ("operation", entry.operation, {AclOperation.ANY}),
        ("permissionType", entry.permission_type, {AclPermissionType.ANY}),
    ):
        if value in words:
            return Refusal(ErrorCode.INVALID_REQUEST, f"Invalid {field} {value.name}")
    return None


def _refusal_of(binding: AclBinding) -> Refusal | None:
    """Return why an ACL cannot be created (rule S48)."""
    pattern, entry = binding.pattern, binding.entry
    message = None
    if pattern.resource_type is AclResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        message = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not pattern.name:
        message = "Invalid empty resource name"
    elif not pattern.resource_type:
        message = "Invalid resourceType UNKNOWN"
    elif not pattern.pattern_type:
        message = "Invalid patternType UNKNOWN"
    elif not entry.operation:
        message = "Invalid operation UNKNOWN"
    elif not entry.permission_type:
        message = "Invalid permissionType UNKNOWN"
    elif ":" not in entry.principal:
        message = (
            f"Could not parse principal from `{entry.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    return None if message is None else Refusal(ErrorCode.INVALID_REQUEST, message)


# --- to the wire ------------------------------------------------------------------------------------------------------


def _by_pattern(bindings: Iterable[AclBinding]) -> list[describe_acls.Resource]:
    by_pattern: dict[ResourcePattern, list[describe_acls.Acl]] = {}
    for binding in bindings:
        entry = binding.entry
        acl = describe_acls.Acl(
            principal=entry.principal, host=entry.host, operation=entry.operation, permission_type=entry.permission_type
        )
        by_pattern.setdefault(binding.pattern, []).append(acl)
    return [
        describe_acls.Resource(
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            pattern_type=pattern.pattern_type,
            acls=acls,
        )
        for pattern, acls in by_pattern.items()
    ]


def _created(refused: Refusal | None) -> create_acls.Result:
    return create_acls.Result() if refused is None else create_acls.Result(error=refused.error, message=refused.message)


def _deleted(refused: Refusal | None, bindings: Sequence[AclBinding]) -> delete_acls.FilterResult:
    if refused is not None:
        return delete_acls.FilterResult(error=refused.error, message=refused.message)
    return delete_acls.FilterResult(
        matching_acls=[
            delete_acls.DeletedAcl(
                resource_type=binding.pattern.resource_type,
                resource_name=binding.pattern.name,
                pattern_type=binding.pattern.pattern_type,
                principal=binding.entry.principal,
                host=binding.entry.host,
                operation=binding.entry.operation,
                permission_type=binding.entry.permission_type,
            )
            for binding in bindings
        ]
    )
