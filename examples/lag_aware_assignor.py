"""An assignor of your own: a member with much lag gets fewer partitions.

Every member tells the leader, in its user data, how far behind it is on each partition it reads; the leader deals the
partitions with the most lag first, each to the member with the least lag so far. About thirty lines, and it runs in
Coterie's consumer, in kafka-python and in aiokafka alike:

    KafkaConsumer("orders", group_id="g", partition_assignment_strategy=[adapt(LagAware(my_lag))])

To have it found by name, `coterie assign --compare` included, declare it in your pyproject.toml:

    [project.entry-points."coterie.assignors"]
    lag-aware = "my_package.lag_aware_assignor:LagAware"
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence

from coterie.assignors import Assignment, Assignor, Member, Owned, Topic


class LagAware(Assignor):
    name = "lag-aware"

    def __init__(self, lag_of: Callable[[str, int], int] = lambda _topic, _partition: 0) -> None:
        self._lag_of = lag_of  # for instance: end offset minus position, from your consumer

    def user_data(self, topics: Collection[str], owned: Owned, generation: int) -> bytes:
        """What this member reads, and how far behind it is there."""
        return json.dumps([(t, p, self._lag_of(t, p)) for t, ids in owned.items() for p in ids]).encode()

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        lag = {(t, p): lag for member in members for t, p, lag in json.loads(member.user_data or b"[]")}
        readers = {t: sorted(member.id for member in members if t in member.topics) for t in topics}
        burden = {member.id: (0, 0) for member in members}  # lag so far, then partitions so far
        answer: dict[str, dict[str, list[int]]] = {member.id: {} for member in members}
        partitions = [(t, p) for t, topic in topics.items() if readers[t] for p in range(topic.partitions)]
        for topic, partition in sorted(partitions, key=lambda tp: (-lag.get(tp, 0), tp)):
            member_id = min(readers[topic], key=lambda one: (burden[one], one))
            behind, count = burden[member_id]
            burden[member_id] = behind + lag.get((topic, partition), 0), count + 1
            answer[member_id].setdefault(topic, []).append(partition)
        return {member_id: dict(shares) for member_id, shares in answer.items()}


def main() -> None:
    """Assign to two members: the one that gets the partition with a lag of 1000 gets no other with much lag."""
    behind = {("orders", 0): 1000, ("orders", 1): 400, ("orders", 2): 300, ("orders", 3): 200}
    lag_aware = LagAware(lambda topic, partition: behind[topic, partition])
    told = {
        "m1": lag_aware.user_data(["orders"], {"orders": [0, 1]}, 1),
        "m2": lag_aware.user_data(["orders"], {"orders": [2, 3]}, 1),
    }
    members = [Member(member_id, ["orders"], user_data=data) for member_id, data in told.items()]
    for member_id, shares in lag_aware.assign(members, {"orders": Topic(4)}).items():
        total = sum(behind[topic, partition] for topic, ids in shares.items() for partition in ids)
        print(f"{member_id}: {shares}, {total} behind")


if __name__ == "__main__":
    main()
