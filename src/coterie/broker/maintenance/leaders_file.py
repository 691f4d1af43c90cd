"""`coterie-leaders.json`: who leads what, kept where it is not what one would expect; and the nodes there were.

A leader's epoch must never fall, or clients wait for ever for one that they have seen: so what changes is written
before anybody hears of it. Where every partition is where it was created, as with one node always, there is no file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coterie.broker.placement import Partition, Place, default_place
from coterie.storage import Files, Topic
from coterie.storage.checkpoints import id_text
from coterie.storage.own_files import LEADERS

__all__ = ["Kept", "read_places", "write_places"]

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
