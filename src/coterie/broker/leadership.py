"""The leader of every partition, and what a change of leaders does: `placement.py` decides, this module carries it out.

A change of leaders is one of the `changes` of the data directory. It is decided in its turn and written to the disk.
Then the old leader answers all waiting requests and resigns, and the new one starts. There is one log: none is copied.

`coterie-leaders.json` has the nodes, and the partitions that have not the default leader. A leader epoch must never
fall: clients would wait for ever for an epoch that they have seen. So a change is written before clients can see it. If
every partition has its default leader, as with one node, there is no file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from coterie.broker import placement
from coterie.broker.broker_effects import Effects, Work
from coterie.broker.broker_facts import LeadersChanged, Reporter
from coterie.broker.calls import Call
from coterie.broker.maintenance.directory_changes import Changes
from coterie.broker.placement import NO_LEADER, Partition, PartitionState, default_state
from coterie.coordinator.classic.effects import Reply
from coterie.errors import CoterieError
from coterie.protocol.messages import Token
from coterie.storage import DataDirectory, DiskChange, Files, LogError, LogWriteError, PartitionLog, StoredTopic
from coterie.storage.metadata_files import LEADERS, id_text

__all__ = ["Kept", "Leadership", "read_leaders_file", "write_leaders_file"]

Kept = tuple[Sequence[int], dict[Partition, PartitionState]]
"""The nodes that the file has, and the state of every partition."""


def write_leaders_file(
    files: Files, nodes: Sequence[int], states: Mapping[Partition, PartitionState], topics: Iterable[StoredTopic]
) -> None:
    content = {"nodes": list(nodes), "topics": _unusual(nodes, states, topics)}
    LEADERS.write(files, (json.dumps(content) + "\n").encode())


def _unusual(
    nodes: Sequence[int], states: Mapping[Partition, PartitionState], topics: Iterable[StoredTopic]
) -> dict[str, Any]:
    """Return the partitions that have not the default leader, by topic id: a new topic of that name has another one."""
    unusual = {}
    for topic in sorted(topics, key=lambda topic: topic.name):
        rows = {
            str(number): list(state)
            for number in range(topic.partitions)
            if (state := states.get((topic.name, number))) is not None
            and state != default_state((topic.name, number), nodes)
        }
        if rows:
            unusual[id_text(topic.id)] = rows
    return unusual


def read_leaders_file(files: Files, first_node: int, topics: Iterable[StoredTopic]) -> Kept:
    """Read the leaders file. A partition that it does not list has the default leader; no file means one node."""
    if not files.exists(LEADERS.path):
        return [first_node], _states([first_node], {}, topics)
    found = LEADERS.read(files)
    try:
        content = json.loads(found.payload)
        nodes = [int(node) for node in content["nodes"]]
        states = _states(nodes, content["topics"], topics)
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise LEADERS.damaged(f"is not what we write: {error!r}") from None
    LEADERS.renew(files, found)
    return nodes, states


def _states(
    nodes: Sequence[int], unusual: Mapping[str, Mapping[str, Sequence[int]]], topics: Iterable[StoredTopic]
) -> dict[Partition, PartitionState]:
    states = {}
    for topic in topics:
        rows = unusual.get(id_text(topic.id), {})
        for number in range(topic.partitions):
            row = rows.get(str(number))
            key = topic.name, number
            states[key] = default_state(key, nodes) if row is None else PartitionState(*map(int, row))
    return states


Plan = Callable[[], tuple[frozenset[int], Mapping[Partition, PartitionState]]]
"""Returns the nodes that are up then, and every state that changes; raises if it is not possible."""
Moved = Callable[[Partition, PartitionLog, int, int, int], Effects]
"""Called for each partition whose leader has changed, with its log, the old leader, the new one, and the time."""
Done = Callable[[CoterieError | None, int], Effects]
"""Called once, with the time: None when the change is done, or why it is not."""


class Leadership:
    def __init__(
        self,
        files: Files,
        directory: DataDirectory,
        changes: Changes,
        reporter: Reporter,
        nodes: Sequence[int],
        moved: Moved,
        *,
        rebalances: bool = True,
    ) -> None:
        """Every node is up, so every partition is led by its preferred leader; if that is new, it is saved.

        `rebalances`: a node that starts again leads its partitions at once; else an election gives them back.
        """
        self._files = files
        self._directory = directory
        self._changes = changes
        self._reporter = reporter
        self._moved = moved
        self._rebalances = rebalances
        self.nodes = tuple(nodes)
        self.up = frozenset(self.nodes)
        self.led: dict[int, dict[Partition, PartitionLog]] = {number: {} for number in nodes}
        """The partitions that each node leads."""
        topics = directory.topics.values()
        nodes_before, before = read_leaders_file(files, self.nodes[0], topics)
        self.partition_states = placement.redistribute(self._not_behind(before), nodes_before, self.nodes)
        if self.partition_states != before or tuple(nodes_before) != self.nodes:
            write_leaders_file(files, self.nodes, self.partition_states, topics)
        for key, state in self.partition_states.items():
            log = directory.logs[key]
            log.lead(state.leader_epoch)()
            self.led[state.leader][key] = log

    def _not_behind(self, states: Mapping[Partition, PartitionState]) -> dict[Partition, PartitionState]:
        """Raise epochs that are lower than the log's: then the file is an old copy, and epochs must not fall."""
        logs = self._directory.logs
        return {
            key: state._replace(leader_epoch=max(state.leader_epoch, logs[key].leader_epoch))
            for key, state in states.items()
        }

    def leader_of(self, key: Partition) -> int:
        state = self.partition_states.get(key)
        return NO_LEADER if state is None else state.leader

    # --- partitions come and go ---------------------------------------------------------------------------------------

    def new_states(
        self, topic: str, numbers: range, preferred_leaders: Mapping[int, int]
    ) -> dict[Partition, PartitionState]:
        return placement.new_states(topic, numbers, preferred_leaders, self.nodes, self.up)

    def keeping(
        self, topics: Iterable[StoredTopic], new: Mapping[Partition, PartitionState]
    ) -> DiskChange[None] | None:
        """Return the change that saves the leaders of new partitions; None if all are the default ones."""
        if all(state == placement.default_state(key, self.nodes) for key, state in new.items()):
            return None
        return self._keeping(new, {**self._directory.topics, **{one.name: one for one in topics}}.values())

    def _keeping(self, new: Mapping[Partition, PartitionState], topics: Iterable[StoredTopic]) -> DiskChange[None]:
        states, known = {**self.partition_states, **new}, list(topics)

        def work() -> None:
            try:
                write_leaders_file(self._files, self.nodes, states, known)
            except OSError as error:
                raise LogWriteError.of("cannot keep who leads what", error) from error

        return DiskChange(work, lambda _: None)

    def created(self, new: Mapping[Partition, PartitionState]) -> None:
        """Add partitions whose logs have been created."""
        for key, state in new.items():
            self.partition_states[key] = state
            if state.leader != NO_LEADER:
                self.led[state.leader][key] = self._directory.logs[key]

    def deleted(self, topic: StoredTopic) -> None:
        for number in range(topic.partitions):
            state = self.partition_states.pop((topic.name, number))
            if state.leader != NO_LEADER:
                del self.led[state.leader][topic.name, number]

    # --- leaders change -----------------------------------------------------------------------------------------------

    def stop(self, node_id: int, token: Token) -> Effects:
        def plan() -> tuple[frozenset[int], Mapping[Partition, PartitionState]]:
            self._check(node_id, up=True)
            up = self.up - {node_id}
            return up, placement.changed_leaders(self.partition_states, self.nodes, up)

        return self.change(None, plan, f"node {node_id} stops", _replies_to(token))

    def start(self, node_id: int, token: Token) -> Effects:
        def plan() -> tuple[frozenset[int], Mapping[Partition, PartitionState]]:
            self._check(node_id, up=False)
            up = self.up | {node_id}
            return up, placement.changed_leaders(self.partition_states, self.nodes, up, to_preferred=self._rebalances)

        return self.change(None, plan, f"node {node_id} starts", _replies_to(token))

    def move(self, key: Partition, node_id: int, token: Token) -> Effects:
        def plan() -> tuple[frozenset[int], Mapping[Partition, PartitionState]]:
            self._check(node_id, up=True)
            state = self.partition_states.get(key)
            if state is None:
                raise CoterieError(f"topic {key[0]!r} has no partition {key[1]}, so it cannot be moved")
            return self.up, placement.moved_to(key, state, node_id)

        return self.change(None, plan, f"{key[0]}-{key[1]} is moved to node {node_id}", _replies_to(token))

    def _check(self, node_id: int, *, up: bool) -> None:
        if node_id not in self.nodes:
            raise CoterieError(f"no node {node_id!r}; the nodes are {', '.join(map(str, self.nodes))}")
        if (node_id in self.up) is not up:
            raise CoterieError(f"node {node_id} is {'stopped: start it first' if up else 'running already'}")

    def change(self, call: Call | None, plan: Plan, why: str, done: Done) -> Effects:
        """Queue a change of leaders. `call` is the request it is for, if there is one."""

        def judge(now_ms: int) -> Effects:
            try:
                up, changed = plan()
            except CoterieError as error:
                return done(error, now_ms)
            if changed:
                keeping = self._keeping(changed, self._directory.topics.values())
                return [Work(keeping, partial(self._kept, up, changed, why, done))]
            if call is not None:  # a request that changes nothing is no event of the cluster
                return done(None, now_ms)
            return self._kept(up, changed, why, done, None, now_ms)

        self._changes.ask(call, judge)
        return []

    def _kept(
        self,
        up: frozenset[int],
        changed: Mapping[Partition, PartitionState],
        why: str,
        done: Done,
        outcome: LogError | None,
        now_ms: int,
    ) -> Effects:
        if outcome is not None:
            return done(outcome, now_ms)
        self.up = up
        effects: Effects = [self._reporter.fact(LeadersChanged(now_ms, "", why, len(changed), sorted(up)))]
        try:
            moved, save = self._carry_out(changed, now_ms)
        except Exception:  # noqa: BLE001
            error = CoterieError(f"{why}: a mistake of the broker's own, which its log has")
            return [*effects, self._reporter.mistake("a change of leaders", now_ms), *done(error, now_ms)]
        effects += [*moved, *done(None, now_ms)]
        return [*effects, Work(save, self._saved)] if changed else effects

    def _carry_out(self, changed: Mapping[Partition, PartitionState], now_ms: int) -> tuple[Effects, DiskChange[None]]:
        """Apply all changes before any request is answered, so that every node answers the same."""
        moved: list[tuple[Partition, PartitionLog, int, int]] = []
        saves = []
        for key, state in changed.items():
            log, was = self._directory.logs[key], self.partition_states[key].leader
            self.partition_states[key] = state
            saves.append(log.lead(state.leader_epoch))
            if was != state.leader:
                moved.append((key, log, was, state.leader))
                if was != NO_LEADER:
                    del self.led[was][key]
                if state.leader != NO_LEADER:
                    self.led[state.leader][key] = log
        effects = [effect for each in moved for effect in self._moved(*each, now_ms)]
        return effects, DiskChange(partial(_save, saves), lambda _: None)

    def _saved(self, outcome: LogError | None, now_ms: int) -> Effects:
        """Report a failed write of leader epochs. Every batch has its epoch, and the next write has them all."""
        return [] if outcome is None else [self._reporter.trouble(str(outcome), now_ms)]


def _replies_to(token: Token) -> Done:
    return lambda error, _now_ms: [Reply(token, error)]


def _save(saves: list[Callable[[], None]]) -> None:
    try:
        for save in saves:
            save()
    except OSError as error:
        raise LogWriteError.of("cannot keep leaders' epochs", error) from error
