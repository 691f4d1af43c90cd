"""The settings of the group coordinator: classic groups, consumer groups (KIP-848), offsets, and limits of memory."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.settings.config_def import Flag, Settings, Word, Words, int32, int64, setting

GROUPS = "Groups and their offsets"
SMALLEST_SEGMENT = 1_048_576
"""Kafka accepts less for __consumer_offsets, and then never finds a coordinator: no topic may have less."""


@dataclass(frozen=True, kw_only=True)
class GroupCoordinatorSettings(Settings):
    """The settings that the group coordinator uses."""

    group_min_session_timeout_ms: int = setting(
        GROUPS, 6_000, int32(0), "The shortest session timeout that a member may ask for."
    )
    group_max_session_timeout_ms: int = setting(
        GROUPS, 1_800_000, int32(0), "The longest session timeout that a member may ask for."
    )
    group_max_size: int = setting(GROUPS, 2**31 - 1, int32(1), "How many members a group may have.")
    group_initial_rebalance_delay_ms: int = setting(
        GROUPS, 3_000, int32(0), "How long the first rebalance of an empty group waits for more members to join."
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        GROUPS,
        ("uniform", "range"),
        Words(),
        "The assignors of consumer groups: uniform, range, and assignors of your own, by the names of their entry "
        "points. The first is used if no member names one.",
    )
    coterie_assignor_timeout_ms: int = setting(
        GROUPS,
        10_000,
        int32(1),
        "How long an assignor of your own may take. Then the group keeps its last target assignment.",
    )
    group_consumer_session_timeout_ms: int = setting(
        GROUPS, 45_000, int32(1), "How long a member of a consumer group may be silent before it is removed."
    )
    group_consumer_min_session_timeout_ms: int = setting(
        GROUPS, 45_000, int32(1), "The shortest session timeout that a consumer group may be given."
    )
    group_consumer_max_session_timeout_ms: int = setting(
        GROUPS, 60_000, int32(1), "The longest session timeout that a consumer group may be given."
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        GROUPS, 5_000, int32(1), "How often the members of a consumer group send a heartbeat."
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        GROUPS, 5_000, int32(1), "The shortest heartbeat interval that a consumer group may be given."
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        GROUPS, 15_000, int32(1), "The longest heartbeat interval that a consumer group may be given."
    )
    group_consumer_assignment_interval_ms: int = setting(
        GROUPS,
        1_000,
        int32(0),
        "How long a consumer group waits after it has computed its target assignment before it does so again.",
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        GROUPS, 0, int32(0), "The shortest assignment interval that a consumer group may be given."
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        GROUPS, 15_000, int32(0), "The longest assignment interval that a consumer group may be given."
    )
    group_consumer_max_size: int = setting(GROUPS, 2**31 - 1, int32(1), "How many members a consumer group may have.")
    group_consumer_migration_policy: str = setting(
        GROUPS,
        "bidirectional",
        Word(("bidirectional", "upgrade", "downgrade", "disabled"), any_case=True),
        "Whether a classic group becomes a consumer group when a consumer member joins it (upgrade), and a classic "
        "group again when the last consumer member has left (downgrade).",
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        GROUPS,
        600_000,
        int32(10_000),
        "How often a consumer group matches its regular expressions with all topics, if no topic is new.",
    )
    offset_metadata_max_bytes: int = setting(
        GROUPS, 4_096, int32(0), "The longest metadata that a commit may have for a partition."
    )
    offsets_retention_minutes: int = setting(
        GROUPS,
        10_080,
        int32(1),
        "How long committed offsets are kept after the last member left, or after the group stopped "
        "subscribing to their topic.",
    )
    offsets_retention_check_interval_ms: int = setting(
        GROUPS, 600_000, int64(1), "How often the broker looks for committed offsets that have expired."
    )
    offsets_commit_timeout_ms: int = setting(
        GROUPS,
        5_000,
        int32(1),
        "How long a commit may wait for the disk before it is answered with an error that the client can retry.",
    )
    offsets_topic_num_partitions: int = setting(
        GROUPS, 50, int32(1), "How many partitions __consumer_offsets has. It cannot be changed once the topic exists."
    )
    offsets_topic_segment_bytes: int = setting(
        GROUPS, 104_857_600, int32(SMALLEST_SEGMENT), "The size of a segment of __consumer_offsets."
    )
    coterie_offsets_roll_bytes: int = setting(
        GROUPS,
        1_048_576,
        int32(1),
        "The size at which a segment of __consumer_offsets is closed so that it can be compacted, if that "
        "saves enough.",
    )
    coterie_max_record_bytes: int = setting(
        GROUPS,
        104_857_600,
        int32(1024),
        "The largest record of a group. Kafka's limit, 1 MiB, is too small for groups of 5 000 members.",
    )
    coterie_group_member_max_bytes: int = setting(
        GROUPS,
        4_194_304,
        int32(1024),
        "The most metadata that the protocols of a member may have. A join with more is refused with "
        "GROUP_MAX_SIZE_REACHED.",
    )
    coterie_group_max_bytes: int = setting(
        GROUPS,
        268_435_456,
        int64(1024),
        "The most memory that the members of a group may take: metadata, ids and assignments. A join that "
        "needs more is refused with GROUP_MAX_SIZE_REACHED.",
    )
    coterie_groups_max_bytes: int = setting(
        GROUPS,
        536_870_912,
        int64(1024),
        "The most memory that the members of all groups together may take. A join that needs more is "
        "refused with GROUP_MAX_SIZE_REACHED.",
    )
    coterie_facts_enable: bool = setting(
        GROUPS,
        True,
        Flag(),
        "Whether group events are kept in the topic __coterie_facts, which explains rebalances later.",
    )
    coterie_facts_retention_bytes: int = setting(
        GROUPS,
        268_435_456,
        int64(-1),
        "The size that __coterie_facts is cut back to, besides log.retention; -1 is no limit. The topic's "
        "own retention.bytes takes precedence.",
    )
    coterie_max_append_bytes: int = setting(
        GROUPS, 1_048_576, int32(1024), "The size up to which records of groups are joined into one write."
    )

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000

    def contradictions(self) -> list[str]:
        problems = super().contradictions()
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            problems.append(
                f"group.min.session.timeout.ms is {self.group_min_session_timeout_ms}, group.max.session.timeout.ms "
                f"{self.group_max_session_timeout_ms}: no member could join. Lower the one or raise the other"
            )
        for what in ("session_timeout", "heartbeat_interval", "assignment_interval"):
            least, own, most = (getattr(self, f"group_consumer_{bound}{what}_ms") for bound in ("min_", "", "max_"))
            if not least <= own <= most:
                dotted = what.replace("_", ".")
                problems.append(
                    f"group.consumer.{dotted}.ms is {own}; it must be within group.consumer.min.{dotted}.ms and "
                    f"group.consumer.max.{dotted}.ms, which are {least} and {most}"
                )
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            problems.append("group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms")
        if not self.group_consumer_assignors:
            problems.append("group.consumer.assignors is empty; give uniform, range, or both, or assignors of your own")
        return problems
