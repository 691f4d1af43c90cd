"""`coterie topics`: each command returns rows. The columns are those of kafka-topics.sh."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from uuid import UUID

from coterie.cli.groups import named_partitions
from coterie.cli.options import CommandError
from coterie.cli.output import Cell, Rows
from coterie.client.admin import (
    Admin,
    AlterConfigOp,
    ConfigChange,
    ConfigResource,
    ConfigSource,
    NewTopic,
    TopicDescription,
    checked,
)
from coterie.errors import ErrorCode, KafkaError

TOPIC = ("TOPIC", "TOPIC-ID", "PARTITION-COUNT", "REPLICATION-FACTOR", "CONFIGS")
PARTITION = ("TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR")
CONFIG = ("TOPIC", "CONFIG", "VALUE", "SOURCE")


def list_all(admin: Admin, *, internal: bool, long: bool) -> Rows:
    names = [topic.name for topic in admin.list_topics(include_internal=internal)]
    if not names:
        return Rows(("TOPIC",), [], ["there are no topics; create one with: coterie topics create NAME"])
    if not long:
        return Rows(("TOPIC",), [(name,) for name in names])
    return _long(admin, names)


def describe(admin: Admin, names: Sequence[str], *, internal: bool) -> Rows:
    found = admin.describe_topics(names or [topic.name for topic in admin.list_topics(include_internal=internal)])
    rows: list[Sequence[Cell]] = [
        (topic.name, part.partition, part.leader.id if part.leader else None, _ids(part.replicas), _ids(part.isr))
        for topic in found.values()
        if not isinstance(topic, KafkaError)
        for part in topic.partitions
    ]
    return Rows(PARTITION, rows, errors=_errors(found))


def describe_configs(admin: Admin, names: Sequence[str], *, everything: bool) -> Rows:
    wanted = [ConfigResource.topic(name) for name in names or [topic.name for topic in admin.list_topics()]]
    found = admin.describe_configs(wanted)
    rows: list[Sequence[Cell]] = [
        (resource.name, entry.name, entry.value, entry.source.name)
        for resource, entries in found.items()
        if not isinstance(entries, KafkaError)
        for entry in entries.values()
        if everything or entry.source is ConfigSource.DYNAMIC_TOPIC
    ]
    return Rows(CONFIG, rows, errors=_errors(found))


def create(
    admin: Admin,
    names: Sequence[str],
    *,
    partitions: int | None,
    replication_factor: int | None,
    configs: Sequence[str],
    if_not_exists: bool,
) -> Rows:
    given = dict(_pair(each) for each in configs)
    topics = [NewTopic(name, partitions or -1, replication_factor or -1, given) for name in names]
    found = admin.create_topics(topics)
    if if_not_exists:
        found = {
            name: made
            for name, made in found.items()
            if not isinstance(made, KafkaError) or made.code is not ErrorCode.TOPIC_ALREADY_EXISTS
        }
    rows: list[Sequence[Cell]] = [
        (made.name, _id(made.id), _known(made.partitions), _known(made.replication_factor))
        for made in found.values()
        if not isinstance(made, KafkaError)
    ]
    return Rows(TOPIC[:4], rows, errors=_errors(found))


def alter(
    admin: Admin, name: str, *, partitions: int | None, configs: Sequence[str], delete_configs: Sequence[str]
) -> Rows:
    changes = [ConfigChange(*_pair(each)) for each in configs]
    changes += [ConfigChange(each, None, AlterConfigOp.DELETE) for each in delete_configs]
    if partitions is None and not changes:
        raise CommandError("nothing to change: give --partitions, --topic-config or --delete-config")
    if partitions is not None:
        checked(admin.create_partitions({name: partitions}))
    if changes:
        checked(admin.alter_configs({ConfigResource.topic(name): changes}))
    return _long(admin, [name])


def delete(admin: Admin, names: Sequence[str], *, if_exists: bool) -> Rows:
    found = admin.delete_topics(names)
    if if_exists:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found = {name: error for name, error in found.items() if error is None or error.code is not unknown}
    gone = [(name, "deleted") for name, error in found.items() if error is None]
    return Rows(("TOPIC", "STATUS"), gone, errors=_errors(found))


def reassign(admin: Admin, where: str, nodes: Sequence[int]) -> Rows:
    """Give the partitions of `where`, as in orders:0,1, replicas on these brokers. The first is to lead."""
    name, numbers = named_partitions(where, "")
    if numbers is None:
        numbers = [part.partition for part in checked(admin.describe_topics([name]))[name].partitions]
    found = admin.alter_partition_reassignments({(name, number): nodes for number in numbers})
    failed = {tp.partition for tp, error in found.items() if error is not None}
    described = describe(admin, [name], internal=True) if len(failed) < len(found) else Rows(PARTITION, [])
    rows = [row for row in described.rows if row[1] in numbers and row[1] not in failed]
    return Rows(PARTITION, rows, errors=[*_errors(found), *described.errors])


def _long(admin: Admin, names: Sequence[str]) -> Rows:
    found = admin.describe_topics(names)
    configs = admin.describe_configs([ConfigResource.topic(name) for name in names])
    rows = []
    for name, topic in found.items():
        if isinstance(topic, KafkaError):
            continue
        entries = configs[ConfigResource.topic(name)]
        own = [] if isinstance(entries, KafkaError) else entries.values()
        text = ",".join(f"{each.name}={each.value}" for each in own if each.source is ConfigSource.DYNAMIC_TOPIC)
        rows.append((name, _id(topic.id), len(topic.partitions), _replication(topic), text))
    return Rows(TOPIC, rows, errors=[*_errors(found), *_errors(configs)])


def _replication(topic: TopicDescription) -> int | None:
    return len(topic.partitions[0].replicas) if topic.partitions else None


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise CommandError(f"--topic-config {text!r}: give name=value, as in retention.ms=86400000")
    return name.strip(), value.strip()


def _errors(found: object) -> list[str]:
    assert isinstance(found, dict), "results are by name"
    return [str(one) for one in found.values() if isinstance(one, KafkaError)]


def _ids(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes))


def _id(topic_id: UUID | None) -> str | None:
    """Return the id in base64, as Kafka writes it."""
    return None if topic_id is None else urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def _known(number: int) -> int | None:
    return None if number < 0 else number
