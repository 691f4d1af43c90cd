"""`coterie-leaders.json`: who leads what, kept where it is not what one would expect; and the nodes there were.

A leader's epoch must never fall, or clients wait for ever for one that they have seen: so what changes is written
before anybody hears of it. Where every partition is where it was created, as with one node always, there is no file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coterie.broker.placement import Partition, Place, default_place
from coterie.errors import MalformedError
from coterie.log import Files, Topic
from coterie.log.checkpoints import id_text
from coterie.log.files import read_file, replace_file

__all__ = ["LEADERS_FILE", "Kept", "read_places", "write_places"]

LEADERS_FILE = "coterie-leaders.json"
FORMAT = 1

Kept = tuple[Sequence[int], dict[Partition, Place]]
"""The nodes there were, and every partition's place among them."""


def write_places(
    files: Files, nodes: Sequence[int], places: Mapping[Partition, Place], topics: Iterable[Topic]
) -> None:
    content = {"format": FORMAT, "nodes": list(nodes), "topics": _unusual(nodes, places, topics)}
    replace_file(files, LEADERS_FILE, (json.dumps(content) + "\n").encode())


def _unusual(nodes: Sequence[int], places: Mapping[Partition, Place], topics: Iterable[Topic]) -> dict[str, Any]:
    """By id, since a topic that is made anew is another one."""
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
    try:
        content: dict[str, Any] = {"format": FORMAT, "nodes": [first_node], "topics": {}}
        if files.exists(LEADERS_FILE):
            content = json.loads(read_file(files, LEADERS_FILE))
        if content["format"] > FORMAT:
            raise MalformedError(
                f"{LEADERS_FILE} has format {content['format']}, this version knows {FORMAT}: use the one that wrote it"
            )
        nodes = [int(node) for node in content["nodes"]]
        return nodes, _places(nodes, content["topics"], topics)
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        if isinstance(error, MalformedError):
            raise
        raise MalformedError(f"{LEADERS_FILE} is not what we write: {error!r}") from None


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
