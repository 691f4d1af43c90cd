"""A group for a forecast: read from a file, checked, and written again."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from coterie.errors import CoterieError
from coterie.forecast.group_model import GroupModel, group_file, parse_group, settings_of

FILE = """
group = "orders"
members = 3
ms_per_record = 2.5
topics.orders = {partitions = 6, records_per_s = 300}
[settings]
session.timeout.ms = 6000
"partition.assignment.strategy" = ["range", "cooperative-sticky"]
"""


def read(text: str) -> GroupModel:
    return parse_group(tomllib.loads(text), "group.toml")


def test_a_file_is_a_group_and_says_what_was_assumed() -> None:
    model = read(FILE)
    assert [one.name for one in model.members] == ["c0", "c1", "c2"] and model.partitions == 6
    assert model.settings["session.timeout.ms"] == "6000"  # with or without quotes, a name is a name
    habits = model.habits(model.members[0])
    assert habits.session_timeout_ms == 6_000 and habits.assignors[0].name == "range"
    assert habits.heartbeat_interval_ms == 3_000, "Kafka's default"
    assert model.load == pytest.approx(300 * 0.0025 / 3)
    assert model.origins["ms_per_record"].grade == "given" and model.origins["restart_s"].grade == "assumed"


def test_a_group_that_is_written_is_read_again() -> None:
    model = read(FILE)
    again = read(group_file(model))
    assert (again.members, again.topics, again.settings, again.ms_per_record) == (
        model.members,
        model.topics,
        model.settings,
        model.ms_per_record,
    )
    named = parse_group(
        {
            "members": [{"name": 'a "b"\n', "topics": ["t"]}, {"name": "c", "ms_per_record": 7}],
            "topics": {"t": {"partitions": 1}, "u": {"partitions": 2}},
        },
        "group.json",
    )
    assert read(group_file(named)).members == named.members


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"members": 0}, "at least one"),
        ({"memberz": 1}, "memberz"),
        ({"topics": {"t": {"partitions": 0}}}, "at least 1"),
        ({"topics": {}}, "needs members and topics"),
        ({"members": [{"name": "a", "topics": ["x"]}]}, "no such topic"),
        ({"settings": {"session.timeout.mss": 1}}, "session.timeout.ms"),
        ({"settings": {"group.protocol": "consumer", "session.timeout.ms": 9000}}, "group.consumer.session.timeout.ms"),
        ({"restart_s": -1}, "negative"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(change: dict[str, Any], why: str) -> None:
    with pytest.raises(CoterieError, match=why):
        parse_group({"members": 1, "topics": {"t": {"partitions": 1}}, **change}, "group.toml")


def test_the_consumer_protocol_leaves_out_what_a_consumer_would_refuse() -> None:
    model = read(FILE).with_settings({"group.protocol": "consumer", "group.consumer.session.timeout.ms": "10000"})
    assert "session.timeout.ms" not in model.settings
    assert model.detection_bound_ms == 10_000
    assert model.broker_settings()["group.consumer.min.session.timeout.ms"] == "10000"


def test_settings_on_the_command_line_have_a_name_and_a_value() -> None:
    assert settings_of(["a.b = c=d"]) == {"a.b": "c=d"}
    with pytest.raises(CoterieError, match="NAME=VALUE"):
        settings_of(["session.timeout.ms"])
