"""Cases as text: who says what, one line a step.

    a join v9 protocols=range,sticky session=600      a request: who, what, version (the newest if none is said), how
    wait 500                                          milliseconds
    restart                                           the broker, in order or by kill -9, as the profile says
    create x / drop x                                 a topic of the case's own

What is not said is what a well-behaved client would say: its own member id and generation, "" and -1 at first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["REQUESTS", "Case", "Kind", "Step", "parse"]


@dataclass(frozen=True)
class Kind:
    """A request: its name in Kafka's schemas, its versions in 4.3.1, and what a step may say of it."""

    api: str
    versions: range
    defaults: Mapping[str, str]


_MEMBER = {"group": "g", "member": "own", "instance": "null"}
_MEMBER_OF_GENERATION = {**_MEMBER, "generation": "own"}

REQUESTS: Mapping[str, Kind] = {
    "join": Kind(
        "join_group",
        range(10),
        {**_MEMBER, "type": "consumer", "protocols": "range", "session": "30000", "rebalance": "60000"},
    ),
    "sync": Kind(
        "sync_group",
        range(6),
        {**_MEMBER_OF_GENERATION, "type": "consumer", "protocol": "range", "assign": "all"},
    ),
    "heartbeat": Kind("heartbeat", range(5), _MEMBER_OF_GENERATION),
    "leave": Kind("leave_group", range(6), {"group": "g", "members": "own"}),
    "commit": Kind("offset_commit", range(2, 11), {**_MEMBER_OF_GENERATION, "retention": "-1", "at": "t:0:5"}),
    "fetch": Kind("offset_fetch", range(1, 11), {"groups": "g", "topics": "t:0:1", "stable": "no"}),
    "forget": Kind("offset_delete", range(1), {"group": "g", "topics": "t:0"}),
    "describe": Kind("describe_groups", range(7), {"groups": "g", "operations": "no"}),
    "list": Kind("list_groups", range(6), {"states": "", "types": ""}),
    "delete": Kind("delete_groups", range(3), {"groups": "g"}),
    "reassign": Kind("alter_partition_reassignments", range(2), {"topics": "t:0:1", "change": "yes"}),
    "reassignments": Kind("list_partition_reassignments", range(1), {"topics": "all"}),
    "elect": Kind("elect_leaders", range(3), {"topics": "t:0", "type": "0"}),
    "log-dirs": Kind("alter_replica_log_dirs", range(1, 3), {"at": "own/t:0"}),
    "quorum": Kind("describe_quorum", range(3), {"topics": "__cluster_metadata:0"}),
    "resources": Kind("list_config_resources", range(2), {"kinds": ""}),
    "quotas": Kind("describe_client_quotas", range(2), {"filter": "", "strict": "no"}),
    "limit": Kind("alter_client_quotas", range(2), {"entries": "", "validate": "no"}),
    "producers": Kind("describe_producers", range(1), {"topics": "t:0"}),
    "transaction": Kind("describe_transactions", range(1), {"ids": "x"}),
    "transactions": Kind("list_transactions", range(3), {"in": "", "ids": "", "duration": "-1", "pattern": "null"}),
}
WORLDLY = {"wait": 1, "restart": 0, "create": 1, "drop": 1}


@dataclass(frozen=True)
class Step:
    text: str
    who: str
    what: str
    """A key of REQUESTS, or of WORLDLY, which nobody says."""
    version: int = 0
    args: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> Kind | None:
        return REQUESTS.get(self.what)


def parse(text: str) -> Step:
    words = text.split()
    if words[0] in WORLDLY:
        if len(words) != 1 + WORLDLY[words[0]]:
            raise ValueError(f"{text!r}: {words[0]} takes {WORLDLY[words[0]]} words")
        return Step(text, "", words[0], args={"it": words[-1]})
    who, what, *rest = words
    if what not in REQUESTS:
        raise ValueError(f"{text!r}: {what!r} is none of {', '.join(REQUESTS)}")
    kind = REQUESTS[what]
    version = kind.versions[-1]
    if rest and "=" not in rest[0]:
        version = int(rest.pop(0).removeprefix("v"))
        if version not in kind.versions:
            raise ValueError(f"{text!r}: Kafka 4.3.1 has {what} v{kind.versions[0]} to v{kind.versions[-1]}")
    args = {word: value for word, _, value in (each.partition("=") for each in rest)}
    unknown = args.keys() - kind.defaults.keys()
    if unknown:
        raise ValueError(f"{text!r}: {what} has no {', '.join(unknown)}, only {', '.join(kind.defaults)}")
    return Step(text, who, what, version, {**kind.defaults, **args})


@dataclass(frozen=True)
class Case:
    name: str
    steps: tuple[str, ...]
    after: str = ""
    """The case whose steps come first; its answers are recorded there."""
