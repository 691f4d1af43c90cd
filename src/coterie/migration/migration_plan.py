"""What has to be created and changed in the target, and what stands in the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coterie.client.admin import AlterConfigOp, ConfigChange, NewTopic
from coterie.migration.progress import CopiedTopic

TIMESTAMP_TYPE = "message.timestamp.type"
LOG_APPEND_TIME = "LogAppendTime"
LATER = ("message.timestamp.before.max.ms", "message.timestamp.difference.max.ms")
"""Configs with which the target would refuse old records."""
NEVER = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Configs that name brokers of the source."""


@dataclass(frozen=True)
class SourceTopic:
    """A topic to copy, with the configs that are not Kafka's defaults."""

    id: str
    partitions: int
    configs: Mapping[str, str]
    is_compacted: bool = False


@dataclass(frozen=True)
class TargetTopic:
    """A topic of the same name in the target."""

    partitions: int
    is_empty: bool
    keeps_timestamps: bool
    id: str = ""


@dataclass
class MigrationPlan:
    create: list[NewTopic] = field(default_factory=list)
    use: list[str] = field(default_factory=list)
    """Empty topics that are in the target already."""
    grow: dict[str, int] = field(default_factory=dict)
    """The new number of partitions."""
    alter: dict[str, list[ConfigChange]] = field(default_factory=dict)
    """Configs that were changed in the source since they were copied."""
    conflicts: dict[str, str] = field(default_factory=dict)
    """Topics that cannot be copied, and why."""


def copied_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the configs that the target gets at once."""
    later = configs_for_later(configs)
    return {name: value for name, value in configs.items() if name not in later and name not in NEVER}


def configs_for_later(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the configs that would change or refuse copied records. The user sets them when the copy has ended."""
    return {
        name: value
        for name, value in configs.items()
        if name in LATER or (name == TIMESTAMP_TYPE and value == LOG_APPEND_TIME)
    }


def make_plan(
    source: Mapping[str, SourceTopic],
    target: Mapping[str, TargetTopic],
    known: Mapping[str, CopiedTopic],
    replication_factor: int = -1,
) -> MigrationPlan:
    """Compare the topics of both sides. `known` are those that this migration copies already."""
    plan = MigrationPlan()
    for name, topic in sorted(source.items()):
        there = target.get(name)
        if name in known:
            _go_on(plan, name, topic, there, known[name])
        elif there is None:
            plan.create.append(NewTopic(name, topic.partitions, replication_factor, copied_configs(topic.configs)))
        else:
            _use(plan, name, topic, there)
    return plan


def _go_on(plan: MigrationPlan, name: str, topic: SourceTopic, there: TargetTopic | None, known: CopiedTopic) -> None:
    if there is None or known.target_id not in ("", there.id):  # records that were copied are gone
        plan.conflicts[name] = (
            f"{name} was deleted in the target after the copy had begun. Leave it out (--exclude {name}), or begin "
            "again: delete the copied topics in the target and give another --name"
        )
    elif known.source_id != topic.id:
        plan.conflicts[name] = (
            f"{name} was deleted in the source and created again after the copy had begun. Leave it out "
            f"(--exclude {name})"
        )
    else:
        if there.partitions < topic.partitions:
            plan.grow[name] = topic.partitions
        changes = config_changes(copied_configs(known.configs), copied_configs(topic.configs))
        if changes:
            plan.alter[name] = changes


def _use(plan: MigrationPlan, name: str, topic: SourceTopic, there: TargetTopic) -> None:
    otherwise = f"Delete it there, or leave it out (--exclude {name})"
    if not there.is_empty:
        plan.conflicts[name] = f"{name} is in the target already and has records that are no copy. {otherwise}"
    elif there.partitions != topic.partitions:
        plan.conflicts[name] = (
            f"{name} is in the target already, with {there.partitions} partitions in place of {topic.partitions}. "
            f"{otherwise}"
        )
    elif not there.keeps_timestamps:
        plan.conflicts[name] = timestamps_change(name)
    else:
        plan.use.append(name)


def timestamps_change(name: str) -> str:
    """Return the message about a topic in the target that would give records another time."""
    return (
        f"{name} has {TIMESTAMP_TYPE}={LOG_APPEND_TIME} in the target, so records would get another time. Set it to "
        f"CreateTime until the copy has ended: coterie topics alter {name} --topic-config {TIMESTAMP_TYPE}=CreateTime"
    )


def config_changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[ConfigChange]:
    """Return how configs were changed."""
    changed = [ConfigChange(name, value) for name, value in sorted(now.items()) if before.get(name) != value]
    deleted = [ConfigChange(name, None, AlterConfigOp.DELETE) for name in sorted(before.keys() - now.keys())]
    return changed + deleted
