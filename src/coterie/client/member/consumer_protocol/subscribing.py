"""The subscription of a member: names, a pattern that the client matches, or a pattern that the broker matches."""

from __future__ import annotations

from coterie.client.member.consumer_protocol.fencing import back_off, join
from coterie.client.member.consumer_protocol.member import ConsumerMemberData
from coterie.client.member.consumer_protocol.states import IN_THE_GROUP, UNSUBSCRIBED
from coterie.client.member.effects import Effects, Fail, RefreshMetadata
from coterie.client.member.events import MetadataAnswered, MetadataChanged, RejoinAsked, Subscribed
from coterie.client.member.facts import RebalanceNotEnforced
from coterie.client.member.subscription import matching, take_matching, watch
from coterie.errors import KafkaError
from coterie.facts import Emit


def subscribe(member: ConsumerMemberData, event: Subscribed, _now_ms: int) -> Effects:
    if member.ending is not None:
        member.next_subscription = event
        return []
    member.member_id = member.member_id or event.fresh_id
    assert member.member_id, "the member makes its own id in this protocol: Subscribed.fresh_id"
    member.pattern, member.remote_pattern = event.pattern, event.remote_pattern
    member.topics = frozenset(event.topics) if event.pattern is None else matching(event.pattern, member.metadata)
    member.subscribed = True
    _report(member)
    return watch(member)


def _report(member: ConsumerMemberData) -> None:
    """Report the changed subscription to the coordinator at once."""
    sent = member.sent
    if member.state in IN_THE_GROUP and (sent.topics, sent.remote_pattern) != (member.topics, member.remote_pattern):
        member.wants_heartbeat = True


def can_join(member: ConsumerMemberData) -> bool:
    return (
        member.state is UNSUBSCRIBED
        and member.polling
        and member.subscribed
        and not member.stalled
        and not member.is_backing_off
        and member.waiting_for is None
    )


def start_joining(member: ConsumerMemberData, now_ms: int) -> Effects:
    if member.pattern is None:
        return join(member, "", now_ms)
    member.waiting_for = then = MetadataAnswered()
    return [RefreshMetadata(None, then)]


def metadata_answered(member: ConsumerMemberData, event: MetadataAnswered, now_ms: int) -> Effects:
    """The topics that the pattern matches are known before the first heartbeat names them."""
    if event is not member.waiting_for:
        return []
    member.waiting_for = None
    if event.error is not None:
        if isinstance(event.error, KafkaError) and event.error.retriable:
            return back_off(member, now_ms)
        member.stalled = True
        return [Fail(event.error)]
    member.metadata = event.reply
    take_matching(member)
    return [*watch(member), *join(member, "", now_ms)]


def metadata_changed(member: ConsumerMemberData, event: MetadataChanged, _now_ms: int) -> Effects:
    member.metadata = event.topics
    take_matching(member)
    _report(member)
    return watch(member)


def rejoin_asked(member: ConsumerMemberData, event: RejoinAsked, now_ms: int) -> Effects:
    """Report that there is no rebalance to enforce: the broker assigns, and nothing would change."""
    return [Emit(RebalanceNotEnforced(now_ms, member.settings.group_id, event.reason))]
