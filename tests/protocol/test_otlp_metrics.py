"""The reader of pushed metrics (KIP-714) reads what OpenTelemetry's own classes write, and no more than it may."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from coterie.errors import MalformedError
from coterie.protocol.otlp_metrics import MOST_FIELDS, NumberPoint, Temporality, read_metrics


def everything(_name: str) -> bool:
    return True


def pair(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def data_of(*metrics: Metric) -> bytes:
    resource = Resource(
        attributes=[pair("group_id", "g"), KeyValue(key="flag", value=AnyValue(bool_value=True))],
        dropped_attributes_count=3,
    )
    scope = ScopeMetrics(
        scope=InstrumentationScope(name="kafka", version="1"), metrics=metrics, schema_url="https://example.org"
    )
    data = MetricsData(resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope])])
    return bytes(data.SerializeToString())


def test_numbers_are_read_with_their_labels() -> None:
    point = NumberDataPoint(as_double=1.5, time_unix_nano=9, attributes=[pair("topic", "t")], flags=1)
    delta, since = (
        AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA,
        AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE,
    )
    data = data_of(
        Metric(name="a", unit="ms", description="...", gauge=Gauge(data_points=[point])),
        Metric(name="b", sum=Sum(data_points=[NumberDataPoint(as_int=-7)], aggregation_temporality=delta)),
        Metric(name="c", sum=Sum(data_points=[NumberDataPoint(as_int=8)], aggregation_temporality=since)),
        Metric(name="d", histogram=Histogram(data_points=[HistogramDataPoint(count=1, bucket_counts=[1])])),
        Metric(name="e", gauge=Gauge(data_points=[NumberDataPoint(as_double=float("nan")), NumberDataPoint()])),
    )
    assert read_metrics(data, everything) == [
        NumberPoint("a", 1.5, Temporality.GAUGE, {"group_id": "g", "topic": "t"}),
        NumberPoint("b", -7, Temporality.DELTA, {"group_id": "g"}),
        NumberPoint("c", 8, Temporality.CUMULATIVE, {"group_id": "g"}),
    ]
    assert [point.name for point in read_metrics(memoryview(data), "b".__eq__)] == ["b"]
    assert read_metrics(b"", everything) == []


def test_the_number_of_fields_is_limited() -> None:
    data = data_of(*(Metric(name="a") for _ in range(MOST_FIELDS // 2)))
    with pytest.raises(MalformedError, match="fields"):
        read_metrics(data, everything)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    whole = data_of(Metric(name="a", gauge=Gauge(data_points=[NumberDataPoint(as_int=1)])))
    for bytes_ in (data, whole[: len(data)] + data, whole[: -len(data) or None]):
        try:
            read_metrics(bytes_, everything)
        except MalformedError:
            continue
