"""From an error of the protocol to one a user can act on: what happened, what the rule is, what to do."""

from __future__ import annotations

from coterie.client.member.member_settings import MemberSettings
from coterie.client.member.states import ApiName
from coterie.errors import AuthorizationError, ErrorCode, FencedInstanceError, KafkaError

__all__ = ["AssignorError", "ListenerError", "code_of", "error_for", "said"]


class AssignorError(KafkaError):
    """An assignor raised, or its answer makes no sense."""


class ListenerError(KafkaError):
    """A rebalance listener raised. The cause is what it raised; the assignment is not affected (M14)."""


def code_of(error: Exception) -> ErrorCode:
    return error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR


_ADVICE = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the principal needs READ on the group; ask for that ACL",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the principal needs READ on the topic; ask for that ACL",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "all members must share an assignor (partition.assignment.strategy); give this one an assignor that the others "
        "have, or stop the others first"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "session.timeout.ms must lie within the broker's group.min.session.timeout.ms and group.max.session.timeout.ms"
    ),
    ErrorCode.INVALID_GROUP_ID: "a member needs a group.id that is not empty",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has group.max.size members; stop one, or raise that on the broker",
    ErrorCode.UNSUPPORTED_VERSION: "the broker is too old; without group.instance.id it may do",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the metadata of a commit may be offset.metadata.max.bytes long",
    ErrorCode.FENCED_INSTANCE_ID: (
        "another consumer has joined with the same group.instance.id, and the later one wins; close this consumer, and "
        "give every consumer an instance id of its own"
    ),
}


def error_for(api: ApiName, code: ErrorCode, settings: MemberSettings, about: str = "") -> KafkaError:
    advice = _ADVICE.get(code, "")
    message = f'{api} of group "{settings.group_id}" was refused with {code.name}' + (f" ({about})" if about else "")
    message += f": {advice}" if advice else ""
    if code in {ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED}:
        return AuthorizationError(message, code)
    if code is ErrorCode.FENCED_INSTANCE_ID:
        return FencedInstanceError(message, code)
    return KafkaError(message, code)


def said(api: ApiName, error: Exception, settings: MemberSettings) -> Exception:
    """An error that came instead of an answer: one that only has a code is put into words."""
    return error_for(api, error.code, settings, str(error)) if type(error) is KafkaError else error
