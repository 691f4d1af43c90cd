"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, from the wire to the coordinator (docs/semantics-kip848.md).

Which answer a request gets is decided in `coterie.coordinator.consumer`.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from coterie.broker.broker_effects import Effects
from coterie.broker.calls import Call, Gather, Handler, Responses
from coterie.broker.group_service import GroupService
from coterie.broker.metadata_cache import MetadataCache
from coterie.broker.security.auth_helper import AuthHelper
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.api import NOT_ASKED
from coterie.protocol.apis import consumer_group_describe, consumer_group_heartbeat
from coterie.protocol.frames import client_id_of
from coterie.protocol.messages import (
    ConsumerGroupHeartbeat,
    DescribeConsumerGroup,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    Token,
)

__all__ = ["ConsumerGroupApis", "to_coordinator"]

READ, DESCRIBE = AclOperation.READ, AclOperation.DESCRIBE
GROUP, TOPIC = AclResourceType.GROUP, AclResourceType.TOPIC
DENIED, TOPIC_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
MAKES_ITS_ID = 1
"""The first version of the heartbeat in which a client makes its member id."""


def to_coordinator(
    said: consumer_group_heartbeat.Request, token: Token, frame: bytes, host: str, version: int
) -> ConsumerGroupHeartbeat:
    """Return a heartbeat as the coordinator takes it."""
    return ConsumerGroupHeartbeat(
        token,
        said.group_id,
        said.member_id,
        said.member_epoch,
        said.instance_id,
        said.rack_id,
        said.rebalance_timeout_ms,
        said.subscribed_topic_names,
        said.subscribed_topic_regex,
        said.server_assignor,
        _by_topic(said.topic_partitions),
        client_id=client_id_of(frame),
        client_host=f"/{host}",
        needs_member_id=version >= MAKES_ITS_ID,
    )


class ConsumerGroupApis:
    def __init__(
        self,
        responses: Responses,
        auth: AuthHelper,
        groups: GroupService,
        metadata: MetadataCache,
        fresh_id: Callable[[], UUID],
    ) -> None:
        self._responses = responses
        self._auth = auth
        self._ask = groups.ask
        self._metadata = metadata
        self._fresh_id = fresh_id

    def handlers(self) -> Mapping[int, Handler]:
        return {
            consumer_group_heartbeat.API.key: self._heartbeat,
            consumer_group_describe.API.key: self._describe,
        }

    # --- ConsumerGroupHeartbeat ---------------------------------------------------------------------------------------

    def _heartbeat(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        was_read, call.connection.heartbeat = call.connection.heartbeat, None
        if was_read is not None and was_read[0] is frame and self._auth.authorizer is None:
            request = was_read[1]
            request.token = call
            return self._ask(request, now_ms)
        said = consumer_group_heartbeat.read_request(frame, at, call.version)
        error = self._denied(call, said)
        if error:
            refused = consumer_group_heartbeat.Response(error=error)
            return self._responses.answer(call, refused, now_ms)
        request = to_coordinator(said, call, frame, call.connection.host, call.version)
        if not said.member_id:
            request.fresh_id = urlsafe_b64encode(self._fresh_id().bytes).decode().rstrip("=")
        if self._auth.authorizer is not None:
            request.may_describe = lambda topic: self._auth.authorize(call, DESCRIBE, TOPIC, topic, logs=False)
        return self._ask(request, now_ms)

    def _denied(self, call: Call, said: consumer_group_heartbeat.Request) -> ErrorCode:
        """Check rights: READ of the group, DESCRIBE of the topics (K29)."""
        if not self._auth.authorize(call, READ, GROUP, said.group_id):
            return DENIED
        if self._auth.denied(call, DESCRIBE, TOPIC, said.subscribed_topic_names or ()):
            return TOPIC_DENIED
        return ErrorCode.NONE

    # --- ConsumerGroupDescribe ----------------------------------------------------------------------------------------

    def _describe(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        said = consumer_group_describe.read_request(frame, at, call.version)
        ids = list(said.group_ids)
        denied = self._auth.denied(call, DESCRIBE, GROUP, ids)
        allowed = [group_id for group_id in ids if group_id not in denied]

        def finish(answers: list[DescribedConsumerGroup], at_ms: int) -> Effects:
            refused = [
                consumer_group_describe.DescribedGroup(group_id=group_id, error=DENIED)
                for group_id in ids
                if group_id in denied
            ]
            rights = said.include_authorized_operations
            described = [self._described(call, answer, asks_rights=rights) for answer in answers]
            response = consumer_group_describe.Response(groups=[*refused, *described])
            return self._responses.answer(call, response, at_ms)

        if not allowed:
            return finish([], now_ms)
        gather = Gather(call, len(allowed), finish)
        effects: Effects = []
        for index, group_id in enumerate(allowed):
            effects += self._ask(DescribeConsumerGroup(gather.part(index), group_id), now_ms)
        return effects

    def _described(
        self, call: Call, answer: DescribedConsumerGroup, *, asks_rights: bool
    ) -> consumer_group_describe.DescribedGroup:
        if answer.error:
            return consumer_group_describe.DescribedGroup(
                error=answer.error, message=answer.message, group_id=answer.group_id
            )
        topics = {
            name
            for member in answer.members
            for name in (*member.topics, *map(self._name, (*member.assignment, *member.target)))
            if name
        }
        if any(not self._auth.authorize(call, DESCRIBE, TOPIC, name, logs=False) for name in sorted(topics)):
            why = "The group uses topics that the client may not describe."
            return consumer_group_describe.DescribedGroup(error=TOPIC_DENIED, message=why, group_id=answer.group_id)
        rights = self._auth.authorized_operations(call, GROUP, answer.group_id) if asks_rights else NOT_ASKED
        return consumer_group_describe.DescribedGroup(
            group_id=answer.group_id,
            state=answer.state,
            group_epoch=answer.group_epoch,
            assignment_epoch=answer.assignment_epoch,
            assignor_name=answer.assignor,
            members=[self._member(member) for member in answer.members],
            authorized_operations=rights,
        )

    def _member(self, member: DescribedConsumerMember) -> consumer_group_describe.Member:
        return consumer_group_describe.Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=member.topics,
            subscribed_topic_regex=member.pattern,
            assignment=self._assignment(member.assignment),
            target_assignment=self._assignment(member.target),
            member_type=0 if member.is_classic else 1,
        )

    def _assignment(self, assigned: Mapping[UUID, Sequence[int]]) -> consumer_group_describe.Assignment:
        """Topics that were deleted have no name any more, and are left out."""
        return consumer_group_describe.Assignment(
            topic_partitions=[
                consumer_group_describe.TopicPartitions(
                    topic_id=topic_id, topic=self._name(topic_id), partitions=partitions
                )
                for topic_id, partitions in assigned.items()
                if self._name(topic_id)
            ]
        )

    def _name(self, topic_id: UUID) -> str:
        return self._metadata.topic_names.get(topic_id, "")


def _by_topic(topics: Sequence[Any] | None) -> dict[UUID, list[int]] | None:
    if topics is None:
        return None
    found: dict[UUID, list[int]] = {}
    for topic in topics:
        found.setdefault(topic.topic_id or UUID(int=0), []).extend(topic.partitions)
    return found
