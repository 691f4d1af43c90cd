"""Progress becomes offsets of a group."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from coterie.client.types import TopicPartition
from coterie.settings import SettingsError
from coterie.spark.batch_plan import BatchPlan, Span
from coterie.spark.offset_committer import OffsetCommitter, reached
from spark.topics import Plain, Topic, until

ONE = TopicPartition("orders", 1)


def progress(name: str | None, *end_offsets: str) -> Any:
    sources = [SimpleNamespace(endOffset=each) for each in end_offsets]
    return SimpleNamespace(progress=SimpleNamespace(name=name, sources=sources))


def test_the_json_of_sparks_source_and_of_ours_is_understood_and_no_other() -> None:
    assert reached('{"orders": {"1": 23}}') == {ONE: 23}
    assert reached(json.dumps(BatchPlan("a1", 3, {ONE: Span(20, 23)}).to_json())) == {ONE: 23}
    for other in (None, "", "7", '{"logOffset": 3}', "[]", "{", "null"):
        assert reached(other) == {}


def test_options_are_those_of_the_source_and_the_older_name_of_the_group_is_known() -> None:
    base = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders", "startingOffsets": "earliest"}
    OffsetCommitter(base | {"kafka.consumer.commit.groupid": "g"})
    OffsetCommitter(base | {"groupId": "g"})
    with pytest.raises(SettingsError, match="groupId is missing"):
        OffsetCommitter(base)
    with pytest.raises(SettingsError, match=r"bootstrap\.servers is missing"):
        OffsetCommitter({"groupId": "g"})


@pytest.mark.real_time
def test_what_a_batch_reached_is_committed(topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    topic.write(100)
    committer = OffsetCommitter({"kafka.bootstrap.servers": topic.address, "groupId": "lag"}, query="mine")
    committer.onQueryProgress(progress("mine", '{"orders": {"0": 20, "1": 21}}', '{"logOffset": 3}'))
    committer.onQueryProgress(progress("other", '{"orders": {"0": 9, "1": 9}}'))
    assert topic.committed("lag") == 41
    committer.onQueryProgress(progress("mine", '{"orders": {"0": 25, "1": 25}}'))
    assert topic.committed("lag") == 50
    plain = Plain(topic, "lag", auto_commit_interval_ms=60_000)
    until(lambda: plain.owned == 4)
    with caplog.at_level(logging.WARNING, "coterie.spark"):
        committer.onQueryProgress(progress("mine", '{"orders": {"0": 26}}'))
    assert "give the query a group of its own" in caplog.text
    plain.stop()
