"""Where two recordings differ, and which differences are meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from conformance.acls.asking import Answers

DENIAL = re.compile("(?:TOPIC|GROUP|CLUSTER|TRANSACTIONAL_ID)_AUTHORIZATION_FAILED")
MEANT = {
    "Metadata v12, creates topics": (11, "a topic that is created is in the answer, not only in the next one"),
    "FindCoordinator v6, a share group": (4, "there are no share groups"),
    "ListOffsets v7, a partition twice": (2, "a partition that is named twice is refused twice"),
    "DescribeConfigs v4": (5, "there are no loggers"),
    "IncrementalAlterConfigs v1, validated, of a broker": (4, "a broker reads its settings when it starts"),
    "IncrementalAlterConfigs v1, validated, of a logger": (4, "there are no loggers"),
}
"""In how many cells the answers to some requests differ, all of clients with the right to ask, and why."""


@dataclass
class Difference:
    request: str
    users: list[str]
    kafka: str
    ours: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.request}: {' '.join(self.users)}\n  Kafka {self.kafka}\n  ours  {self.ours}"


def differences(kafka: Answers, ours: Answers) -> list[Difference]:
    """Return where the answers differ, all users with the same two answers in one."""
    return list(_differences(kafka, ours))


def _differences(kafka: Answers, ours: Answers) -> Iterator[Difference]:
    for request, by_user in kafka.items():
        pairs: dict[tuple[str, str], list[str]] = {}
        for user, answer in by_user.items():
            if ours[request][user] != answer:
                pairs.setdefault((answer, ours[request][user]), []).append(user)
        for (theirs, mine), users in pairs.items():
            yield Difference(request, users, theirs, mine, _reason(request, theirs, mine))


def _reason(request: str, theirs: str, mine: str) -> str | None:
    """Return why a difference is meant. It never is if Kafka denies what we do not, or says so in another way."""
    if request not in MEANT or len(DENIAL.findall(theirs)) > len(DENIAL.findall(mine)):
        return None
    return MEANT[request][1]
