"""A consumer group as a forecast needs it: members, topics, rates, settings; and where each of them is from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coterie.assignors.registry import assignor
from coterie.errors import CoterieError
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.config_def import SettingsError, text_of
from coterie.settings.consumer_settings import ConsumerSettings
from coterie.sim.consumer import Habits
from coterie.structs import DataStruct, InvalidDataError, convert, field, replace

STATIC = "group.instance.id"
STATIC_EACH = "each"
"""The value of `group.instance.id` that gives each member an id of its own."""
ASSUMED_RECORD_MS = 1.0
ASSUMED_RESTART_S = 5.0
ASSUMED_NETWORK_MS = 1.0
_OF_CLASSIC = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")
_CONSUMER_TIMES = ("group.consumer.session.timeout.ms", "group.consumer.heartbeat.interval.ms")


class Origin(DataStruct, frozen=True):
    """The source of a figure."""

    grade: str
    """measured, given or assumed."""
    text: str = ""

    def __str__(self) -> str:
        return f"{self.grade}: {self.text}" if self.text else self.grade


GIVEN = Origin("given")
MEASURED = "measured"
ASSUMED = "assumed"


class TopicModel(DataStruct, frozen=True, forbid_unknown_fields=True):
    partitions: int
    records_per_s: float = 0.0
    """The records that are produced to the whole topic; each partition gets the same share."""


class MemberModel(DataStruct, frozen=True, forbid_unknown_fields=True):
    name: str
    topics: tuple[str, ...] = ()
    """Its subscription; empty for all topics of the group."""
    ms_per_record: float | None = None
    """The processing time of a record; None: that of the group."""


class GroupModel(DataStruct, frozen=True):
    group_id: str
    members: tuple[MemberModel, ...]
    topics: Mapping[str, TopicModel]
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of consumers and brokers by Kafka's names, as text. Others have Kafka's defaults."""
    ms_per_record: float = ASSUMED_RECORD_MS
    restart_s: float = ASSUMED_RESTART_S
    """The time from the end of a process until its successor starts its consumer."""
    pause_s: float = 0.0
    """The length of a pause in which a process does nothing, as in a garbage collection."""
    pause_every_s: float = 0.0
    """The mean time between two pauses of a process; 0: there are none."""
    network_ms: float = ASSUMED_NETWORK_MS
    """The time that a packet takes, one way."""
    origins: Mapping[str, Origin] = field(default_factory=dict)
    """The source of each figure, by its name."""

    # --- settings

    def with_settings(self, more: Mapping[str, str]) -> GroupModel:
        """Return the group with other settings; they are checked.

        With `group.protocol=consumer` those of the classic protocol are left out, since a consumer refuses them.
        """
        kept = self.settings
        if more.get("group.protocol") == "consumer":
            kept = {name: value for name, value in kept.items() if name not in _OF_CLASSIC}
        changed = replace(self, settings={**kept, **more})
        changed.check()
        return changed

    def check(self) -> None:
        """Raise an error if a setting is unknown or not allowed, or a figure makes no sense."""
        self.consumer_settings()
        BrokerSettings.of(self.broker_settings())
        for name, topic in self.topics.items():
            if topic.partitions < 1 or topic.records_per_s < 0:
                raise CoterieError(f"topic {name}: partitions must be at least 1, and records_per_s at least 0")
        for member in self.members:
            unknown = set(member.topics) - set(self.topics)
            if unknown:
                raise CoterieError(
                    f"member {member.name} subscribes to {', '.join(sorted(unknown))}: the group has no such topic"
                )
        if not self.members or not self.topics:
            raise CoterieError("a group needs members and topics")
        if min(self.ms_per_record, self.restart_s, self.pause_s, self.pause_every_s, self.network_ms) < 0:
            raise CoterieError("times must not be negative")

    @property
    def is_static(self) -> bool:
        return bool(self.settings.get(STATIC))

    def consumer_settings(self) -> ConsumerSettings:
        """Return the settings that a member's consumer has."""
        own = {name: value for name, value in self.settings.items() if name != STATIC and ConsumerSettings.has(name)}
        for name in self.settings:
            if not (ConsumerSettings.has(name) or BrokerSettings.has(name)):
                ConsumerSettings.of({name: self.settings[name]})  # raises, and names the nearest one
                raise SettingsError(f"{name}: this setting has no effect on a forecast; leave it out")
        return ConsumerSettings.of({"bootstrap.servers": "b1:9092", "group.id": self.group_id, **own})

    def broker_settings(self) -> dict[str, object]:
        """Return the settings of the broker. The least that it allows is lowered to what the group asks for."""
        own: dict[str, object] = {
            "offsets.topic.num.partitions": 1,
            "group.min.session.timeout.ms": 1,
            **{
                name: value
                for name, value in self.settings.items()
                if BrokerSettings.has(name) and not ConsumerSettings.has(name)
            },
        }
        for name in _CONSUMER_TIMES:
            if name in own:
                least, most = (name.replace("group.consumer.", f"group.consumer.{bound}.") for bound in ("min", "max"))
                own.setdefault(least, own[name])
                own.setdefault(most, max(int(str(own[name])), int(BrokerSettings()[most])))
        return own

    def habits(self, member: MemberModel) -> Habits:
        """Return the settings of one member as the simulator has them."""
        found = self.consumer_settings()
        return Habits(
            group_id=self.group_id,
            group_protocol=found.group_protocol,
            topics=member.topics or tuple(self.topics),
            assignors=[assignor(str(one)) for one in found.partition_assignment_strategy],
            remote_assignor=found.group_remote_assignor or None,
            instance_id=member.name if self.is_static else None,
            session_timeout_ms=found.session_timeout_ms,
            heartbeat_interval_ms=found.heartbeat_interval_ms,
            max_poll_interval_ms=found.max_poll_interval_ms,
            auto_commit=found.enable_auto_commit,
            auto_commit_interval_ms=found.auto_commit_interval_ms,
            max_poll_records=found.max_poll_records,
            metadata_max_age_ms=found.metadata_max_age_ms,
            fetch_max_wait_ms=30_000,  # no record is sent, so a short wait would only cost time
        )

    # --- figures

    def record_ms(self, member: MemberModel) -> float:
        return self.ms_per_record if member.ms_per_record is None else member.ms_per_record

    @property
    def partitions(self) -> int:
        return sum(one.partitions for one in self.topics.values())

    @property
    def records_per_s(self) -> float:
        return sum(one.records_per_s for one in self.topics.values())

    @property
    def load(self) -> float:
        """Return the share of its time that an average member works: above 1 the group falls behind."""
        work_s = sum(self.record_ms(one) for one in self.members) / len(self.members) / 1_000
        return self.records_per_s * work_s / len(self.members)

    @property
    def detection_bound_ms(self) -> int:
        """Return the session timeout: a crash is detected that long after the last heartbeat."""
        found = self.consumer_settings()
        if found.group_protocol == "consumer":
            return BrokerSettings.of(self.broker_settings()).group_consumer_session_timeout_ms
        return found.session_timeout_ms


# --- files ------------------------------------------------------------------------------------------------------------


class _GroupFile(DataStruct, forbid_unknown_fields=True):
    members: int | list[MemberModel]
    topics: dict[str, TopicModel]
    group: str = "group"
    ms_per_record: float | None = None
    restart_s: float | None = None
    pause_s: float = 0.0
    pause_every_s: float = 0.0
    network_ms: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)


def parse_group(data: Mapping[str, Any], source: str) -> GroupModel:
    """Make a group from the data of a TOML or JSON file; `source` is named in errors."""
    try:
        read = convert(data, _GroupFile)
    except InvalidDataError as error:
        raise CoterieError(f"{source} is not a group: {error}. docs/plan.md has the format") from None
    members = read.members
    if isinstance(members, int):
        if members < 1:
            raise CoterieError(f"{source}: members is {members}; a group needs at least one")
        members = [MemberModel(f"c{number}") for number in range(members)]
    settings = _flat(read.settings)
    figures = {
        "ms_per_record": (read.ms_per_record, ASSUMED_RECORD_MS),
        "restart_s": (read.restart_s, ASSUMED_RESTART_S),
        "network_ms": (read.network_ms, ASSUMED_NETWORK_MS),
    }
    origins = {
        "members": GIVEN,
        "partitions": GIVEN,
        "records_per_s": GIVEN if any(one.records_per_s for one in read.topics.values()) else _NO_RECORDS,
        **{name: GIVEN if value is not None else _DEFAULT for name, (value, _) in figures.items()},
        "pauses": GIVEN if read.pause_every_s else Origin(ASSUMED, "there are none"),
        "settings": Origin("given", f"{len(settings)} of them; the others have Kafka's defaults"),
        **{name: _origin(text) for name, text in read.origins.items()},
    }
    model = GroupModel(
        read.group,
        tuple(members),
        read.topics,
        settings,
        **{name: default if value is None else value for name, (value, default) in figures.items()},
        pause_s=read.pause_s,
        pause_every_s=read.pause_every_s,
        origins=origins,
    )
    model.check()
    return model


_NO_RECORDS = Origin(ASSUMED, "no records are produced, so nothing is said about lag")
_DEFAULT = Origin(ASSUMED, "not given")


def _origin(text: str) -> Origin:
    grade, _, rest = text.partition(": ")
    return Origin(grade, rest)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Join the parts of names: `session.timeout.ms = 6000` without quotes is three tables in TOML."""
    found: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = ",".join(value) if isinstance(value, list) else text_of(value)
    return found


def group_file(model: GroupModel) -> str:
    """Return a group as TOML, which `parse_group` reads again."""
    lines = [f"group = {_text(model.group_id)}"]
    names = [f"c{number}" for number in range(len(model.members))]
    is_plain = [one.name for one in model.members] == names and not any(
        one.topics or one.ms_per_record is not None for one in model.members
    )
    if is_plain:
        lines.append(f"members = {len(model.members)}")
    for name in ("ms_per_record", "restart_s", "pause_s", "pause_every_s", "network_ms"):
        origin = model.origins.get(name)
        lines.append(f"{name} = {float(getattr(model, name)):g}{f'  # {origin}' if origin else ''}")
    for name, topic in model.topics.items():
        lines += ["", f"[topics.{_text(name)}]", f"partitions = {topic.partitions}"]
        lines.append(f"records_per_s = {topic.records_per_s:g}")
    lines += ["", "[settings]", *(f"{_text(name)} = {_text(value)}" for name, value in model.settings.items())]
    lines += ["", "[origins]", *(f"{name} = {_text(str(origin))}" for name, origin in model.origins.items())]
    for member in () if is_plain else model.members:
        lines += ["", "[[members]]", f"name = {_text(member.name)}"]
        if member.topics:
            lines.append(f"topics = [{', '.join(map(_text, member.topics))}]")
        if member.ms_per_record is not None:
            lines.append(f"ms_per_record = {member.ms_per_record:g}")
    return "\n".join([*lines, ""])


def _text(value: str) -> str:
    """Return a basic string of TOML."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(one if one.isprintable() else f"\\U{ord(one):08X}" for one in escaped) + '"'


def settings_of(texts: Sequence[str]) -> dict[str, str]:
    """Parse NAME=VALUE texts; `group.instance.id=each` gives each member an id of its own."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise CoterieError(f"{text!r} is not NAME=VALUE: give a setting by its Kafka name")
        found[name.strip()] = value.strip()
    return found
