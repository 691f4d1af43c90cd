"""Repair of a damaged data directory: find all that is wrong, keep what is whole, report what is lost.

    found = inspect(files)                        # reads all logs whole; changes nothing
    carry_out(files, found, aside="damaged-...")  # then the directory can be opened

Every file that is changed is first copied into the directory `aside`. A segment is rewritten with all whole batches
of the old one; offsets whose records are lost are filled with a batch without records, so that the log ends where it
did, no offset is assigned again, and the loss is never taken for more damage. A repair that was interrupted can be
started again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from coterie.errors import MalformedError
from coterie.protocol.batch import (
    batches,
)
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage.acl_file import encode_acls, read_acls
from coterie.storage.checkpoints import CLEAN_FILE, COMPACTED, RECOVERY_POINTS
from coterie.storage.durable_ends import (
    ACLS_END,
    ENDS_FILE,
    DirectoryCheckpoint,
    DurableEnds,
    LogState,
    number_followed,
    read_checkpoint,
    write_checkpoint,
)
from coterie.storage.files import Files, parent_of, read_file, replace_file
from coterie.storage.flush import read_journal
from coterie.storage.log_errors import DamagedFileError, DirectoryError
from coterie.storage.log_inspection import LogFinding, LogInspection
from coterie.storage.metadata_files import (
    ACLS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    LEADERS,
    META,
    PRODUCER_IDS,
    SCRAM_CREDENTIALS,
    TOPICS,
    StoredTopic,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    encode_partition_metadata,
    encode_properties,
    encode_topics,
    is_legal_name,
    read_topics,
)
from coterie.storage.segment_files import INDEX, LOG, LOG_STARTS, SNAPSHOT, TIME_INDEX, TXN_INDEX, join, named
from coterie.storage.stray_directories import PARTITION_FILE, has_records, partition_path
from coterie.structs import DataStruct, field

_DEFAULTS = BrokerSettings()
_NEEDED = {
    META.path: {"cluster.id", "node.id"},
    LEADERS.path: {"nodes", "topics"},
    PRODUCER_IDS.path: {"next"},
    SCRAM_CREDENTIALS.path: {"credentials"},
    GROUP_CONFIGS.path: {"groups"},
    CLIENT_METRICS_CONFIGS.path: {"subscriptions"},
}


class FileFinding(DataStruct):
    """The damage of a small file."""

    path: str
    wrong: str
    remedy: str
    content: Callable[[], bytes] | None = None
    """The content that replaces it; None if it is only set aside."""


class Findings(DataStruct):
    files: list[FileFinding] = field(default_factory=list)
    logs: list[LogFinding] = field(default_factory=list)
    """All logs, damaged or not."""
    number: int = 0
    """The number of the checkpoint."""
    states: Mapping[tuple[UUID, int], LogState] = field(default_factory=dict)
    knew_ends: bool = False

    @property
    def batches(self) -> int:
        return sum(log.batches for log in self.logs)

    @property
    def damaged_logs(self) -> list[LogFinding]:
        return [log for log in self.logs if log.is_damaged]

    @property
    def is_damaged(self) -> bool:
        return bool(self.files or self.damaged_logs)


def inspect(files: Files, *, cluster_id: str, node_id: int = _DEFAULTS.node_id) -> Findings:
    """Read the whole directory; the ids are for one that has lost its own."""
    if not any(name.startswith("coterie-") or name == META.path for name in files.names()):
        raise DirectoryError("this is not a data directory of coterie: none of its files is here")
    findings = Findings()
    topics = _topics(files, findings)
    _small_files(files, findings, cluster_id, node_id)
    _acls(files, findings)
    known: Mapping[tuple[UUID, int], LogState] | None = None
    try:
        checkpoint = read_checkpoint(files)
        if checkpoint is not None:
            findings.number, known = checkpoint.number, checkpoint.logs
            findings.knew_ends = True
    except DamagedFileError as error:
        remedy = "rewritten from what the logs have: what may be missing at their ends cannot be noticed"
        findings.files.append(FileFinding(error.path, error.wrong, remedy))
        findings.states = _states_of_kafkas_files(files, topics)
    ends = dict(DurableEnds(files).read())
    is_clean = files.exists(CLEAN_FILE)
    journal = _journal(files, findings) if not is_clean else {}
    findings.states = known if known is not None else findings.states
    for topic in topics:
        for partition in range(topic.partitions):
            key = topic.id, partition
            state = None
            if known is not None:
                state = known.get(key, LogState())
                state = state._replace(end=max(state.end, ends.get(key, 0)))
            checkpointed = findings.states.get(key, LogState())
            inspection = LogInspection(
                *(files, topic, partition, state, journal.get(key, ())), checkpointed.start, checkpointed.end
            )
            findings.logs.append(inspection.run())
    return findings


def _states_of_kafkas_files(files: Files, topics: Sequence[StoredTopic]) -> dict[tuple[UUID, int], LogState]:
    """Return log starts and compacted offsets from Kafka's own checkpoint files, which have no checksum."""
    kept: dict[str, dict[tuple[str, int], int]] = {}
    for path in (LOG_STARTS, COMPACTED):
        try:
            kept[path] = decode_offsets(read_file(files, path), path) if files.exists(path) else {}
        except MalformedError:
            kept[path] = {}
    return {
        (topic.id, partition): LogState(
            start=kept[LOG_STARTS].get((topic.name, partition), 0),
            compacted=kept[COMPACTED].get((topic.name, partition), 0),
        )
        for topic in topics
        for partition in range(topic.partitions)
    }


def _topics(files: Files, findings: Findings) -> list[StoredTopic]:
    try:
        named_there = read_topics(files)
        known = {topic.id for topic in named_there.topics.values()} | set(named_there.deleted)
        others = [
            topic
            for topic in _topics_in_directories(files)
            if topic.id not in known and topic.name not in named_there.topics and _has_records(files, topic)
        ]
        if not others:
            return list(named_there.topics.values())
        raise TOPICS.damaged(f"does not name {', '.join(topic.name for topic in others)}")
    except DamagedFileError as error:
        topics = _topics_in_directories(files)
        with suppress(DamagedFileError):
            kept = read_topics(files).topics
            topics = [*kept.values(), *(topic for topic in topics if topic.name not in kept)]
        remedy = f"rewritten with {len(topics)} topics, those of directories that it has not named without configs"
        findings.files.append(
            FileFinding(error.path, error.wrong, remedy, lambda: TOPICS.encode(encode_topics(topics, {})))
        )
        return topics


def _topics_in_directories(files: Files) -> list[StoredTopic]:
    found: dict[str, tuple[UUID, int]] = {}
    for name in files.names():
        topic, _, number = name.rpartition("-")
        if number.isdigit() and is_legal_name(topic) and files.exists(f"{name}/{PARTITION_FILE}"):
            try:
                topic_id = decode_partition_metadata(read_file(files, f"{name}/{PARTITION_FILE}"))
            except MalformedError:
                continue
            first_id, count = found.get(topic, (topic_id, 0))
            found[topic] = first_id, max(count, int(number) + 1)
    return [StoredTopic(name, topic_id, count) for name, (topic_id, count) in sorted(found.items())]


def _has_records(files: Files, topic: StoredTopic) -> bool:
    """Return whether a topic has records; without any it was being created, and an opening sets it aside."""
    paths = (partition_path(topic.name, partition) for partition in range(topic.partitions))
    return any(files.exists(path) and has_records(files, path) for path in paths)


def _small_files(files: Files, findings: Findings, cluster_id: str, node_id: int) -> None:
    meta = encode_properties({"version": "1", "cluster.id": cluster_id, "node.id": str(node_id)})
    remedies: dict[str, tuple[str, Callable[[], bytes] | None]] = {
        META.path: (f"rewritten with cluster.id {cluster_id} and node.id {node_id}", lambda: META.encode(meta)),
        LEADERS.path: ("set aside: every partition is led where it was created", None),
        PRODUCER_IDS.path: ("set aside: ids go on behind the highest that the logs have", None),
        SCRAM_CREDENTIALS.path: ("set aside: users who log in by SCRAM need new passwords", None),
        GROUP_CONFIGS.path: ("set aside: groups have the broker's settings", None),
        CLIENT_METRICS_CONFIGS.path: ("set aside: clients are asked for no metrics", None),
    }
    in_json = {LEADERS, SCRAM_CREDENTIALS, GROUP_CONFIGS, CLIENT_METRICS_CONFIGS}
    for own in (META, LEADERS, PRODUCER_IDS, SCRAM_CREDENTIALS, GROUP_CONFIGS, CLIENT_METRICS_CONFIGS):
        if own is not META and not files.exists(own.path):
            continue
        try:
            payload = own.read(files).payload
            content = json.loads(payload) if own in in_json else decode_properties(payload)
            if not _NEEDED[own.path] <= set(content):
                raise own.damaged("does not have what it should")
        except (DamagedFileError, ValueError) as error:
            wrong = error.wrong if isinstance(error, DamagedFileError) else "is not what we write"
            findings.files.append(FileFinding(own.path, wrong, *remedies[own.path]))


def _acls(files: Files, findings: Findings) -> None:
    """Check the ACLs. Their file is replaced by one without ACLs, not set aside alone: a missing one is damage too."""
    ends = DurableEnds(files)
    last = dict(ends.read()).get(ACLS_END, 0)
    try:
        read_acls(files, ends)
    except DamagedFileError as error:
        remedy = "rewritten without any ACL: create them again"
        content = ACLS.encode(encode_acls((), last + 1))
        findings.files.append(FileFinding(error.path, error.wrong, remedy, lambda: content))


def _journal(files: Files, findings: Findings) -> dict[tuple[UUID, int], list[bytes]]:
    """Return the batches that the journal has of each log."""
    try:
        entries = read_journal(files)
    except DamagedFileError as error:
        findings.files.append(FileFinding(error.path, error.wrong, "set aside; the segments are believed"))
        return {}
    return {
        (UUID(bytes=key[:16]), int.from_bytes(key[16:20], "big")): [
            data[at : at + header.size] for data in written for at, header in batches(data)
        ]
        for key, written in entries.items()
    }


# --- carrying it out --------------------------------------------------------------------------------------------------


def carry_out(files: Files, findings: Findings, aside: str, report: bytes) -> None:
    """Copy damaged files and the report to `aside`, then write what is whole in their place."""
    files.mkdir(aside)
    replace_file(files, f"{aside}/report.txt", report)
    for finding in findings.files:
        _copy_aside(files, finding.path, aside)
    for log in findings.damaged_logs:
        _repair_log(files, log, aside)
    for finding in findings.files:
        if finding.content is not None:
            replace_file(files, finding.path, finding.content())
        else:
            files.delete(finding.path)
    for path in (ENDS_FILE, LOG_STARTS, RECOVERY_POINTS, CLEAN_FILE):
        _copy_aside(files, path, aside)
    _write_states(files, findings)
    files.delete(CLEAN_FILE)
    files.sync_directory()


def _repair_log(files: Files, log: LogFinding, aside: str) -> None:
    path = log.path
    is_new = not files.exists(path)
    files.mkdir(path)
    for base, pieces in log.rewritten.items():
        for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
            _copy_aside(files, join(path, named(base, suffix)), aside)
        replace_file(files, join(path, named(base, LOG)), b"".join(pieces))
        for suffix in (INDEX, TIME_INDEX):
            files.delete(join(path, named(base, suffix)))
    for name in files.names(path):  # they are derived from the batches, which have changed
        if name.endswith((SNAPSHOT, TXN_INDEX)) or name == "leader-epoch-checkpoint":
            _copy_aside(files, join(path, name), aside)
            files.delete(join(path, name))
    metadata = join(path, PARTITION_FILE)
    if files.exists(metadata):
        _copy_aside(files, metadata, aside)
    if is_new or files.exists(metadata):
        replace_file(files, metadata, encode_partition_metadata(log.topic.id))
    files.sync_directory(path)
    files.sync_directory()


def _write_states(files: Files, findings: Findings) -> None:
    """Write a checkpoint of what is there now."""
    states = {}
    for log in findings.logs:
        key = log.topic.id, log.partition
        known = findings.states.get(key)
        if not findings.knew_ends or known is None:
            compacted = known.compacted if known is not None else 0
            known = LogState(compacted=compacted, gaps_below=log.end if log.is_compacted or compacted else 0)
        end = log.end if log.is_damaged else min(log.end, known.end)
        states[key] = LogState(log.start, end, known.compacted, known.gaps_below)
    checkpoint = DirectoryCheckpoint(max(findings.number, number_followed(files)) + 1, states)
    write_checkpoint(files, checkpoint)
    ends = DurableEnds(files)
    ends.read()
    ends.follow(checkpoint)
    ends.release()


def _copy_aside(files: Files, path: str, aside: str) -> None:
    """Copy a file into `aside`, unless an interrupted repair has done so."""
    target = f"{aside}/{path}"
    if files.exists(path) and not files.exists(target):
        if parent_of(path):
            files.mkdir(parent_of(target))
        replace_file(files, target, read_file(files, path))
