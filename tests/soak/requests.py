"""Random requests of every API and version, well-formed: about groups, members and topics that are there, or nearly.

They are made from the fields that `coterie.protocol.apis` declares, so a new API or version is asked too. What a field
is called says what it is likely to hold; where that is wrong for once, so much the better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, get_args, get_origin
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.protocol.apis import APIS, Api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import MessageField, is_records, members, number_format, present
from coterie.protocol.frames import request_frame
from coterie.structs import is_data
from soak.batches import Batches

__all__ = ["Known", "Requests"]

GROUPS = ("g", "h", "busy", "", "größe", "x" * 300)
TOPICS = ("t", "compact", "u", "not there", "..", "__consumer_offsets", "__coterie_facts", "new", "")
WORDS = (
    "",
    "range",
    "consumer",
    "a",
    "cleanup.policy",
    "segment.bytes",
    "compact",
    "1",
    "-1",
    "1048576",
    "é\U0001f40d",
)
RANGES = {"b": 7, "h": 15, "i": 31, "q": 63}
SMALL = (-1, 0, 0, 0, 1, 1, 2, 3)
NULL = {"transactional_id": 0.95, "instance_id": 0.7, "topics": 0.1, "records": 0.05}
"""How often a field is null that may be; others in three of ten cases."""
WAITS_MS = (-1, 0, 0, 0, 1, 10, 500, 30_000, 2**31 - 1)


@dataclass(slots=True)
class Known:
    """What a hostile client may have found out."""

    members: list[tuple[str, str, int]] = field(default_factory=list)
    """Of groups that are there: group, member, generation."""
    topic_ids: list[UUID] = field(default_factory=list)


class Requests:
    def __init__(self, rng: Random, apis: Sequence[Api] = APIS) -> None:
        self._rng = rng
        self._batches = Batches(rng)
        self.known = Known()
        self._about = ("g", "nobody", 1)
        """Group, member and generation of the request at hand, unless the rng say otherwise."""
        self._shapes = [
            (api, version, codec(api, _message(api))[1], api.flexible <= version)
            for api in apis
            for version in api.versions
            if api.serves(version)
        ]
        self._numbers: Mapping[str, Callable[[], int]] = {
            "partition": lambda: rng.choice(SMALL),
            "partitions": lambda: rng.choice(SMALL),
            "num_partitions": lambda: rng.choice((-1, 1, 1, 2, 0, 3, 10_001, 2**31 - 1)),
            "count": lambda: rng.choice((-1, 0, 1, 2, 3, 4, 10_001, 2**31 - 1)),
            "replication_factor": lambda: rng.choice((-1, 1, 1, 0, 3)),
            "generation_id": lambda: rng.choice((-1, 0, 1, self._about[2], self._about[2])),
            "session_timeout_ms": lambda: rng.choice((0, 6_000, 10_000, 30_000, 30_000, 1_800_001)),
            "rebalance_timeout_ms": lambda: rng.choice((-1, 0, 1_000, 60_000, 2**31 - 1)),
            "max_wait_ms": lambda: rng.choice(WAITS_MS),
            "timeout_ms": lambda: rng.choice(WAITS_MS),
            "acks": lambda: rng.choice((-1, -1, 0, 1, 2)),
            "session_id": lambda: rng.choice((0, 0, 0, 7)),
            "session_epoch": lambda: rng.choice((-1, -1, 0, 5)),
            "current_leader_epoch": lambda: rng.choice((-1, -1, 0, 1)),
            "fetch_offset": lambda: rng.choice((0, 0, 1, 5, -1, 2**63 - 1)),
            "timestamp": lambda: rng.choice((-1, -2, -3, -4, -5, -6, -7, 0, 1_000, 1_000_000, 2**63 - 1)),
        }
        self._texts: Mapping[str, Callable[[], str]] = {
            "group_id": lambda: rng.choice((*GROUPS, *[self._about[0]] * 20)),
            "member_id": lambda: rng.choice(("", "", "nobody", *[self._about[1]] * 6)),
            "_Protocol.name": lambda: rng.choice(("range", "range", "sticky")),
            "protocol_type": lambda: rng.choice(("consumer", "consumer", "consumer", "consumer", "connect", "")),
            "protocol_name": lambda: rng.choice(("range", "range", "sticky")),
            "name": lambda: rng.choice(TOPICS),
            "topic": lambda: rng.choice(TOPICS),
            "key": lambda: rng.choice(GROUPS),
            "instance_id": lambda: rng.choice(("i", "j")),
            "transactional_id": lambda: rng.choice(("", "tx")),
        }

    def frame(self) -> bytes:
        """Without its size."""
        rng = self._rng
        api, version, write, flexible = rng.choice(self._shapes)
        self._about = rng.choice((*self.known.members, (rng.choice(GROUPS), "", -1)))
        body = write(self._value(_message(api), version), version)
        client_id = rng.choice(("tester", "tester", None, "", "x" * 500))
        return request_frame(api.key, version, rng.getrandbits(31), client_id, body, flexible=flexible)[4:]

    # --- values -------------------------------------------------------------------------------------------------------

    def _value(self, message: Any, version: int) -> Any:
        there = {member.name for tagged in (False, True) for member in present(message, version, tagged=tagged)}
        return message(
            **{
                member.name: self._field(message, member, version) if member.name in there else member.default
                for member in members(message)  # what the version does not have is not written anyway
            }
        )

    def _field(self, message: Any, member: MessageField, version: int) -> Any:
        if member.optional and member.may_be_null(version) and self._rng.random() < NULL.get(member.name, 0.3):
            return None
        full = f"{message.__name__}.{member.name}"
        return self._of_type(member.type, full if full in self._texts else member.name, version)

    def _of_type(self, hint: Any, name: str, version: int) -> Any:
        rng = self._rng
        if hint is bool:
            return rng.random() < 0.5
        if hint is ErrorCode:
            return rng.choice(list(ErrorCode))
        if is_records(hint):
            return self._batches.some()
        code = number_format(hint)
        if code == "d":
            return rng.choice((0.0, 1.0, 1.5, -1.0, 1e300, float("inf"), float("nan")))
        if code:
            return self._number(code, name)
        if hint is str:
            return self._texts.get(name, lambda: rng.choice((*WORDS, *TOPICS)))()
        if hint is bytes:
            return rng.choice((b"", b"\0\1\0\0\0\0\xff\xff\xff\xff", rng.randbytes(rng.randrange(40)), bytes(3_000)))
        if hint is UUID:
            return rng.choice((*self.known.topic_ids, UUID(int=7), None))
        if get_origin(hint) is Sequence:
            (element,) = get_args(hint)
            return [self._of_type(element, name, version) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]
        assert is_data(hint), hint
        return self._value(hint, version)

    def _number(self, code: str, name: str) -> int:
        rng = self._rng
        bits: int = RANGES[code]
        most: int = 2**bits - 1
        if name in self._numbers and rng.random() < 0.9:
            return min(self._numbers[name](), most)
        return rng.choice((0, 1, -1, 7, most, -most - 1, rng.getrandbits(bits)))


def _message(api: Api) -> Any:
    """As it is on the wire; `_Request` where the version-free one has another shape."""
    return getattr(api.module, "_Request", None) or api.module.Request
