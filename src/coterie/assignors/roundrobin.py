"""`roundrobin`: all partitions in order go to all members in turn; members that do not subscribe are skipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coterie.assignors.model import Assignment, Assignor, Member, Topic, by_instance_then_id, java_sorted


class RoundRobin(Assignor):
    name = "roundrobin"

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        ordered = by_instance_then_id(members)
        assignment: Assignment = {member.id: {} for member in members}
        readers: dict[str, list[int]] = {}
        for position, member in enumerate(ordered):
            for topic in dict.fromkeys(member.topics):
                if topic in topics and topics[topic].partitions:
                    readers.setdefault(topic, []).append(position)
        pointer = 0
        for topic in java_sorted(readers):
            slots, count = readers[topic], topics[topic].partitions
            first = next((slot for slot, position in enumerate(slots) if position >= pointer), 0)
            for turn in range(min(len(slots), count)):
                position = slots[(first + turn) % len(slots)]
                assignment[ordered[position].id][topic] = range(turn, count, len(slots))
            pointer = slots[(first + count - 1) % len(slots)] + 1
        return assignment
