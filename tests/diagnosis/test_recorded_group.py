"""A group for a forecast, from its history: measured where the history shows it, else assumed, and said so."""

from __future__ import annotations

from itertools import count

import pytest

from coterie.diagnosis.model import GroupHistory, GroupSample, PartitionLag
from coterie.diagnosis.recorded_group import recorded_group
from coterie.errors import CoterieError
from diagnosis.script import Life

MINUTE = 60_000


def life(members: str = "ab") -> Life:
    found = Life(partitions=4, session_ms=9_000, poll_ms=20_000)
    for index, name in enumerate(members):
        found.join(name, at=1_000 + index * 5_000)
    return found


def sampled(history: GroupHistory, *samples: tuple[int, int, int]) -> GroupHistory:
    """Add samples: time in seconds, committed offset and end of each partition."""
    members = tuple(history.members)
    for at_s, committed, end in samples:
        partitions = tuple(PartitionLag("t", number, committed, end) for number in range(4))
        history.samples.append(GroupSample(at_s * 1_000, "Stable", None, members, "", partitions))
        history.to_ms = at_s * 1_000
    return history


def test_members_partitions_and_the_settings_that_members_send_are_measured() -> None:
    model = recorded_group(life().history())
    assert [one.name for one in model.members] == ["a", "b"] and model.partitions == 4
    assert model.settings == {
        "partition.assignment.strategy": "range",
        "session.timeout.ms": "9000",
        "max.poll.interval.ms": "20000",
    }
    grades = {name: origin.grade for name, origin in model.origins.items()}
    assert grades["members"] == grades["partitions"] == grades["settings"] == "measured"
    assert grades["records_per_s"] == grades["ms_per_record"] == grades["restart_s"] == "assumed"


def test_the_rate_is_measured_from_two_samples_and_the_speed_from_a_group_with_lag() -> None:
    """Each partition grows by 10 records/s, and is read at 25 records/s while it has lag."""
    idle = recorded_group(sampled(life().history(), (100, 50, 50), (110, 150, 150)))
    busy = recorded_group(sampled(life().history(), (100, 0, 1_000), (110, 250, 1_100)))
    assert idle.records_per_s == busy.records_per_s == 40
    assert idle.origins["ms_per_record"].grade == "assumed", "without lag nobody knows how fast it could be"
    assert busy.ms_per_record == pytest.approx(2 * 1_000 / 100) and busy.origins["ms_per_record"].grade == "measured"


def test_a_restart_is_measured_from_members_that_came_back() -> None:
    found = life()
    for name, at in zip("ab", count(10 * MINUTE, 30_000)):
        found.leave(name, at=at)
        found.join(name, at=at + 7_000)
    model = recorded_group(found.history())
    assert model.restart_s == 7 and model.origins["restart_s"].grade == "measured"


def test_static_members_make_a_static_group() -> None:
    found = Life()
    found.join("a", at=1_000, instance="one")
    model = recorded_group(found.history())
    assert model.is_static and model.members[0].name == "one"


def test_a_group_without_members_cannot_be_forecast() -> None:
    found = life("a")
    found.leave("a", at=MINUTE)
    with pytest.raises(CoterieError, match="has no members"):
        recorded_group(found.history())
