"""Who leads what now, and what is done when that changes: `placement.py` decides, this carries it out.

A change of leaders is one of the cluster's `changes`: judged in its turn; kept on the disk before anybody hears of it;
then the old leader answers whoever waits and forgets, and the new one begins. Nothing is copied: there is one log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from coterie.broker import placement
from coterie.broker.broker_facts import LeadersChanged
from coterie.broker.maintenance.directory_changes import Step
from coterie.broker.placement import NOBODY, Partition, Place
from coterie.errors import CoterieError
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.storage import Change, LogError, LogWriteError, PartitionLog, Topic

if TYPE_CHECKING:
    from coterie.broker.cluster import Cluster
import json
from collections.abc import Sequence
from typing import Any

from coterie.broker.placement import default_place
from coterie.storage import Files
from coterie.storage.checkpoints import id_text
from coterie.storage.own_files import LEADERS

__all__ = ["Done", "Kept", "Leadership", "read_places", "write_places"]


# `coterie-leaders.json`: who leads what, kept where it is not what one would expect; and the nodes there were.
#
# A leader's epoch must never fall, or clients wait for ever for one that they have seen: so what changes is written
# before anybody hears of it. Where every partition is where it was created, as with one node always, there is no file.

Kept = tuple[Sequence[int], dict[Partition, Place]]
"""The nodes there were, and every partition's place among them."""


def write_places(
    files: Files, nodes: Sequence[int], places: Mapping[Partition, Place], topics: Iterable[Topic]
) -> None:
    content = {"nodes": list(nodes), "topics": _unusual(nodes, places, topics)}
    LEADERS.write(files, (json.dumps(content) + "\n").encode())


def _unusual(nodes: Sequence[int], places: Mapping[Partition, Place], topics: Iterable[Topic]) -> dict[str, Any]:
    """By id, since a topic that is created again is another one."""
    unusual = {}
    for topic in sorted(topics, key=lambda topic: topic.name):
        rows = {
            str(number): list(place)
            for number in range(topic.partitions)
            if (place := places.get((topic.name, number))) is not None
            and place != default_place((topic.name, number), nodes)
        }
        if rows:
            unusual[id_text(topic.id)] = rows
    return unusual


def read_places(files: Files, first_node: int, topics: Iterable[Topic]) -> Kept:
    """Of partitions that the file does not speak of it is known by rule; without a file there was one node."""
    if not files.exists(LEADERS.path):
        return [first_node], _places([first_node], {}, topics)
    found = LEADERS.read(files)
    try:
        content = json.loads(found.payload)
        nodes = [int(node) for node in content["nodes"]]
        places = _places(nodes, content["topics"], topics)
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise LEADERS.damaged(f"is not what we write: {error!r}") from None
    LEADERS.renew(files, found)
    return nodes, places


def _places(
    nodes: Sequence[int], unusual: Mapping[str, Mapping[str, Sequence[int]]], topics: Iterable[Topic]
) -> dict[Partition, Place]:
    places = {}
    for topic in topics:
        rows = unusual.get(id_text(topic.id), {})
        for number in range(topic.partitions):
            row = rows.get(str(number))
            key = topic.name, number
            places[key] = default_place(key, nodes) if row is None else Place(*map(int, row))
    return places


Done = Callable[[CoterieError | None], None]
"""Told once, when leaders have changed, or why they have not."""
Plan = Callable[[], tuple[frozenset[int], Mapping[Partition, Place]]]
"""Which nodes are up then, and every place that changes; raises if it cannot be."""


class Leadership:
    def __init__(self, cluster: Cluster) -> None:
        """Every node is up, so every partition is led at home; if that is news, it is kept."""
        self._cluster = cluster
        self.nodes = tuple(cluster.nodes)
        self.up = frozenset(self.nodes)
        topics = cluster.directory.topics.values()
        nodes_before, before = read_places(cluster.files, self.nodes[0], topics)
        self.places = placement.resettled(self._not_behind(before), nodes_before, self.nodes)
        if self.places != before or tuple(nodes_before) != self.nodes:
            write_places(cluster.files, self.nodes, self.places, topics)
        for key, place in self.places.items():
            log = cluster.directory.logs[key]
            log.lead(place.epoch)()
            cluster.nodes[place.leader].led[key] = log

    def _not_behind(self, places: Mapping[Partition, Place]) -> dict[Partition, Place]:
        """No epoch is lower than the log's: a file that says so is an old copy, and epochs must not fall."""
        logs = self._cluster.directory.logs
        return {key: place._replace(epoch=max(place.epoch, logs[key].leader_epoch)) for key, place in places.items()}

    @property
    def controller(self) -> int:
        """Whom clients are told to go to with what concerns all; whoever is asked can do it."""
        return min(self.up, default=NOBODY)

    def leader_of(self, key: Partition) -> int:
        place = self.places.get(key)
        return NOBODY if place is None else place.leader

    # --- partitions come and go ---------------------------------------------------------------------------------------

    def new_places(self, topic: str, numbers: range, homes: Mapping[int, int]) -> dict[Partition, Place]:
        return placement.new_places(topic, numbers, homes, self.nodes, self.up)

    def keeping(self, topics: Iterable[Topic], new: Mapping[Partition, Place]) -> Change[None] | None:
        """To be done before these are created; None if they are where one would look for them."""
        if all(place == placement.default_place(key, self.nodes) for key, place in new.items()):
            return None
        return self._keeping(new, {**self._cluster.directory.topics, **{one.name: one for one in topics}}.values())

    def _keeping(self, new: Mapping[Partition, Place], topics: Iterable[Topic]) -> Change[None]:
        places, known = {**self.places, **new}, list(topics)

        def work() -> None:
            try:
                write_places(self._cluster.files, self.nodes, places, known)
            except OSError as error:
                raise LogWriteError.of("cannot keep who leads what", error) from error

        return Change(work, lambda _: None)

    def created(self, new: Mapping[Partition, Place]) -> None:
        """Their logs are there."""
        for key, place in new.items():
            self.places[key] = place
            if place.leader != NOBODY:
                self._cluster.nodes[place.leader].led[key] = self._cluster.directory.logs[key]

    def deleted(self, topic: Topic) -> None:
        for number in range(topic.partitions):
            place = self.places.pop((topic.name, number))
            if place.leader != NOBODY:
                del self._cluster.nodes[place.leader].led[topic.name, number]

    # --- leaders change -----------------------------------------------------------------------------------------------

    def stop(self, node_id: int, done: Done) -> None:
        def plan() -> tuple[frozenset[int], Mapping[Partition, Place]]:
            self._check(node_id, up=True)
            up = self.up - {node_id}
            return up, placement.settled(self.places, self.nodes, up)

        self._ask(plan, f"node {node_id} stops", done)

    def start(self, node_id: int, done: Done) -> None:
        def plan() -> tuple[frozenset[int], Mapping[Partition, Place]]:
            self._check(node_id, up=False)
            up = self.up | {node_id}
            return up, placement.settled(self.places, self.nodes, up)

        self._ask(plan, f"node {node_id} starts", done)

    def move(self, key: Partition, node_id: int, done: Done) -> None:
        def plan() -> tuple[frozenset[int], Mapping[Partition, Place]]:
            self._check(node_id, up=True)
            place = self.places.get(key)
            if place is None:
                raise CoterieError(f"topic {key[0]!r} has no partition {key[1]}, so it cannot be moved")
            return self.up, placement.moved(key, place, node_id)

        self._ask(plan, f"{key[0]}-{key[1]} is moved to node {node_id}", done)

    def _check(self, node_id: int, *, up: bool) -> None:
        if node_id not in self.nodes:
            raise CoterieError(f"no node {node_id!r}; the nodes are {', '.join(map(str, self.nodes))}")
        if (node_id in self.up) is not up:
            raise CoterieError(f"node {node_id} is {'stopped: start it first' if up else 'running already'}")

    def _ask(self, plan: Plan, why: str, done: Done) -> None:
        def judge(now_ms: int) -> Step | None:
            try:
                up, changed = plan()
            except CoterieError as error:
                done(error)
                return None
            if changed:
                change = self._keeping(changed, self._cluster.directory.topics.values())
                return Step(change, partial(self._kept, up, changed, why, done))
            return self._kept(up, changed, why, done, None, now_ms)

        self._cluster.changes.ask(None, judge)

    def _kept(
        self,
        up: frozenset[int],
        changed: Mapping[Partition, Place],
        why: str,
        done: Done,
        outcome: LogError | None,
        now_ms: int,
    ) -> Step | None:
        if outcome is not None:
            done(outcome)
            return None
        self.up = up
        self._cluster.tell(LeadersChanged(now_ms, "", why, len(changed), sorted(up)))
        try:
            save = self._carry_out(changed, now_ms)
        except BaseException:
            done(CoterieError(f"{why}: a mistake of the broker's own, which its log tells of"))
            raise
        done(None)
        return Step(save, self._saved) if changed else None

    def _carry_out(self, changed: Mapping[Partition, Place], now_ms: int) -> Change[None]:
        """All of it before anybody is answered: who asks again at once is told the same by every node."""
        nodes, logs = self._cluster.nodes, self._cluster.directory.logs
        moved: list[tuple[Partition, PartitionLog, int, int]] = []
        saves = []
        for key, place in changed.items():
            log, was = logs[key], self.places[key].leader
            self.places[key] = place
            saves.append(log.lead(place.epoch))
            if was != place.leader:
                moved.append((key, log, was, place.leader))
                if was != NOBODY:
                    del nodes[was].led[key]
                if place.leader != NOBODY:
                    nodes[place.leader].led[key] = log
        for (topic, number), log, was, leader in moved:
            if topic == OFFSETS_TOPIC:
                if was != NOBODY:
                    nodes[was].follow(nodes[was].coordinator.lose(number, now_ms), now_ms)
                if leader != NOBODY:
                    nodes[leader].group_loads.gain(number, log)
            self._cluster.fetches.look_again(log)
        return Change(partial(_save, saves), lambda _: None)

    def _saved(self, outcome: LogError | None, now_ms: int) -> None:
        """If they are not, every batch still says its epoch, and the file is written with the next one."""
        if outcome is not None:
            self._cluster.tell_trouble(str(outcome), now_ms)


def _save(saves: list[Callable[[], None]]) -> None:
    try:
        for save in saves:
            save()
    except OSError as error:
        raise LogWriteError.of("cannot keep leaders' epochs", error) from error
