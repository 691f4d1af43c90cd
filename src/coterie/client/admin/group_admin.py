"""Groups, their members and their offsets. Each group is asked for at its own coordinator."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from coterie.client.admin.admin_types import (
    CLASSIC,
    CONSUMER_TYPE,
    GroupDescription,
    GroupListing,
    MemberDescription,
    MemberToRemove,
)
from coterie.client.admin.results import FOR_GROUPS, by_node, by_topic, each, failure
from coterie.client.arguments import Offsets, PartitionLike, name_of, names_of, offsets_of, partitions_of
from coterie.client.network.metadata import Node
from coterie.client.network.network_client import NetworkClient
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import (
    ErrorCode,
    IllegalArgumentError,
    KafkaError,
    MalformedError,
    UnsupportedVersionError,
)
from coterie.protocol.apis import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from coterie.protocol.messages import (
    CONSUMER,
    MAX_REASON,
    NO_GENERATION,
    CommitPartition,
    DeleteGroup,
    DescribedGroup,
    DescribedMember,
    DescribeGroup,
    LeaveGroup,
    LeavingMember,
    LeftGroup,
    ListedGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
)
from coterie.protocol.subscription import read_assignment, read_subscription

REMOVED = "an operator removed it"


class GroupsAdmin:
    _cluster: NetworkClient

    # --- groups -------------------------------------------------------------------------------------------------------

    async def list_groups(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """List the groups of all brokers by id.

        Args:
            states: Only groups in one of these states.
            types: Only groups of one of these types.

        Returns:
            The groups.

        Raises:
            KafkaError: A broker refused it, or could not be reached in time.
        """
        wanted_states, wanted_types = sorted(names_of(states, "state")), sorted(names_of(types, "type"))
        node_ids = list((await self._cluster.refresh()).nodes)

        async def ask(node_id: int) -> list[GroupListing]:
            request = ListGroups(None, wanted_states, wanted_types)
            answer: tuple[ErrorCode, list[ListedGroup]] = await self._cluster.send(node_id, list_groups, request)
            error, listed = answer
            if error:
                raise KafkaError.of(error, f"listing the groups of node {node_id}")
            return [GroupListing(one.group_id, one.protocol_type, one.state, one.group_type) for one in listed]

        found: dict[str, GroupListing] = {}
        for node_id in node_ids:
            what = f"listing the groups of node {node_id}"
            listed = await self._cluster.retry(partial(ask, node_id), what=what)
            found |= {one.group_id: one for one in listed}
        return [one for _, one in sorted(found.items())]

    async def describe_groups(self, group_ids: Collection[str]) -> dict[str, GroupDescription | KafkaError]:
        """Describe groups: their state, members and assignments.

        Classic groups and those of KIP-848 are described with their members; share and streams groups with type and
        state alone.

        Args:
            group_ids: The ids of the groups.

        Returns:
            A description of each group, or the error it met.
        """
        group_ids = names_of(group_ids, "group")
        coordinators: dict[str, Node] = {}

        async def coordinator_of(group_id: str) -> int:
            coordinators[group_id] = await self._cluster.find_coordinator(group_id)
            return coordinators[group_id].id

        async def ask(node_id: int, left: Sequence[str]) -> dict[str, GroupDescription | KafkaError]:
            request = [DescribeGroup(None, group_id) for group_id in left]
            answer: list[DescribedGroup] = await self._cluster.send(node_id, describe_groups, request)
            found = {
                one.group_id: _described(one, coordinators[one.group_id]) for one in answer if one.group_id in left
            }
            of_other_types = [one for one in left if _is_absent(found.get(one))]
            if of_other_types:
                found |= await self._described_by_type(coordinators[of_other_types[0]], of_other_types)
            return found

        return await each(
            self._cluster, group_ids, lambda left: by_node(left, coordinator_of, ask), what=_group, again=FOR_GROUPS
        )

    async def _described_by_type(
        self, node: Node, group_ids: Sequence[str]
    ) -> dict[str, GroupDescription | KafkaError]:
        """Ask the coordinator for groups that are not classic. A group that it has under no type is left out."""
        request = consumer_group_describe.Request(group_ids=group_ids)
        answer: consumer_group_describe.Response
        try:
            answer = await self._cluster.send(node.id, consumer_group_describe, request)
        except UnsupportedVersionError:
            return {}  # a broker without this API has classic groups only
        found = {
            one.group_id: _described_consumer_group(one, node) for one in answer.groups if one.group_id in group_ids
        }
        left = [group_id for group_id in group_ids if _is_absent(found.get(group_id))]
        if left:
            listing: tuple[ErrorCode, list[ListedGroup]]
            listing = await self._cluster.send(node.id, list_groups, ListGroups(None))
            if listing[0]:
                raise KafkaError.of(listing[0], f"listing the groups of node {node.id}")
            listed = {one.group_id: one for one in listing[1] if one.group_type.lower() != CLASSIC}
            for group_id in left:
                found.pop(group_id, None)
                if group_id in listed:
                    found[group_id] = _described_by_listing(listed[group_id], node)
        return found

    async def delete_groups(self, group_ids: Collection[str]) -> dict[str, KafkaError | None]:
        """Delete groups without members, and all their offsets.

        Args:
            group_ids: The ids of the groups.

        Returns:
            None for each group that is deleted, or the error it met.
        """
        group_ids = names_of(group_ids, "group")

        async def ask(node_id: int, left: Sequence[str]) -> dict[str, KafkaError | None]:
            request = [DeleteGroup(None, group_id) for group_id in left]
            answer: list[tuple[str, ErrorCode]] = await self._cluster.send(node_id, delete_groups, request)
            return {group_id: failure(error, f'deleting group "{group_id}"') for group_id, error in answer}

        return await each(
            self._cluster,
            group_ids,
            lambda left: by_node(left, self._coordinator, ask),
            what=lambda group_id: f'deleting group "{group_id}"',
            again=FOR_GROUPS,
        )

    async def remove_members(
        self, group_id: str, members: Collection[MemberToRemove | str] | None = None, *, reason: str = REMOVED
    ) -> dict[MemberToRemove, KafkaError | None]:
        """Remove members from a group, which rebalances.

        A running member that is not static joins again at once: stop it first.

        Args:
            group_id: The id of the group.
            members: The members, a text being the id of a member; all of them if they are not given.
            reason: What the group's history will give as the reason (KIP-800).

        Returns:
            None for each member that is removed, or the error it met.

        Raises:
            KafkaError: The members are not given, and the group cannot be described.
        """
        group_id = name_of(group_id, "group")
        wanted = await self._all_members(group_id) if members is None else _to_remove(members)

        async def ask(left: Sequence[MemberToRemove]) -> dict[MemberToRemove, KafkaError | None]:
            node_id = await self._coordinator(group_id)
            version = (await self._cluster.connection(node_id)).version_of(leave_group)
            results: dict[MemberToRemove, KafkaError | None] = {}
            for some in [left] if version >= leave_group.MANY else [[member] for member in left]:
                leaving = [LeavingMember(*member, reason[:MAX_REASON]) for member in some]
                answer: LeftGroup = await self._cluster.send(node_id, leave_group, LeaveGroup(None, group_id, leaving))
                if answer.error:
                    raise KafkaError.of(answer.error, f"removing members of {_group(group_id)}")
                codes = [one.error for one in answer.members] or [ErrorCode.NONE] * len(some)
                if len(codes) != len(some):
                    raise KafkaError(f"removing members of {_group(group_id)}: {len(codes)} answers to {len(some)}")
                for member, code in zip(some, codes, strict=True):
                    results[member] = failure(code, f"removing {_member(member)} of {_group(group_id)}")
            return results

        return await each(
            self._cluster,
            wanted,
            ask,
            what=lambda member: f"removing {_member(member)} of {_group(group_id)}",
            again=FOR_GROUPS,
        )

    async def _all_members(self, group_id: str) -> list[MemberToRemove]:
        found = (await self.describe_groups([group_id]))[group_id]
        if isinstance(found, KafkaError):
            raise found
        if not found.shows_members:
            raise KafkaError(f"{_group(group_id)} is a {found.type} group: this admin does not know its members")
        return [
            MemberToRemove("", member.instance_id) if member.instance_id else MemberToRemove(member.member_id)
            for member in found.members
        ]

    async def _coordinator(self, group_id: str) -> int:
        return (await self._cluster.find_coordinator(group_id)).id

    # --- offsets ------------------------------------------------------------------------------------------------------

    async def list_group_offsets(
        self, group_id: str, partitions: Collection[PartitionLike] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata | KafkaError | None]:
        """List the offsets that a group has committed.

        Args:
            group_id: The id of the group.
            partitions: The partitions; all that the group has offsets for if they are not given.
            require_stable: Wait for open transactions that commit offsets.

        Returns:
            The offset and metadata of each partition, None where nothing is committed, or the error it met.

        Raises:
            KafkaError: The coordinator refused it, or could not be reached in time.
        """
        group_id = name_of(group_id, "group")
        wanted = None if partitions is None else _numbers(partitions_of(partitions))

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata | KafkaError | None]:
            node_id = await self._coordinator(group_id)
            request = [OffsetFetch(None, group_id, wanted, require_stable)]
            answer: list[OffsetsFetched] = await self._cluster.send(
                node_id,
                offset_fetch,
                request,
                at_most=offset_fetch.API.last_by_name,  # offsets outlive ids
            )
            if len(answer) != 1:
                raise KafkaError(f"offsets of {_group(group_id)}: the broker answered for {len(answer)} groups")
            (fetched,) = answer
            if fetched.error:
                raise KafkaError.of(fetched.error, f"offsets of {_group(group_id)}")
            for one in fetched.partitions:
                if one.error in FOR_GROUPS:
                    raise KafkaError.of(one.error, f"offsets of {_group(group_id)}")
            return {
                TopicPartition(one.topic, one.partition): KafkaError.of(
                    one.error, f"offset of {_group(group_id)} for {one.topic}-{one.partition}"
                )
                if one.error
                else OffsetAndMetadata(one.offset, one.metadata, leader_epoch=one.leader_epoch)
                if one.offset >= 0
                else None
                for one in fetched.partitions
            }

        return await self._cluster.retry(attempt, what=f"offsets of {_group(group_id)}")

    async def alter_group_offsets(self, group_id: str, offsets: Offsets) -> dict[TopicPartition, KafkaError | None]:
        """Set the offsets of a group without members.

        Members would not notice it, and would commit their own offsets.

        Args:
            group_id: The id of the group; it is created if it does not exist.
            offsets: For each partition the offset of the next record to read, as a number or as `OffsetAndMetadata`.

        Returns:
            None for each partition that is set, or the error it met.
        """
        group_id, wanted = name_of(group_id, "group"), offsets_of(offsets)

        async def ask(left: Sequence[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
            node_id = await self._coordinator(group_id)
            partitions = [_to_commit(tp, wanted[tp]) for tp in sorted(left)]
            request = OffsetCommit(None, group_id, "", None, NO_GENERATION, partitions)
            answer: OffsetsCommitted = await self._cluster.send(
                node_id, offset_commit, request, at_most=offset_commit.API.last_by_name
            )
            return {
                TopicPartition(one.topic, one.partition): _not_set(error, group_id, one)
                for one, error in zip(answer.partitions, answer.errors, strict=True)
            }

        return await each(
            self._cluster,
            wanted,
            ask,
            what=lambda tp: f"setting the offset of {_group(group_id)} for {tp}",
            again=FOR_GROUPS,
        )

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[PartitionLike]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete offsets of a group, of topics that no member is subscribed to.

        Args:
            group_id: The id of the group.
            partitions: The partitions.

        Returns:
            None for each partition whose offset is deleted, or the error it met.
        """
        group_id, wanted = name_of(group_id, "group"), partitions_of(partitions)

        async def ask(left: Sequence[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
            node_id = await self._coordinator(group_id)
            request = OffsetDelete(None, group_id, _numbers(left))
            answer: OffsetsDeleted = await self._cluster.send(node_id, offset_delete, request)
            if answer.error:
                raise KafkaError.of(answer.error, f"deleting offsets of {_group(group_id)}")
            return {
                TopicPartition(one.topic, one.partition): failure(
                    one.error, f"deleting the offset of {_group(group_id)} for {one.topic}-{one.partition}"
                )
                for one in answer.partitions
            }

        return await each(
            self._cluster,
            wanted,
            ask,
            what=lambda tp: f"deleting the offset of {_group(group_id)} for {tp}",
            again=FOR_GROUPS,
        )


def _group(group_id: str) -> str:
    return f'group "{group_id}"'


def _member(member: MemberToRemove) -> str:
    return f'instance "{member.instance_id}"' if member.instance_id else f'member "{member.member_id}"'


def _to_remove(members: Collection[MemberToRemove | str]) -> list[MemberToRemove]:
    if isinstance(members, str):
        raise IllegalArgumentError(f'{members!r} is one member, and several may be given: give ["{members}"]')
    return [_one_to_remove(one) for one in members]


def _one_to_remove(one: MemberToRemove | str) -> MemberToRemove:
    match one:
        case str(member_id) if member_id:
            return MemberToRemove(member_id)
        case (str(member_id), str() | None as instance_id) if member_id or instance_id:
            return MemberToRemove(member_id, instance_id)
    raise IllegalArgumentError(
        f"{one!r} does not name a member; give its id as text, "
        'or MemberToRemove(instance_id="worker-3") for a static member'
    )


def _not_set(code: ErrorCode, group_id: str, one: CommitPartition) -> KafkaError | None:
    """A stranger's commit to a group with members is refused as that of an unknown member (rule 20)."""
    said = "it has members, and offsets can be set only while it is Empty" if code in _HAS_MEMBERS else None
    what = f"setting the offset of {_group(group_id)} for {one.topic}-{one.partition}"
    return failure(code, what, said)


def _numbers(partitions: Sequence[TopicPartition]) -> list[tuple[str, list[int]]]:
    return [(name, [tp.partition for tp in its]) for name, its in by_topic(partitions)]


def _to_commit(tp: TopicPartition, at: OffsetAndMetadata) -> CommitPartition:
    return CommitPartition(tp.topic, tp.partition, at.offset, at.leader_epoch, at.metadata)


_HAS_MEMBERS = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}


def _described(group: DescribedGroup, coordinator: Node) -> GroupDescription | KafkaError:
    if group.error:
        return KafkaError.of(group.error, _group(group.group_id))
    if not group.exists:
        return KafkaError.of(ErrorCode.GROUP_ID_NOT_FOUND, _group(group.group_id))
    members = [_described_member(member, group.protocol_type) for member in group.members]
    return GroupDescription(
        group.group_id, group.state, group.protocol_type, group.protocol_name, coordinator, tuple(members)
    )


def _is_absent(found: GroupDescription | KafkaError | None) -> bool:
    return isinstance(found, KafkaError) and found.code is ErrorCode.GROUP_ID_NOT_FOUND


def _described_consumer_group(
    group: consumer_group_describe.DescribedGroup, coordinator: Node
) -> GroupDescription | KafkaError:
    if group.error:
        return KafkaError.of(group.error, _group(group.group_id))
    members = [
        MemberDescription(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            _partitions_of(member.assignment),
            tuple(member.subscribed_topic_names),
            member.member_epoch,
            _partitions_of(member.target_assignment),
            _MEMBER_TYPES.get(member.member_type, ""),
            member.subscribed_topic_regex or "",
        )
        for member in group.members
    ]
    return GroupDescription(
        group.group_id,
        group.state,
        CONSUMER,
        group.assignor_name,
        coordinator,
        tuple(members),
        CONSUMER_TYPE,
        group.group_epoch,
        group.assignment_epoch,
    )


_MEMBER_TYPES = {0: CLASSIC, 1: CONSUMER_TYPE}


def _partitions_of(assignment: consumer_group_describe.Assignment) -> tuple[TopicPartition, ...]:
    found = [TopicPartition(one.topic, number) for one in assignment.topic_partitions for number in one.partitions]
    return tuple(sorted(found))


def _described_by_listing(listed: ListedGroup, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        listed.group_id, listed.state, listed.protocol_type, "", coordinator, (), listed.group_type.lower()
    )


def _described_member(member: DescribedMember, protocol_type: str) -> MemberDescription:
    """Describe a member. The metadata of other group types, Connect's for instance, is not read."""
    assignment: list[TopicPartition] = []
    topics: tuple[str, ...] = ()
    if protocol_type == CONSUMER:
        try:
            if member.assignment:
                owned = read_assignment(member.assignment).partitions
                assignment = [
                    TopicPartition(topic, number) for topic in sorted(owned) for number in sorted(owned[topic])
                ]
            if member.metadata:
                topics = tuple(read_subscription(member.metadata).topics)
        except MalformedError:
            pass  # a member may say what it likes; it is described without
    return MemberDescription(
        member.member_id, member.instance_id, member.client_id, member.client_host, tuple(assignment), topics
    )
