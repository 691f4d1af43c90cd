"""A session with a target, its groups and their members: `Member.join()` is the client's side of a rebalance."""

from __future__ import annotations

import argparse
import itertools
import struct
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from coordbench.generator import Connection, Driver, Known
from coordbench.messages import PLACEHOLDER, Wire, assignment, subscription, unsigned_varint
from coordbench.target import Target
from coordbench.types import (
    MEMBER_ID_REQUIRED,
    NOT_READY,
    REBALANCE_IN_PROGRESS,
    TOPIC_EXISTS,
    ErrorReplyError,
    MisbehavedError,
    Script,
    clock,
)


class Session:
    """One run against one target: its versions, connections, topic and groups."""

    def __init__(self, target: Target, options: argparse.Namespace) -> None:
        self.target, self.options = target, options
        self.driver, self.wire = Driver(), Wire(dict(options.max))
        self.topic = options.topic
        self.name = f"cb-{uuid.uuid4().hex[:8]}"
        self.groups: list[Group] = []
        self.bootstrap = self.driver.connect(*options.bootstrap)
        self._hello = self.wire.frame("api_versions")
        self._connected = 0
        self.wire.negotiate(self.ask(self._hello))
        self.heartbeats = Known(self._verify_heartbeat)

    def connect(self, where: tuple[str, int]) -> Connection:
        """A new connection. Waits for an answer on every 4th, lest a short listen queue overflow."""
        connection = self.driver.connect(*where)
        self._connected += 1
        if self._connected % 4 == 0:
            self.ask(self._hello, connection)
        return connection

    def ask(self, frame: bytearray, connection: Connection | None = None) -> bytes:
        def script() -> Script:
            return (yield frame)

        reply: bytes = self.driver.call(connection or self.bootstrap, script())
        return reply

    def _verify_heartbeat(self, reply: bytes) -> None:
        error = int(self.wire.parse("heartbeat", reply).error_code)
        if error:
            raise ErrorReplyError("heartbeat", error)

    def coordinators(self, group_ids: list[str], patience: float = 60.0) -> dict[str, Any]:
        """(host, port) of each group's coordinator; waits for coordinators that start."""
        deadline, pause = clock() + patience, 0.002
        found: dict[str, Any] = {}
        while missing := [name for name in group_ids if name not in found]:
            if self.wire.versions["find_coordinator"] >= 4:
                asked = missing[:500]
                frame = self.wire.frame("find_coordinator", coordinator_keys=tuple(asked), key_type=0)
                answers = list(self.wire.parse("find_coordinator", self.ask(frame)).coordinators)
                named = [(answer.key, answer) for answer in answers]
            else:
                frame = self.wire.frame("find_coordinator", key=missing[0], key_type=0)
                named = [(missing[0], self.wire.parse("find_coordinator", self.ask(frame)))]
            waiting = False
            for name, answer in named:
                error = int(answer.error_code)
                if error == 0:
                    found[name] = (answer.host, int(answer.port))
                elif error in NOT_READY:
                    waiting = True
                else:
                    raise ErrorReplyError("find_coordinator", error)
            if waiting or not named:
                if clock() > deadline:
                    raise MisbehavedError(f"no coordinator after {patience:.0f} s")
                time.sleep(pause)
                pause = min(0.1, pause * 1.5)
        return found

    def topics(self, partitions: int) -> list[tuple[str, range]]:
        """Topics that together have `partitions` partitions: one if the target allows it."""
        available = self._partitions_of(self.topic)
        if available < partitions and self.wire.has("create_topics"):
            topic = self.wire.part(
                "create_topics",
                "CreatableTopic",
                name=self.topic,
                num_partitions=max(partitions, 100),
                replication_factor=1,
                assignments=(),
                configs=(),
            )
            frame = self.wire.frame(
                "create_topics", topics=(topic,), timeout=timedelta(seconds=30), validate_only=False
            )
            for result in self.wire.parse("create_topics", self.ask(frame)).topics:
                if int(result.error_code) not in (0, TOPIC_EXISTS):
                    raise ErrorReplyError("create_topics", int(result.error_code))
            deadline = clock() + 30
            while (available := self._partitions_of(self.topic)) < partitions and clock() < deadline:
                time.sleep(0.1)
        if available >= partitions:
            return [(self.topic, range(partitions))]
        spread_over = []
        for number in itertools.count():
            name = f"{self.topic}-{number}"
            count = min(partitions, self._partitions_of(name, create=True))
            if count == 0:
                raise MisbehavedError(f"topic {name} has no partitions")
            spread_over.append((name, range(count)))
            partitions -= count
            if partitions == 0:
                return spread_over
        raise AssertionError

    def leaders(self, topic: str) -> dict[int, tuple[str, int]]:
        """Where each partition of a topic is written."""
        answer = self._metadata(topic)
        nodes = {int(node.node_id): (node.host, int(node.port)) for node in answer.brokers}
        (found,) = answer.topics
        return {int(one.partition_index): nodes[int(one.leader_id)] for one in found.partitions}

    def _partitions_of(self, topic: str, create: bool = False) -> int:
        (answer,) = self._metadata(topic, create).topics
        return len(answer.partitions)

    def _metadata(self, topic: str, create: bool = False) -> Any:
        frame = self.wire.frame(
            "metadata",
            topics=(self.wire.part("metadata", "MetadataRequestTopic", name=topic),),
            allow_auto_topic_creation=create,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        return self.wire.parse("metadata", self.ask(frame))

    def form(self, groups: int, members: int) -> list[Group]:
        """Groups whose members have all joined and synced in one generation."""
        names = [f"{self.name}-{number:05d}" for number in range(len(self.groups), groups + len(self.groups))]
        where = self.coordinators(names)
        formed = [Group(self, name, where[name]) for name in names]
        self.groups += formed
        for group in formed:
            group.grow(members)
        pause = max(0.02, groups * members / 20000)
        everyone = [member for group in formed for member in group.members]
        self.driver.run((member.connection, member.settle(pause)) for member in everyone)
        for group in formed:
            group.check()
        return formed

    def disband(self) -> None:
        """Leave every group, so that no later measurement pays for expiring members."""
        scripts = [pair for group in self.groups for pair in group.leaving()]
        self.groups.clear()
        self.driver.run(scripts)
        self.driver.close_all()


class Group:
    def __init__(self, session: Session, name: str, where: tuple[str, int]) -> None:
        self.session, self.name, self.where = session, name, where
        self.members: list[Member] = []
        self.by_id: dict[str, Member] = {}
        self.sizes: dict[int, int] = {}  # generation -> members its leader was told of

    def grow(self, count: int) -> None:
        for _ in range(count):
            self.members.append(Member(self, len(self.members)))

    def check(self) -> None:
        """All members are in one generation, and it has exactly these members."""
        generations = {member.generation for member in self.members}
        if len(generations) != 1:
            raise MisbehavedError(f"members of one group ended in generations {sorted(generations)}")
        if self.sizes.get(generations.pop()) != len(self.members):
            raise MisbehavedError("the generation does not have the members that joined")

    def leaving(self) -> Iterator[tuple[Connection, Script]]:
        if self.session.wire.versions["leave_group"] >= 3:
            yield self.members[0].connection, self.leave(self.members)
        else:
            for member in self.members:
                yield member.connection, self.leave([member])

    def leave(self, members: list[Member]) -> Script:
        wire = self.session.wire
        if wire.versions["leave_group"] >= 3:
            who = tuple(
                wire.part("leave_group", "MemberIdentity", member_id=member.id, group_instance_id=None)
                for member in members
            )
            frame = wire.frame("leave_group", group_id=self.name, members=who)
        else:
            frame = wire.frame("leave_group", group_id=self.name, member_id=members[0].id)
        answer = wire.parse("leave_group", (yield frame))
        errors = [answer.error_code, *(one.error_code for one in getattr(answer, "members", ()))]
        if any(int(error) for error in errors):
            raise MisbehavedError(f"leave_group answered errors {sorted({int(e) for e in errors})}")


class Member:
    """One member of a group, on its own connection."""

    def __init__(self, group: Group, index: int) -> None:
        self.group, self.index = group, index
        self.connection = group.session.connect(group.where)
        self.id = ""
        self.generation = -1
        self.flavour = 0
        self.assignment = assignment(group.session.topic, index)
        self._joins: dict[int, bytearray] = {}
        self._sync = bytearray()
        self._heartbeat = bytearray()
        self.grant = b""

    def _adopt(self, member_id: str) -> None:
        """Take a member id, and encode all that contains it."""
        if member_id == self.id:
            return
        wire, group = self.group.session.wire, self.group
        group.by_id.pop(self.id, None)
        self.id = member_id
        group.by_id[member_id] = self
        self._joins.clear()
        identity = {"group_id": group.name, "generation_id": PLACEHOLDER, "member_id": member_id}
        self._heartbeat = wire.frame("heartbeat", **identity)
        self._sync = wire.frame(
            "sync_group", **identity, protocol_type="consumer", protocol_name="range", assignments=()
        )
        self._generation_at = (
            self._heartbeat.index(struct.pack(">i", PLACEHOLDER)),
            self._sync.index(struct.pack(">i", PLACEHOLDER)),
        )
        encoded = member_id.encode()
        if wire.flexible("sync_group"):
            self.grant = (
                unsigned_varint(len(encoded) + 1)
                + encoded
                + unsigned_varint(len(self.assignment) + 1)
                + self.assignment
                + b"\0"
            )
        else:
            self.grant = (
                struct.pack(">h", len(encoded)) + encoded + struct.pack(">i", len(self.assignment)) + self.assignment
            )

    def prepare(self) -> None:
        """Encode the next JoinGroup now rather than when it is sent."""
        if self.flavour in self._joins:
            return
        wire, session = self.group.session.wire, self.group.session
        protocol = wire.part(
            "join_group",
            "JoinGroupRequestProtocol",
            name="range",
            metadata=subscription(session.topic, self.index, self.flavour),
        )
        self._joins[self.flavour] = wire.frame(
            "join_group",
            group_id=self.group.name,
            session_timeout=timedelta(seconds=session.options.session_timeout),
            rebalance_timeout=timedelta(seconds=session.options.session_timeout),
            member_id=self.id,
            protocol_type="consumer",
            protocols=(protocol,),
        )

    def forget(self) -> None:
        """Become a newcomer again."""
        self.group.by_id.pop(self.id, None)
        self.id = ""
        self._joins.clear()

    def heartbeat(self) -> bytearray:
        struct.pack_into(">i", self._heartbeat, self._generation_at[0], self.generation)
        return self._heartbeat

    def introduce(self) -> Script:
        """Ask for a member id without joining yet (KIP-394)."""
        self.prepare()
        answer = self.group.session.wire.parse("join_group", (yield self._joins[self.flavour]))
        if int(answer.error_code) != MEMBER_ID_REQUIRED:
            raise MisbehavedError(f"first join_group answered {int(answer.error_code)}, not 79")
        self._adopt(answer.member_id)
        self.prepare()

    def join(self) -> Script:
        """Join and sync, and again as long as the coordinator says the rebalance is over."""
        wire = self.group.session.wire
        while True:
            self.prepare()
            answer = wire.parse("join_group", (yield self._joins[self.flavour]))
            error = int(answer.error_code)
            if error == MEMBER_ID_REQUIRED and not self.id:
                self._adopt(answer.member_id)
                continue
            if error in NOT_READY:
                yield 0.02
                continue
            if error:
                raise ErrorReplyError("join_group", error)
            self._adopt(answer.member_id)
            self.generation = int(answer.generation_id)
            struct.pack_into(">i", self._sync, self._generation_at[1], self.generation)
            request = self._sync
            if answer.leader == self.id:
                request = self._grants([member.member_id for member in answer.members])
            answer = wire.parse("sync_group", (yield request))
            error = int(answer.error_code)
            if error == REBALANCE_IN_PROGRESS:
                continue
            if error:
                raise ErrorReplyError("sync_group", error)
            if answer.assignment != self.assignment:
                raise MisbehavedError("a member got an assignment that is not its own")
            return

    def _grants(self, member_ids: list[str]) -> bytearray:
        """The leader's SyncGroup: everyone's assignment."""
        self.group.sizes[self.generation] = len(member_ids)
        try:
            grants = [self.group.by_id[member_id].grant for member_id in member_ids]
        except KeyError as problem:
            raise MisbehavedError(f"the leader was told of an unknown member {problem}") from problem
        if self.group.session.wire.flexible("sync_group"):
            frame = self._sync[:-2] + unsigned_varint(len(grants) + 1) + b"".join(grants) + b"\0"
        else:
            frame = self._sync[:-4] + struct.pack(">i", len(grants)) + b"".join(grants)
        struct.pack_into(">i", frame, 0, len(frame) - 4)
        return frame

    def until_rebalance(self) -> Script:
        """Heartbeat until the coordinator says that a rebalance has begun."""
        wire = self.group.session.wire
        while True:
            error = int(wire.parse("heartbeat", (yield self.heartbeat())).error_code)
            if error == REBALANCE_IN_PROGRESS:
                return
            if error:
                raise ErrorReplyError("heartbeat", error)

    def settle(self, pause: float) -> Script:
        """Join, heartbeat and rejoin until the whole group is in one generation."""
        wire, group = self.group.session.wire, self.group
        while True:
            yield from self.join()
            while True:
                if group.sizes.get(self.generation) == len(group.members):
                    return
                yield pause
                error = int(wire.parse("heartbeat", (yield self.heartbeat())).error_code)
                if error == REBALANCE_IN_PROGRESS:
                    break
                if error:
                    raise ErrorReplyError("heartbeat", error)
