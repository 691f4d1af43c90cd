"""DescribeClientQuotas and AlterClientQuotas. There are no quotas: none is listed, and none can be set.

Requests are checked as Kafka 4.3.1 checks them. To remove a quota is no error, since there is none then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from coterie.broker.broker_effects import Effects
from coterie.broker.calls import Call, Handler, Responses
from coterie.broker.handlers.refusals import CLUSTER_DENIED, Refusal
from coterie.broker.security.auth_helper import AuthHelper
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.apis import alter_client_quotas, describe_client_quotas
from coterie.protocol.apis.describe_client_quotas import ANY, DEFAULT, EXACT
from coterie.structs import DataStruct

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)
KEYS_OF_CLIENTS = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
KEYS_OF_ADDRESSES = frozenset({"connection_creation_rate"})
MATCHES = {EXACT: "EXACT", DEFAULT: "DEFAULT", ANY: "SPECIFIED"}
NOT_SET = "this broker has no quotas, so none can be set. Run Apache Kafka to limit the rates of clients"


class QuotaApis(DataStruct, frozen=True, eq=False):
    responses: Responses
    auth: AuthHelper

    def handlers(self) -> Mapping[int, Handler]:
        return {
            describe_client_quotas.API.key: self._describe_client_quotas,
            alter_client_quotas.API.key: self._alter_client_quotas,
        }

    def _describe_client_quotas(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = describe_client_quotas.read_request(frame, at, call.version)
        is_allowed = self.auth.authorize(call, AclOperation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER)
        refusal = _refuse_filter(request.components) if is_allowed else CLUSTER_DENIED._replace(message="")
        if refusal is None:
            response = describe_client_quotas.Response(message="", entries=[])
        else:
            response = describe_client_quotas.Response(error=refusal.error, message=refusal.message or None)
        return self.responses.answer(call, response, now_ms)

    def _alter_client_quotas(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = alter_client_quotas.read_request(frame, at, call.version)
        is_allowed = self.auth.authorize(call, AclOperation.ALTER_CONFIGS, AclResourceType.CLUSTER)
        entries: dict[tuple[tuple[str, str | None], ...], alter_client_quotas.AlteredEntry] = {}
        for entry in request.entries:
            refusal = _refuse_entry(entry)
            named = tuple(sorted(((one.entity_type, one.entity_name) for one in entry.entity), key=str))
            if named in entries:
                refusal = Refusal(ErrorCode.INVALID_REQUEST, "a request may name an entity once")
            if not is_allowed:
                refusal = CLUSTER_DENIED
            answer = alter_client_quotas.AlteredEntry(entity=entry.entity)
            if refusal is not None:
                answer.error, answer.message = refusal
            entries[named] = answer
        response = alter_client_quotas.Response(entries=list(entries.values()))
        return self.responses.answer(call, response, now_ms)


def _refuse_filter(components: Sequence[describe_client_quotas.Component]) -> Refusal | None:
    seen: set[str] = set()
    for one in components:
        refusal = _refuse_type(one.entity_type, seen) or _refuse_match(one)
        if refusal is not None:
            return refusal
        seen.add(one.entity_type)
    if IP in seen and len(seen) > 1:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        )
    return None


def _refuse_type(entity_type: str, seen: Collection[str]) -> Refusal | None:
    if not entity_type:
        return Refusal(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
    if entity_type not in ENTITY_TYPES:
        return Refusal(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {entity_type}")
    if entity_type in seen:
        text = f"Entity type {entity_type} cannot appear more than once in the filter."
        return Refusal(ErrorCode.INVALID_REQUEST, text)
    return None


def _refuse_match(one: describe_client_quotas.Component) -> Refusal | None:
    if one.match_type not in MATCHES:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown match type {one.match_type}")
    kind = f"Request specified MATCH_TYPE_{MATCHES[one.match_type]}"
    if one.match_type == EXACT and one.match is None:
        return Refusal(ErrorCode.INVALID_REQUEST, f"{kind}, but set match string to null.")
    if one.match_type != EXACT and one.match is not None:
        return Refusal(ErrorCode.INVALID_REQUEST, f"{kind}, but also specified a match string.")
    return None


def _refuse_entry(entry: alter_client_quotas.Entry) -> Refusal | None:
    types = {one.entity_type for one in entry.entity}
    if not types:
        return Refusal(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    unknown = next((one for one in types if one not in ENTITY_TYPES), None)
    if unknown is not None:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {unknown}")
    if IP in types and len(types) > 1:
        return Refusal(ErrorCode.INVALID_REQUEST, "an address has quotas of its own, not those of a user or client")
    known = KEYS_OF_ADDRESSES if IP in types else KEYS_OF_CLIENTS
    for op in entry.ops:
        if not op.remove:
            return Refusal(
                ErrorCode.INVALID_REQUEST, NOT_SET if op.key in known else f"Invalid configuration key {op.key}"
            )
    return None
