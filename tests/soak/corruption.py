"""The corruption matrix: every file of a data directory, damaged in every way, after a clean stop and after kill -9.

    make corruption
    PYTHONPATH=tests python tests/soak/corruption.py --flips 4 --seed 7

A broker must then serve all that was acknowledged, or refuse to start with a message that names the file, or refuse to
give what is damaged to a reader and say so. What it serves is read back and compared: records, committed offsets,
topics, configs, ids. Anything else is silent loss. What was refused is repaired then: the directory must open, and each
acknowledged record be there or in the report of what was lost.

The broker is the whole of it but for sockets (broker/driver.py), on files in memory; what kill -9 leaves is what was
written, as the system's cache outlives a process.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

from broker.driver import Client, World
from broker.speaker import list_request
from coterie.errors import CoterieError, ErrorCode
from coterie.protocol.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclResourceType,
    ResourcePattern,
)
from coterie.protocol.apis import (
    create_acls,
    create_topics,
    delete_records,
    init_producer_id,
    list_offsets,
    offset_fetch,
)
from coterie.protocol.batch import batches
from coterie.protocol.buffer import Buffer
from coterie.protocol.messages import OffsetFetch
from coterie.storage import Files, MemoryFiles
from coterie.storage.files import parent_of, read_file
from coterie.storage.repair import Findings, carry_out, inspect
from logs import values_in

__all__ = ["DAMAGES", "Acknowledged", "Case", "Outcome", "cases", "judge", "prepared", "table"]

SETTINGS: Mapping[str, Any] = {
    "log.roll.ms": 4_000,
    "coterie.offsets.roll.bytes": 1_000,
    "log.cleaner.backoff.ms": 1_000,
    "log.retention.ms": -1,
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
NODES = 2
HOUR = 3_600_000
PAGE = 4096
GROUPS = [f"group-{number}" for number in range(6)]
Partition = tuple[str, int]
Records = dict[int, bytes | None]


@dataclass(slots=True)
class Acknowledged:
    """Everything that clients were told."""

    records: dict[Partition, Records] = field(default_factory=dict)
    times: dict[Partition, dict[int, int]] = field(default_factory=dict)
    """The first offset with each timestamp."""
    offsets: dict[str, dict[Partition, int]] = field(default_factory=dict)
    topics: dict[str, tuple[UUID, int, dict[str, str]]] = field(default_factory=dict)
    producer_ids: set[int] = field(default_factory=set)
    acls: set[AclBinding] = field(default_factory=set)
    cluster_id: str = ""
    now_ms: int = 1_700_000_000_000


# --- the directories --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Directory:
    files: MemoryFiles
    older: MemoryFiles
    """The same after an earlier clean stop."""
    told: Acknowledged


def prepared() -> dict[str, Directory]:
    """One that was stopped, one whose broker was killed."""
    directories = {}
    for how in ("clean stop", "kill -9"):
        files, told = MemoryFiles(), Acknowledged()
        _live(files, told, stops=True, news="")
        older = copied(files)
        _live(files, told, stops=how == "clean stop", news="later")
        directories[how] = Directory(unlocked(files), older, told)
    return directories


def opened(files: Files, told: Acknowledged) -> World:
    return World(files, SETTINGS, now_ms=told.now_ms + 1_000, nodes=NODES)


def at(world: World, key: Partition) -> Client:
    return world.client(world.cluster.leadership.leader_of(key))


def of_group(world: World, group: str) -> Client:
    return at(world, ("__consumer_offsets", world.cluster.partition_of(group)))


def _live(files: Files, told: Acknowledged, *, stops: bool, news: str) -> None:
    world = opened(files, told)
    told.cluster_id = world.cluster.metadata.cluster_id
    client = world.client()
    client.find_coordinator("g")
    for name, partitions in (("orders", 2), ("payments", 1)) if not news else ((news, 1),):
        asked = create_topics.NewTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[create_topics.Config(name="max.message.bytes", value="1048000")],
        )
        (made,) = client.ask(create_topics, create_topics.Request(topics=[asked])).topics
        assert not made.error
    _create_acl(client, told, f"User:{news}")
    for _ in range(2):
        answer = client.ask(
            init_producer_id, init_producer_id.Request(transactional_id=None, transaction_timeout_ms=60_000)
        )
        told.producer_ids.add(answer.producer_id)
        for number in range(12):
            for key in [(topic.name, partition) for topic in world.cluster.directory.topics.values()
                        for partition in range(topic.partitions) if not topic.name.startswith("__")]:  # fmt: skip
                _produce(world, told, key, number)
            for group in GROUPS:
                _commit(world, told, group)
            world.advance(900)
    of_group(world, GROUPS[0]).enter(GROUPS[0])
    _delete_records(world, told, ("payments", 0), 7)
    world.advance(61_000)  # a checkpoint, and what there is to compact
    _produce(world, told, ("orders", 1), 99)
    world.auto = False  # commits of many groups that are flushed together go to the journal
    clients = {group: of_group(world, group) for group in GROUPS}
    for group, one in clients.items():
        one.send_commit(group, {("orders", 0): 1_000})
    while world.flushes:
        world.flush()
    for group, one in clients.items():
        assert one.committed() == [ErrorCode.NONE]
        told.offsets[group][("orders", 0)] = 1_000
    world.auto = True
    directory = world.cluster.directory
    told.topics = {name: (topic.id, topic.partitions, topic.configs) for name, topic in directory.topics.items()}
    told.now_ms = world.now_ms
    if stops:
        world.stop()


def _create_acl(client: Client, told: Acknowledged, principal: str) -> None:
    pattern = ResourcePattern(AclResourceType.TOPIC, "orders")
    entry = AccessControlEntry(principal, operation=AclOperation.READ)
    creation = create_acls.Creation(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )
    (result,) = client.ask(create_acls, create_acls.Request(creations=[creation])).results
    assert not result.error
    told.acls.add(AclBinding(pattern, entry))


def _produce(world: World, told: Acknowledged, key: Partition, number: int) -> None:
    topic, partition = key
    records = told.records.setdefault(key, {})
    values = [b"%d of %d to %s" % (one, number, topic.encode()) + bytes(200) for one in range(3)]
    answer = at(world, key).produce(topic, *values, partition=partition, timestamps=[world.now_ms] * 3)
    assert not answer.error
    records |= {answer.base_offset + slot: value for slot, value in enumerate(values)}
    told.times.setdefault(key, {}).setdefault(world.now_ms, answer.base_offset)


def _commit(world: World, told: Acknowledged, group: str) -> None:
    stored = told.offsets.setdefault(group, {})
    stored[("orders", 0)] = stored.get(("orders", 0), 0) + 1
    stored[("orders", 1)] = stored.get(("orders", 1), 0) + 2
    assert set(of_group(world, group).commit(group, stored)) == {ErrorCode.NONE}


def _delete_records(world: World, told: Acknowledged, key: Partition, before: int) -> None:
    topic = delete_records.Topic(name=key[0], partitions=[delete_records.Partition(partition=key[1], offset=before)])
    answer = at(world, key).ask(delete_records, delete_records.Request(topics=[topic]))
    assert not answer.topics[0].partitions[0].error
    told.records[key] = {offset: value for offset, value in told.records[key].items() if offset >= before}
    told.times[key] = {stamp: offset for stamp, offset in told.times[key].items() if offset >= before}


def paths(files: Files, directory: str = "") -> Iterator[str]:
    for name in files.names(directory):
        path = f"{directory}/{name}" if directory else name
        try:
            files.size(path)
            yield path
        except FileNotFoundError:
            yield from paths(files, path)


def copied(files: Files) -> MemoryFiles:
    copy = MemoryFiles()
    for path in paths(files):
        if parent_of(path):
            copy.mkdir(parent_of(path))
        file = copy.open(path, create=True)
        file.append(read_file(files, path))
    return copy


unlocked = copied


# --- damage -----------------------------------------------------------------------------------------------------------


def _write(files: Files, path: str, content: bytes | bytearray) -> None:
    file = files.open(path)
    file.truncate(0)
    file.append(content)


def _delete(files: Files, path: str, _older: Files, _rng: Random) -> bool:
    if files.exists(f"{path}/partition.metadata"):
        for name in files.names(path):
            files.delete(f"{path}/{name}")
        files.rmdir(path)
    else:
        files.delete(path)
    return True


def _truncate(files: Files, path: str, _older: Files, rng: Random) -> bool:
    content = read_file(files, path)
    if content:
        _write(files, path, content[: rng.randrange(len(content))])
    return bool(content)


def _flip(files: Files, path: str, _older: Files, rng: Random) -> bool:
    content = bytearray(read_file(files, path))
    if content:
        bit = rng.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        _write(files, path, content)
    return bool(content)


def _flip_base_offset(files: Files, path: str, _older: Files, rng: Random) -> bool:
    """Change a bit of the base offset of a batch: no checksum covers it."""
    content = bytearray(read_file(files, path))
    positions = [at for at, _ in batches(bytes(content))] if path.endswith(".log") else []
    if positions:
        bit = rng.randrange(64)
        content[rng.choice(positions) + bit // 8] ^= 1 << bit % 8
        _write(files, path, content)
    return bool(positions)


def _zero(files: Files, path: str, _older: Files, rng: Random) -> bool:
    content = bytearray(read_file(files, path))
    if not any(content):
        return False
    begin = rng.randrange(0, len(content), PAGE)
    content[begin : begin + PAGE] = bytes(len(content[begin : begin + PAGE]))
    _write(files, path, content)
    return True


def _replace(files: Files, path: str, older: Files, _rng: Random) -> bool:
    if not older.exists(path) or read_file(older, path) == read_file(files, path):
        return False
    _write(files, path, read_file(older, path))
    return True


DAMAGES: Mapping[str, Callable[[Files, str, Files, Random], bool]] = {
    "deleted": _delete,
    "truncated": _truncate,
    "one bit": _flip,
    "one bit of a base offset": _flip_base_offset,
    "zeroed page": _zero,
    "older copy": _replace,
}
"""Each returns whether there was anything to damage."""


# --- cases ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Case:
    path: str
    damage: str
    how: str
    number: int = 0
    """Of several that are damaged in another place."""

    @property
    def kind(self) -> str:
        return kind_of(self.path)

    def __str__(self) -> str:
        return f"{self.path} {self.damage} after {self.how} #{self.number}"


def kind_of(path: str) -> str:
    """What a file is."""
    where, _, name = path.rpartition("/")
    if not where:
        return name if not re.search(r"-\d+$", name) else "a partition's directory"
    of = (
        "__consumer_offsets "
        if where.startswith("__consumer")
        else "facts "
        if where.startswith("__")
        else "a topic's "
    )
    return of + re.sub(r"^\d{20}", "", name)


def cases(directories: Mapping[str, Directory], flips: int, *, all_files: bool, rng: Random) -> Iterator[Case]:
    """Every file, or of each kind one that the rng choose, and the last segment of each."""
    for how, directory in directories.items():
        found = [path for path in paths(directory.files) if not path.endswith((".lock", ".tmp"))]
        found += sorted({parent_of(path) for path in found if parent_of(path)})
        kinds: dict[str, list[str]] = {}
        for path in found:
            kinds.setdefault(kind_of(path), []).append(path)
        for several in kinds.values():
            chosen = several if all_files else sorted({rng.choice(several), several[-1]})
            for path in chosen:
                for damage in DAMAGES:
                    if directory.files.exists(f"{path}/partition.metadata") and damage != "deleted":
                        continue
                    for number in range(flips if damage.startswith("one bit") else 1):
                        yield Case(path, damage, how, number)


RIGHT, REFUSED, TOLD, SILENT = "served right", "refused by name", "told at read", "SILENT LOSS"


@dataclass(slots=True)
class Outcome:
    what: str
    why: str = ""


def judge(case: Case, directory: Directory, seed: int) -> Outcome | None:
    """None if there was nothing to damage."""
    files = copied(directory.files)
    if not DAMAGES[case.damage](files, case.path, directory.older, Random(f"{seed} {case}")):
        return None
    damaged = copied(files)
    try:
        world = opened(files, directory.told)
    except CoterieError as error:
        if not names(str(error), case.path):
            return Outcome(SILENT, f"refused without naming it: {error}")
        return _after_repair(damaged, directory.told, Outcome(REFUSED, str(error)))
    wrong, told = _compare(world, directory.told)
    if wrong:
        return Outcome(SILENT, "; ".join(wrong[:3]))
    if told:
        if not any(names(trouble, case.path) for trouble in world.troubles):
            return Outcome(SILENT, f"CORRUPT_MESSAGE, and nothing in the log: {told[0]}")
        return _after_repair(damaged, directory.told, Outcome(TOLD, told[0]))
    return Outcome(RIGHT)


def names(said: str, path: str) -> bool:
    """The file, or the partition that it is of."""
    return path in said or (bool(parent_of(path)) and parent_of(path) in said)


def _compare(
    world: World, told: Acknowledged, lost: Mapping[Partition, list[tuple[int, int]]] | None = None
) -> tuple[list[str], list[str]]:
    """What is not as it was acknowledged, and what a reader was told is damaged."""
    wrong: list[str] = []
    damaged: list[str] = []
    topics = {
        name: (topic.id, topic.partitions, topic.configs) for name, topic in world.cluster.directory.topics.items()
    }
    if lost is None and topics != told.topics:
        wrong.append(f"topics {topics}")
    if lost is None and world.cluster.metadata.cluster_id != told.cluster_id:
        wrong.append("the cluster's id")
    if set(told.records) - {(name, number) for name, (_, count, _) in topics.items() for number in range(count)}:
        return [*wrong, "a topic is gone"], damaged
    for key, records in told.records.items():
        found, error = _read(world, key)
        if error:
            damaged.append(f"{key}: {error.name}")
            continue
        gone = [
            offset
            for offset, value in records.items()
            if found.get(offset, None) != value and not any(a <= offset < b for a, b in (lost or {}).get(key, ()))
        ]
        more = [offset for offset in found if offset not in records]
        if gone or more:
            wrong.append(f"{key}: offsets {gone[:3]} are gone or another record, {more[:3]} are new")
        end = world.cluster.directory.logs[key].log_end_offset
        if end != max(records) + 1:
            wrong.append(f"{key} ends at {end}, not {max(records) + 1}")
        if lost is None:
            wrong += _wrong_times(world, key, told.times[key])
    for group, offsets in told.offsets.items():
        (answer,) = of_group(world, group).ask(offset_fetch, [OffsetFetch(None, group, None)], 8)
        stored = {(one.topic, one.partition): one.offset for one in answer.partitions}
        if lost is None and (answer.error or stored != offsets):
            wrong.append(f"{group} has {stored}, not {offsets}")
    authorizer = world.cluster.auth.authorizer
    if lost is None and (authorizer is None or set(authorizer.bindings) != told.acls):
        wrong.append("the ACLs")
    request = init_producer_id.Request(transactional_id=None, transaction_timeout_ms=60_000)
    if lost is None and world.client().ask(init_producer_id, request).producer_id in told.producer_ids:
        wrong.append("a producer's id is given out twice")
    return wrong, damaged


def _wrong_times(world: World, key: Partition, times: Mapping[int, int]) -> Iterator[str]:
    client = at(world, key)
    for stamp, offset in times.items():
        (found,) = client.ask(list_offsets, list_request(key[0], stamp, key[1])).topics[0].partitions
        if not found.error and found.offset != offset:
            yield f"{key}: {found.offset} is the first at {stamp}, not {offset}"


def _read(world: World, key: Partition) -> tuple[Records, ErrorCode]:
    topic, partition = key
    client = at(world, key)
    (first,) = client.ask(list_offsets, list_request(topic, -2, partition)).topics[0].partitions
    offset: int = first.offset
    found: Records = {}
    end = world.cluster.directory.logs[key].log_end_offset
    while offset < end:
        answer = client.fetch(topic, offset, partition=partition, max_wait_ms=0, partition_max_bytes=1_000)
        if answer.error:
            return found, answer.error
        data = answer.records or b""
        if not data:
            return found, ErrorCode.NONE
        found |= {at_offset: value for at_offset, value in values_in(data) if at_offset >= offset}
        offset = _next_offset(data)
    return found, ErrorCode.NONE


def _next_offset(data: Buffer) -> int:
    return [header.next_offset for _, header in batches(data)][-1]


def _after_repair(files: MemoryFiles, told: Acknowledged, outcome: Outcome) -> Outcome:
    """The directory opens, and what is not there is in the report."""
    try:
        found = inspect(files, cluster_id="new")
        if not found.is_damaged:
            return Outcome(SILENT, f"repair finds nothing: {outcome.why}")
        carry_out(files, found, "damaged", b"")
        world = opened(files, told)
    except CoterieError as error:
        return Outcome(SILENT, f"cannot be repaired: {error}")
    wrong, damaged = _compare(world, told, _lost(found))
    if wrong or damaged:
        return Outcome(SILENT, f"after the repair: {[*wrong, *damaged]}, {outcome.why}")
    return outcome


def _lost(found: Findings) -> dict[Partition, list[tuple[int, int]]]:
    return {(log.topic.name, log.partition): log.lost for log in found.damaged_logs}


# --- the table --------------------------------------------------------------------------------------------------------


def table(outcomes: list[tuple[Case, Outcome]]) -> str:
    columns = [RIGHT, REFUSED, TOLD, SILENT]
    kinds = sorted({case.kind for case, _ in outcomes})
    width = max(map(len, kinds)) + 2
    lines = [" " * width + "".join(f"{column:>17}" for column in columns)]
    for kind in kinds:
        counts = Counter(outcome.what for case, outcome in outcomes if case.kind == kind)
        lines.append(f"{kind:<{width}}" + "".join(f"{counts[column] or '-':>17}" for column in columns))
    for which in ("damage", "how"):
        lines.append("")
        for value in dict.fromkeys(getattr(case, which) for case, _ in outcomes):
            counts = Counter(outcome.what for case, outcome in outcomes if getattr(case, which) == value)
            lines.append(f"{value:<{width}}" + "".join(f"{counts[column] or '-':>17}" for column in columns))
    counts = Counter(outcome.what for _, outcome in outcomes)
    lines += ["", f"{'all ' + str(len(outcomes)):<{width}}" + "".join(f"{counts[one]:>17}" for one in columns)]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=4, help="bits that are flipped in each file, one at a time")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--few", action="store_true", help="one or two files of each kind")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    directories = prepared()
    outcomes = []
    for case in cases(directories, options.flips, all_files=not options.few, rng=Random(options.seed)):
        outcome = judge(case, directories[case.how], options.seed)
        if outcome is not None:
            outcomes.append((case, outcome))
            if outcome.what == SILENT:
                print(f"{case}: {outcome.why}", flush=True)
    print(table(outcomes))
    sys.exit(any(outcome.what == SILENT for _, outcome in outcomes))


if __name__ == "__main__":
    main()
