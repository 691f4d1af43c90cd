"""Watch the groups of a live cluster: read `__consumer_offsets` and sample the groups, into memory or a ledger.

It joins no group and commits nothing. On a Coterie broker it also reads the facts that the coordinator recorded. This
is a driver: it has the clients and the clock.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import inf
from types import TracebackType
from typing import Self
from uuid import UUID

from coterie.client.admin import LATEST, Admin, GroupDescription, MemberDescription
from coterie.client.consumer.consumer import Consumer
from coterie.client.types import Record, TopicPartition
from coterie.diagnosis.evidence import Grade
from coterie.diagnosis.from_facts import HistoryBuilder
from coterie.diagnosis.ledger_file import CommitRow, FactRow, LedgerFile, RecordRow
from coterie.diagnosis.merge import merge_all
from coterie.diagnosis.model import GroupHistory, GroupSample, PartitionLag
from coterie.diagnosis.records import Commits, OffsetsTopic, group_of, is_commit
from coterie.diagnosis.samples import SampledGroup, SampledMember
from coterie.errors import CoterieError, KafkaError, MalformedError
from coterie.facts import OffsetsStored
from coterie.ledger import read_fact
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.settings.client_settings import AdminSettings
from coterie.settings.consumer_settings import ConsumerSettings

CONSUMER_PROTOCOLS = ("consumer", "")
"""Protocol types; "" is a group that has had offsets committed and never a member."""
SAMPLES_IN_MEMORY = 1_000
"""How many samples of a group are kept in memory."""
POLL_RECORDS = 5_000
MAX_LAGS = 1_000_000
"""How many lags of single partitions are kept in memory, in all samples."""
STORE_LAG_MS = 60_000
"""A sample in which only offsets have changed is stored so often."""
LOOKS_EVERY = 6
"""After so many samples it looks whether facts are recorded now. For `__consumer_offsets` it looks each time."""
SETTINGS: Mapping[str, object] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "max.poll.records": POLL_RECORDS,
    "client.id": "coterie-watch",
}
"""Defaults of the consumer that reads."""


class ClusterWatch:
    """Reads a cluster in small steps: `poll` reads records, `sample` describes the groups."""

    def __init__(self, admin: AdminSettings, consumer: ConsumerSettings, ledger: LedgerFile | None = None) -> None:
        """Take the settings of both clients. With a ledger, go on where it ends and store everything in it."""
        self._ledger = ledger
        self._admin = Admin(admin)
        self._consumer: Consumer | None = None
        self._consumer_settings = consumer
        self._names: dict[UUID, str] = ledger.topics() if ledger is not None else {}
        self._topic = OffsetsTopic(self._names)
        self._commits = Commits()
        self._facts = HistoryBuilder(Grade.OBSERVED)
        self._sampled: dict[str, SampledGroup] = {}
        self._merged: dict[str, GroupHistory] = {}
        self._changed: set[str] = set()
        """The groups whose history must be merged again."""
        self._ends: dict[TopicPartition, int] = {}
        self._positions = ledger.positions() if ledger is not None else {}
        self._reads: set[str] = set()
        """The topics that are read."""
        self._sampled_times = 0
        self._stored: dict[str, tuple[object, int]] = {}
        self.cluster_id = ""
        self.records = 0
        """How many records were read."""

    def open(self, within_ms: float = 10_000) -> Self:
        self._admin.connect(within_ms=within_ms)
        self.cluster_id = self._admin.describe_cluster().cluster_id or ""
        if self._ledger is not None:
            self._ledger.check_cluster(self.cluster_id)
            for group_id, topic, partition, offset, _, _ in self._ledger.commits():
                self._commits.set(group_id, (topic, partition), offset)
        self._learn_topics()
        self._assign()
        return self

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._admin.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _assign(self) -> None:
        """Begin to read the topics that are there: where reading ended, else at the start of each partition."""
        known = self._positions
        there = {one.name for one in self._admin.list_topics(include_internal=True)}
        wanted = [name for name in (OFFSETS_TOPIC, FACTS_TOPIC) if name in there]
        if OFFSETS_TOPIC not in wanted or set(wanted) == self._reads:
            return  # no group has ever been there; it is looked for again later
        described = self._admin.describe_topics(wanted)
        partitions = [
            TopicPartition(name, part.partition)
            for name, about in described.items()
            if not isinstance(about, KafkaError)
            for part in about.partitions
        ]
        refused = next((about for about in described.values() if isinstance(about, KafkaError)), None)
        if refused is not None:
            raise CoterieError(f"{OFFSETS_TOPIC} cannot be read: {refused}. Allow Read on the topic {OFFSETS_TOPIC}")
        consumer = self._consumer or Consumer(self._consumer_settings)
        consumer.assign(partitions)
        for one in partitions:
            at = known.get((one.topic, one.partition))
            if at is None:
                consumer.seek_to_beginning(one)
            else:
                consumer.seek(one, at)
        self._consumer, self._reads = consumer, set(wanted)
        self._ends = dict(consumer.end_offsets(partitions))

    # --- records

    def poll(self, timeout: float = 1.0) -> int:
        """Read what has come. Returns the number of records."""
        if self._consumer is None:
            return 0
        polled = self._consumer.poll(timeout, max_records=POLL_RECORDS)
        rows: list[RecordRow] = []
        facts: list[FactRow] = []
        commits: dict[tuple[str, str, int], CommitRow] = {}
        positions: dict[tuple[str, int], int] = {}
        for record in polled:
            positions[record.topic, record.partition] = record.offset + 1
            if record.topic == FACTS_TOPIC:
                self._add_fact(record, facts)
                continue
            if is_commit(record.key):
                commit = self._commits.add(record.key or b"", record.value)
                if commit is not None:
                    place = commit[:3]
                    count = commits[place][-1] + 1 if place in commits else 1
                    commits[place] = (*commit, record.timestamp, count)
                continue
            at = record.partition, record.offset, record.timestamp
            group_id = group_of(record.key)
            if group_id is None:
                continue
            if self._ledger is None:
                self._topic.add(*at, record.key, record.value)
                self._changed.add(group_id)
            else:
                rows.append((*at, group_id, record.key or b"", record.value))
        self._positions |= positions
        if positions and self._ledger is not None:
            self._ledger.add_records(rows, facts, positions, commits.values())
        self.records += len(polled)
        return len(polled)

    def _add_fact(self, record: Record, rows: list[FactRow]) -> None:
        try:
            fact = read_fact(record.value or b"")
        except MalformedError:
            return
        if fact is None or isinstance(fact, OffsetsStored):
            return
        if self._ledger is None:
            self._facts.add(fact, f"{FACTS_TOPIC}-0@{record.offset}")
            self._changed.update([fact.group_id] if fact.group_id else self._merged)
        else:
            rows.append((record.offset, fact.at_ms, fact.group_id, record.value or b""))

    def catch_up(self, within_s: float) -> bool:
        """Read to the ends that the topics had at the start, for at most so long. Returns whether it got there."""
        until = time.monotonic() + within_s
        while self._consumer is not None and time.monotonic() < until:
            self.poll(0.2)
            behind = [one for one, end in self._ends.items() if end > 0 and self._consumer.position(one) < end]
            if not behind:
                return True
        return self._consumer is None

    # --- samples

    def sample(self, group_ids: Collection[str] | None = None) -> int:
        """Describe these groups, or all. Returns how many were described."""
        self._sampled_times += 1
        if not self._reads or (FACTS_TOPIC not in self._reads and self._sampled_times % LOOKS_EVERY in (0, 1)):
            self._assign()
        if group_ids is None:
            found = self._admin.list_groups()
            group_ids = [one.group_id for one in found if one.protocol_type in CONSUMER_PROTOCOLS]
        if not group_ids:
            return 0
        described = self._admin.describe_groups(group_ids)
        groups = [one for one in described.values() if isinstance(one, GroupDescription) and one.shows_members]
        at_ms = time.time_ns() // 1_000_000
        wanted = {group.group_id: self._partitions_of(group) for group in groups}
        partitions = {TopicPartition(*one) for some in wanted.values() for one in some}
        listed = self._admin.list_offsets(dict.fromkeys(partitions, LATEST)) if partitions else {}
        ends = {one: found.offset for one, found in listed.items() if not isinstance(found, KafkaError)}
        samples, members = [], []
        for group in groups:
            sample = self._sample_of(group, at_ms, wanted[group.group_id], ends)
            samples.append((group.group_id, group.type, sample))
            members += [(group.group_id, _member(one)) for one in group.members]
        self._keep(samples, members)
        if any(one.number is not None for _, _, one in samples):
            self._learn_topics()
        return len(samples)

    def _partitions_of(self, group: GroupDescription) -> dict[tuple[str, int], tuple[int | None, str]]:
        """Return committed offset and owner of each partition that a group has committed, or owns."""
        found: dict[tuple[str, int], tuple[int | None, str]] = {
            place: (offset, "") for place, offset in self._commits.of(group.group_id).items()
        }
        for member in group.members:
            for one in member.assignment:
                place = one.topic, one.partition
                found[place] = found.get(place, (None, ""))[0], member.member_id
        return found

    def _sample_of(
        self,
        group: GroupDescription,
        at_ms: int,
        partitions: Mapping[tuple[str, int], tuple[int | None, str]],
        ends: Mapping[TopicPartition, int],
    ) -> GroupSample:
        lags = tuple(
            PartitionLag(topic, number, committed, ends.get(TopicPartition(topic, number)), owner)
            for (topic, number), (committed, owner) in sorted(partitions.items())
        )
        where = f"{group.coordinator} ({group.coordinator.id})"
        who = tuple(sorted(member.member_id for member in group.members))
        return GroupSample(at_ms, group.state, group.group_epoch, who, where, lags)

    def _keep(
        self, samples: Collection[tuple[str, str, GroupSample]], members: Collection[tuple[str, SampledMember]]
    ) -> None:
        """Store samples in the ledger, if they say something new, or in memory."""
        if self._ledger is not None:
            new = [(group_id, kind, one) for group_id, kind, one in samples if self._is_new(group_id, one)]
            groups = {group_id for group_id, _, _ in new}
            self._ledger.add_samples(new, [(group_id, one) for group_id, one in members if group_id in groups])
            return
        about: dict[str, dict[str, SampledMember]] = {}
        for group_id, member in members:
            about.setdefault(group_id, {})[member.member_id] = member
        most = max(MAX_LAGS // max(sum(len(one.partitions) for _, _, one in samples), 1), 2)
        for group_id, kind, sample in samples:
            group = self._sampled.setdefault(group_id, SampledGroup(group_id, kind))
            group.history.group_type = kind
            group.add(sample, about.get(group_id, {}), min(most, SAMPLES_IN_MEMORY))
            merged = self._merged.get(group_id)
            if self._is_new(group_id, sample, inf) or merged is None:
                self._changed.add(group_id)
            else:  # nothing but offsets
                last_ms = max(merged.to_ms or 0, sample.at_ms)
                self._merged[group_id] = replace(merged, samples=list(group.history.samples), to_ms=last_ms)

    def _is_new(self, group_id: str, sample: GroupSample, after_ms: float = STORE_LAG_MS) -> bool:
        """Return whether a sample differs from the last new one in more than offsets, or that one is so old."""
        owners = hash(tuple((one.topic, one.partition, one.owner) for one in sample.partitions))
        now = sample.state, sample.number, sample.members, sample.coordinator, owners
        before, at_ms = self._stored.get(group_id, (None, 0))
        if before == now and sample.at_ms - at_ms < after_ms:
            return False
        self._stored[group_id] = now, sample.at_ms
        return True

    def _learn_topics(self) -> None:
        """Learn the names of topics: the records of consumer groups (KIP-848) have their ids."""
        names = [one.name for one in self._admin.list_topics()]
        described = self._admin.describe_topics(names) if names else {}
        found = {
            about.id: name
            for name, about in described.items()
            if not isinstance(about, KafkaError) and about.id is not None
        }
        new = {id_: name for id_, name in found.items() if self._names.get(id_) != name}
        self._names |= new
        if new and self._ledger is not None:
            self._ledger.add_topics(new)

    # --- what is known

    def histories(self) -> dict[str, GroupHistory]:
        """Return the history of each group, merged from all that was read."""
        if self._ledger is not None:
            return self._ledger.histories()
        changed, self._changed = self._changed, set()
        if changed:
            found = self.sources().values()
            self._merged |= merge_all({one: some[one] for one in changed if one in some} for some in found)
        return dict(self._merged)

    def sources(self) -> dict[str, dict[str, GroupHistory]]:
        """Return what this process has read, each source for itself."""
        sampled = {group_id: one.history for group_id, one in self._sampled.items()}
        derived, observed = self._topic.histories(), self._facts.histories()
        return {str(Grade.DERIVED): derived, str(Grade.OBSERVED): observed, str(Grade.SAMPLED): sampled}


def _member(one: MemberDescription) -> SampledMember:
    topics = tuple(sorted(one.topics)) or None
    return SampledMember(one.member_id, one.client_id, one.host, one.instance_id, topics)
