"""Plays a case of heartbeats on a broker, and brings the answers into a form that two brokers can have in common.

A step is a line: who, what, and values. `m0 beat epoch=0 names=t owned=-` is a heartbeat of the member m0. What is not
said is null or -1. An epoch of `told` is the one that the member was told last, `told+1` one more. `owned=mine` is what
it was assigned last, `owned=-` an empty list, `owned=t:0,1/t2:0` these partitions.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from coterie.errors import MalformedError
from coterie.protocol.subscription import (
    Assignment,
    Subscription,
    read_assignment,
    write_assignment,
    write_subscription,
)

TOPICS = {"t": 4, "t2": 2, "other": 1}
UNKNOWN_TOPIC = UUID("12345678-1234-1234-1234-123456789abc")
_HANDLED_MS = 50
_UNREADABLE = {"short": b"\x00\x01\x00", "odd": b"\x00\x01\xff\xff\xff\xfe", "empty": b""}
"""Bytes that are neither a subscription nor an assignment."""
_MADE_LENGTH = 22
"""Of the ids that brokers make for members of consumer groups."""
_CLASSIC_ID = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""What brokers add to the client id, for the id of a member of a classic group."""
_TEXTS = {
    "instance": "instance_id",
    "rack": "rack_id",
    "regex": "subscribed_topic_regex",
    "assignor": "server_assignor",
}


class Broker(ABC):
    """A broker that cases are played on, and the ids of its topics."""

    def __init__(self) -> None:
        self.ids: dict[str, UUID] = {}
        self.cases = 0

    @abstractmethod
    def ask(self, api: str, version: int, values: Mapping[str, Any]) -> Any:
        """Return kio's answer."""

    @abstractmethod
    def send(self, whose: str, api: str, version: int, values: Mapping[str, Any]) -> None:
        """Send a request on a connection of its own; the client id is what is before the `#`."""

    @abstractmethod
    def receive(self, whose: str) -> Any:
        """Return the answer to the oldest request of that connection; None if there is none."""

    @abstractmethod
    def wait(self, ms: int) -> None: ...

    @abstractmethod
    def restart(self) -> None:
        """End the broker as kill -9 does, and start it again."""

    def until_there(self, api: str, version: int, values: Mapping[str, Any], _entries: str) -> Any:
        """Ask until no entry of the answer has an error."""
        return self.ask(api, version, values)

    def prepare(self) -> None:
        for name, partitions in TOPICS.items():
            self.create(name, partitions)
        self.until_there("find_coordinator", 6, {"key_type": 0, "coordinator_keys": ("g",)}, "coordinators")

    def create(self, name: str, partitions: int) -> None:
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": (),
            "configs": (),
        }
        values = {"topics": (topic,), "timeout": 10_000, "validate_only": False}
        (made,) = self.until_there("create_topics", 7, values, "topics").topics
        self.ids[name] = made.topic_id

    def names(self) -> dict[UUID, str]:
        return {topic_id: name for name, topic_id in self.ids.items()}


class Playing:
    """One case on one broker. Its group and its members have names that no other case has."""

    def __init__(self, broker: Broker) -> None:
        broker.cases += 1
        self.broker = broker
        self.prefix = f"c{broker.cases:05}"
        self.group = f"{self.prefix}-g"
        self.told: dict[str, int] = {}
        self.mine: dict[str, dict[str, list[int]]] = {}
        self.made: dict[str, str] = {}
        self.waits_for: dict[str, list[tuple[str, str]]] = {}

    def play(self, steps: list[str]) -> Iterator[str]:
        for step in steps:
            who, what, *rest = step.split(" ")
            values = dict(part.split("=", 1) for part in rest)
            yield self._shown(getattr(self, f"_{what}")(who, values))

    # --- requests -----------------------------------------------------------------------------------------------------

    def _id(self, who: str) -> str:
        return "" if who == "nobody" else self.made.get(who, f"{self.prefix}-{who}")

    def _epoch(self, who: str, text: str) -> int:
        if not text.startswith("told"):
            return int(text)
        return self.told.get(who, 0) + int(text.removeprefix("told") or 0)

    def _owned(self, who: str, text: str | None) -> Any:
        if text is None:
            return None
        ids = self.broker.ids
        owned = self._owned_by_name(who, text)
        return tuple({"topic_id": ids.get(n, UNKNOWN_TOPIC), "partitions": tuple(p)} for n, p in owned.items())

    def _owned_by_name(self, who: str, text: str) -> dict[str, list[int]]:
        if text == "mine":
            return self.mine.get(who, {})
        parts = [part.split(":") for part in text.split("/")] if text not in {"-", "", *_UNREADABLE} else []
        return {name: [int(number) for number in numbers.split(",")] for name, numbers in parts}

    def _beat(self, who: str, said: dict[str, str]) -> Any:
        version = int(said.get("v", "1"))
        names = said.get("names")
        values: dict[str, Any] = {
            "group_id": "" if said.get("group") == "none" else self.group,
            "member_id": self._id(said.get("id", who)),
            "member_epoch": self._epoch(who, said.get("epoch", "told")),
            "rebalance_timeout": int(said.get("timeout", "-1")),
            "subscribed_topic_names": None if names is None else tuple(n for n in names.split(",") if n),
            "topic_partitions": self._owned(who, said.get("owned")),
        }
        for short, name in _TEXTS.items():
            if short in said and not (short == "regex" and version == 0):
                values[name] = said[short]
        answer = self.broker.ask("consumer_group_heartbeat", version, values)
        if answer.error_code.name == "none":
            self.told[who] = answer.member_epoch
            if not values["member_id"]:
                self.made[who] = answer.member_id
            if answer.assignment is not None:
                self.mine[who] = self._by_name(answer.assignment.topic_partitions)
        return {
            "error": answer.error_code.name,
            "message": bool(answer.error_message),
            "member": self._anonymous(answer.member_id),
            "epoch": answer.member_epoch,
            "interval": round(answer.heartbeat_interval.total_seconds() * 1000),
            "assigned": None if answer.assignment is None else self._by_name(answer.assignment.topic_partitions),
        }

    def _by_name(self, topics: Any) -> dict[str, list[int]]:
        names = self.broker.names()
        return {names.get(topic.topic_id, "?"): sorted(topic.partitions) for topic in topics}

    def _describe(self, _who: str, _said: dict[str, str]) -> Any:
        values = {"group_ids": (self.group,), "include_authorized_operations": False}
        (group,) = self.broker.ask("consumer_group_describe", 1, values).groups
        if group.error_code.name != "none":
            return {"error": group.error_code.name, "message": bool(group.error_message)}
        is_random = len(group.members) > 1 and any(
            str(self._anonymous(member.member_id)).startswith("made(") and member.instance_id is None
            for member in group.members
        )  # then so is the order in which they are assigned partitions
        return {
            "state": group.group_state,
            "epochs": [group.group_epoch, group.assignment_epoch],
            "assignor": group.assignor_name,
            "members": sorted(
                (
                    {
                        "id": self._anonymous(member.member_id),
                        "instance": member.instance_id,
                        "rack": member.rack_id,
                        "epoch": member.member_epoch,
                        "names": sorted(member.subscribed_topic_names),
                        "regex": member.subscribed_topic_regex,
                        "has": None if is_random else self._by_name(member.assignment.topic_partitions),
                        "target": None if is_random else self._by_name(member.target_assignment.topic_partitions),
                        "type": member.member_type,
                    }
                    for member in group.members
                ),
                key=lambda member: (str(member["id"]), str(member["instance"])),
            ),
        }

    def _describe_classic(self, _who: str, said: dict[str, str]) -> Any:
        values = {"groups": (self.group,), "include_authorized_operations": False}
        (group,) = self.broker.ask("describe_groups", int(said.get("v", "6")), values).groups
        return {"error": group.error_code.name, "state": group.group_state, "members": len(group.members)}

    def _list(self, _who: str, said: dict[str, str]) -> Any:
        def words(name: str) -> tuple[str, ...]:
            return tuple(word for word in said.get(name, "").split(",") if word)

        answer = self.broker.ask("list_groups", 5, {"states_filter": words("states"), "types_filter": words("types")})
        return [
            [group.protocol_type, group.group_state, group.group_type]
            for group in answer.groups
            if group.group_id == self.group
        ]

    def _commit(self, who: str, said: dict[str, str]) -> Any:
        version = int(said.get("v", "9"))
        topic, partition = said.get("to", "t:0").split(":")
        values: dict[str, Any] = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self._epoch(who, said.get("epoch", "told")),
            "member_id": self._id(said.get("id", who)),
            "group_instance_id": said.get("instance"),
            "topics": (
                {
                    "name": topic,
                    "partitions": (
                        {
                            "partition_index": int(partition),
                            "committed_offset": 7,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        },
                    ),
                },
            ),
        }
        if version < 7:
            del values["group_instance_id"]
        answer = self.broker.ask("offset_commit", version, values)
        return [partition.error_code.name for topic in answer.topics for partition in topic.partitions]

    def _fetch(self, who: str, said: dict[str, str]) -> Any:
        version = int(said.get("v", "9"))
        group: dict[str, Any] = {
            "group_id": self.group,
            "topics": ({"name": "t", "partition_indexes": (0, 1)},),
        }
        if version >= 9:
            group["member_id"] = None if said.get("id") == "null" else self._id(said.get("id", who))
            group["member_epoch"] = self._epoch(who, said.get("epoch", "told"))
        answer = self.broker.ask("offset_fetch", version, {"groups": (group,), "require_stable": False})
        (found,) = answer.groups
        return {
            "error": found.error_code.name,
            "offsets": [
                [partition.partition_index, partition.committed_offset, partition.error_code.name]
                for topic in found.topics
                for partition in topic.partitions
            ],
        }

    def _forget(self, _who: str, said: dict[str, str]) -> Any:
        topics = tuple({"name": name, "partitions": ({"partition_index": 0},)} for name in said["names"].split(","))
        answer = self.broker.ask("offset_delete", 0, {"group_id": self.group, "topics": topics})
        return {
            "error": answer.error_code.name,
            "topics": {topic.name: topic.partitions[0].error_code.name for topic in answer.topics},
        }

    def _delete(self, _who: str, _said: dict[str, str]) -> Any:
        (result,) = self.broker.ask("delete_groups", 2, {"groups_names": (self.group,)}).results
        return result.error_code.name

    def _leave(self, who: str, said: dict[str, str]) -> Any:
        names = [said.get("id", who), *(name for name in said.get("also", "").split(",") if name)]
        members = tuple(
            {"member_id": self._id(name), "group_instance_id": said.get("instance"), "reason": None} for name in names
        )
        answer = self.broker.ask("leave_group", 5, {"group_id": self.group, "members": members})
        return [answer.error_code.name, [member.error_code.name for member in answer.members]]

    def _restart(self, _who: str, _said: dict[str, str]) -> Any:
        self.broker.restart()
        return "restarted"

    # --- requests of classic members ----------------------------------------------------------------------------------

    def _join(self, who: str, said: dict[str, str]) -> Any:
        """Join; a member that is given its id joins again with it, unless `once` is said."""
        version = int(said.get("v", "9"))
        member_id = self.made.get(who, "")
        if "id" in said:
            member_id = f"{self.prefix}-{who}" if said["id"] == "own" else self._id(said["id"])
        metadata = self._subscription(who, said)
        protocols = tuple({"name": n, "metadata": metadata} for n in said.get("protocols", "range").split(",") if n)
        values: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout": int(said.get("session", "60000")),
            "rebalance_timeout": int(said.get("timeout", "60000")),
            "member_id": member_id,
            "group_instance_id": said.get("instance"),
            "protocol_type": said.get("type", "consumer"),
            "protocols": protocols,
            "reason": None,
        }
        for since, name in ((5, "group_instance_id"), (8, "reason")):
            if version < since:
                del values[name]
        answer = self._exchange(who, "join_group", version, values, said)
        if not isinstance(answer, str) and answer.error_code.name == "member_id_required":
            self.made[who] = answer.member_id
            if "once" not in said:
                answer = self._exchange(who, "join_group", version, {**values, "member_id": answer.member_id}, said)
        return answer if isinstance(answer, str) else self._joined(who, answer)

    def _subscription(self, who: str, said: dict[str, str]) -> bytes:
        if said.get("sub") in _UNREADABLE:
            return _UNREADABLE[said["sub"]]
        owned = self._owned_by_name(who, said.get("owned", "-"))
        topics = [name for name in said.get("names", "t").split(",") if name]
        data = said["data"].encode() if "data" in said else None
        version = int(said.get("sub", "1"))
        return write_subscription(Subscription(topics, data, owned, version=version, rack=said.get("rack")))

    def _joined(self, who: str, answer: Any) -> Any:
        if answer.error_code.name == "none":
            self.told[who] = answer.generation_id
            if self._is_new(answer.member_id, who):
                self.made[who] = answer.member_id
        return {
            "error": answer.error_code.name,
            "member": self._anonymous(answer.member_id),
            "generation": answer.generation_id,
            "type": getattr(answer, "protocol_type", None),
            "protocol": answer.protocol_name,
            "leader": "somebody" if answer.leader else "",
        }

    def _sync(self, who: str, said: dict[str, str]) -> Any:
        assignments = []
        for given in said.get("give", "").split("|") if "give" in said else []:
            name, _, shares = given.partition(":")
            data = said["data"].encode() if "data" in said else None
            written = write_assignment(Assignment(self._owned_by_name(name, shares), data, version=1))
            assignments.append({"member_id": self._id(name), "assignment": _UNREADABLE.get(shares, written)})
        values = {
            "group_id": self.group,
            "generation_id": self._epoch(who, said.get("epoch", "told")),
            "member_id": self._id(said.get("id", who)),
            "group_instance_id": said.get("instance"),
            "protocol_type": said.get("type", "consumer"),
            "protocol_name": said.get("protocol", "range"),
            "assignments": tuple(assignments),
        }
        answer = self._exchange(who, "sync_group", 5, values, said)
        return answer if isinstance(answer, str) else self._synced(who, answer)

    def _synced(self, who: str, answer: Any) -> Any:
        shown: dict[str, Any] = {
            "error": answer.error_code.name,
            "type": answer.protocol_type,
            "protocol": answer.protocol_name,
            "assigned": None,
        }
        if answer.assignment:
            try:
                read = read_assignment(answer.assignment)
            except MalformedError:
                return shown | {"assigned": "unreadable"}
            shares = {name: sorted(numbers) for name, numbers in read.partitions.items() if numbers}
            self.mine[who] = shares
            shown |= {"assigned": shares, "version": read.version, "data": None if not read.user_data else "some"}
        return shown

    def _classic_beat(self, who: str, said: dict[str, str]) -> Any:
        values = {
            "group_id": self.group,
            "generation_id": self._epoch(who, said.get("epoch", "told")),
            "member_id": self._id(said.get("id", who)),
            "group_instance_id": said.get("instance"),
        }
        return self.broker.ask("heartbeat", 4, values).error_code.name

    def _exchange(self, who: str, api: str, version: int, values: dict[str, Any], said: dict[str, str]) -> Any:
        """Return the answer; if it is not waited for, or does not come, a word that says so."""
        waiting = self.waits_for.setdefault(who, [])
        whose = f"{self.prefix}-{who}#{len(waiting)}"  # a connection has one request under way
        self.broker.send(whose, api, version, values)
        asks_for_id = values.get("member_id") == "" and values.get("group_instance_id") is None and version >= 4
        if said.get("wait") == "no" and not (api == "join_group" and asks_for_id):
            waiting.append((api, whose))
            self.broker.wait(_HANDLED_MS)  # requests of other connections come after it
            return "sent"
        answer = self.broker.receive(whose)
        return "nothing" if answer is None else answer

    def _hears(self, who: str, _said: dict[str, str]) -> Any:
        """Hear the answer to a request that was not waited for."""
        api, whose = self.waits_for[who].pop(0)
        answer = self.broker.receive(whose)
        if answer is None:
            return "nothing"
        return (self._joined if api == "join_group" else self._synced)(who, answer)

    def _configure(self, _who: str, said: dict[str, str]) -> Any:
        """Set configs of the group: `session` and `interval`."""
        names = {"session": "consumer.session.timeout.ms", "interval": "consumer.heartbeat.interval.ms"}
        configs = tuple({"name": names[key], "config_operation": 0, "value": value} for key, value in said.items())
        resource = {"resource_type": 32, "resource_name": self.group, "configs": configs}
        answer = self.broker.ask("incremental_alter_configs", 1, {"resources": (resource,), "validate_only": False})
        return answer.responses[0].error_code.name

    def _create(self, _who: str, said: dict[str, str]) -> Any:
        self.broker.create(f"{self.prefix}{said['name']}", int(said["partitions"]))
        return "created"

    def _wait(self, _who: str, said: dict[str, str]) -> Any:
        self.broker.wait(int(said["ms"]))
        return "waited"

    # --- answers ------------------------------------------------------------------------------------------------------

    def _anonymous(self, member_id: str | None) -> str | None:
        """Return the name of a member in its case; an id that the broker made is said to be one."""
        if member_id is None:
            return None
        if len(member_id) == _MADE_LENGTH and not member_id.startswith(self.prefix):
            return f"made({_MADE_LENGTH})"
        return _CLASSIC_ID.sub("'", member_id.replace(f"{self.prefix}-", ""))

    def _is_new(self, member_id: str, who: str) -> bool:
        """Return whether it is an id of the member's own, or one that was made for it: not that of another."""
        name = str(self._anonymous(member_id))
        return name == who or name.endswith("'") or name.startswith("made(")

    def _shown(self, answer: Any) -> str:
        return json.dumps(answer, separators=(",", ":"), sort_keys=True).replace(self.prefix, "")
