"""Options are Spark's, by name and meaning; what cannot be is said before anything starts."""

from __future__ import annotations

import pytest

from coterie.client.types import TopicPartition
from coterie.settings import SettingsError
from coterie.spark.offsets import EARLIEST, LATEST, AtOffsets, AtTime, AtTimes, Committed, Everywhere
from coterie.spark.options import OPTIONS, SinkOptions, SourceOptions, Use

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def refusal(use: Use, **given: str) -> str:
    with pytest.raises(SettingsError) as found:
        SourceOptions.of(BASE | {name.replace("__", "."): text for name, text in given.items()}, use)
    return str(found.value)


def test_the_case_of_a_name_does_not_count() -> None:
    given = {"KAFKA.Bootstrap.Servers": "a:1", "SUBSCRIBE": "a, b", "INCLUDEheaders": "TRUE"}
    options = SourceOptions.of(given, Use.BATCH)
    assert options.topics == ("a", "b")
    assert options.include_headers
    assert options.client.bootstrap_servers == ("a:1",)


def test_a_batch_begins_with_the_earliest_a_stream_with_the_latest_a_member_where_the_group_is() -> None:
    assert SourceOptions.of(BASE, Use.BATCH).start == Everywhere(EARLIEST)
    assert SourceOptions.of(BASE, Use.STREAM).start == Everywhere(LATEST)
    assert SourceOptions.of(BASE | {"groupId": "g"}, Use.STREAM).start == Committed()


def test_of_several_beginnings_the_time_for_all_counts_then_the_times_then_the_offsets() -> None:
    """As Spark's Kafka source reads them."""
    offsets = {"startingOffsets": '{"orders": {"0": 5}}'}
    times = {"startingOffsetsByTimestamp": '{"orders": {"0": 77}}'}
    one = TopicPartition("orders", 0)
    assert SourceOptions.of(BASE | offsets, Use.STREAM).start == AtOffsets({one: 5})
    assert SourceOptions.of(BASE | offsets | times, Use.STREAM).start == AtTimes({one: 77})
    assert SourceOptions.of(BASE | offsets | times | {"startingTimestamp": "9"}, Use.STREAM).start == AtTime(9)


def test_settings_of_the_client_go_to_the_client() -> None:
    options = SourceOptions.of(BASE | {"kafka.session.timeout.ms": "9000", "groupId": "g"}, Use.STREAM)
    assert options.client.session_timeout_ms == 9000
    assert options.client.group_id == "g"
    assert options.client.partition_assignment_strategy == ("cooperative-sticky",)


def test_an_unknown_option_is_named_with_the_nearest() -> None:
    assert "startingOfsets: there is no such option; did you mean startingOffsets?" in refusal(
        Use.STREAM, startingOfsets="latest"
    )
    assert "kafka.session.timeout.mss" in refusal(Use.STREAM, kafka__session__timeout__mss="1")
    assert "did you mean session.timeout.ms?" in refusal(Use.STREAM, kafka__session__timeout__mss="1")


def test_all_problems_are_said_at_once() -> None:
    said = refusal(Use.STREAM, minPartitions="many", failOnDataLoss="perhaps", kafka__auto__offset__reset="latest")
    assert len(said.splitlines()) == 3


@pytest.mark.parametrize(
    ("use", "given", "said"),
    [
        (Use.STREAM, {"assign": '{"orders": [0]}'}, "exactly one of subscribe"),
        (Use.STREAM, {"subscribe": ""}, "none of them is given"),
        (Use.STREAM, {"startingOffsets": "committed"}, "needs groupId"),
        (Use.STREAM, {"groupId": "a", "kafka__group__id": "b"}, "leave the second out"),
        (Use.STREAM, {"transactionalSink": "/x"}, "transactionalSink needs groupId"),
        (Use.STREAM, {"subscribe": "", "assign": '{"orders": [0]}', "groupId": "g"}, "contradict each other"),
        (Use.STREAM, {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "no batch can be both"),
        (Use.STREAM, {"endingOffsets": "latest"}, "endingOffsets is for a batch, and this is a stream"),
        (Use.STREAM, {"topic": "x"}, "topic is for a sink"),
        (Use.STREAM, {"groupId": " "}, "groupId = ' '"),
        (Use.STREAM, {"subscribe": "", "subscribePattern": "("}, "a regular expression"),
        (Use.STREAM, {"maxTriggerDelay": "5 weeks"}, "as in 15m"),
        (Use.STREAM, {"startingOffsets": '{"orders": {"0": -3}}'}, "offsets begin at 0"),
        (Use.STREAM, {"startingOffsets": '{"orders": {"zero": 3}}'}, "partitions are whole numbers"),
        (Use.STREAM, {"startingOffsets": '{"orders": {"0": true}}'}, "a whole number belongs there"),
        (Use.STREAM, {"startingOffsets": '["orders"]'}, "topics must be a JSON object"),
        (Use.STREAM, {"startingOffsets": "oldest"}, "it is not JSON"),
        (Use.STREAM, {"startingOffsets": "[" * 100_000}, "nested too deeply"),
        (Use.STREAM, {"startingOffsetsByTimestamp": '{"orders": {"0": -2}}'}, "milliseconds since 1970"),
        (Use.STREAM, {"subscribe": "", "assign": '{"orders": ["0"]}'}, "a whole number belongs there"),
        (Use.STREAM, {"subscribe": "", "assign": '{"orders": 0}'}, "a list of partitions"),
        (Use.STREAM, {"kafka__bootstrap__servers": " "}, "kafka.bootstrap.servers is missing"),
        (Use.BATCH, {"startingOffsets": "latest"}, "a batch that begins at the end reads nothing"),
        (Use.BATCH, {"startingOffsets": '{"orders": {"0": -1}}'}, "a batch that begins at the end"),
        (Use.BATCH, {"endingOffsets": '{"orders": {"0": -2}}'}, "a batch that ends at the beginning"),
        (Use.BATCH, {"endingOffsets": "earliest"}, "endingOffsets = 'earliest'"),
        (Use.BATCH, {"checkpointLocation": "/x"}, "checkpointLocation is for a stream"),
    ],
)
def test_what_cannot_be_is_refused(use: Use, given: dict[str, str], said: str) -> None:
    assert said in refusal(use, **given)


def test_a_batch_may_ask_where_a_group_is_without_being_a_member() -> None:
    options = SourceOptions.of(BASE | {"startingOffsets": "committed", "kafka.group.id": "g"}, Use.BATCH)
    assert options.committed_of == "g"
    assert options.group_id is None


@pytest.mark.parametrize(("text", "ms"), [("15m", 900_000), ("90", 90), ("2 h", 7_200_000), ("5min", 300_000)])
def test_durations_are_written_as_in_spark(text: str, ms: int) -> None:
    assert SourceOptions.of(BASE | {"maxTriggerDelay": text}, Use.STREAM).max_trigger_delay == ms


def test_the_sink_leaves_what_is_sparks_own_to_spark() -> None:
    given = {"kafka.bootstrap.servers": "a:1", "topic": "t", "checkpointLocation": "/x", "kafka.linger.ms": "50"}
    options = SinkOptions.of(given)
    assert options.topic == "t"
    assert options.client.linger_ms == 50
    with pytest.raises(SettingsError, match=r"did you mean topic\?"):
        SinkOptions.of(given | {"topics": "t"})


def test_every_option_has_a_field_and_a_sentence() -> None:
    assert len({option.field_name for option in OPTIONS}) == len(OPTIONS)
    assert all(option.doc and option.uses for option in OPTIONS)
