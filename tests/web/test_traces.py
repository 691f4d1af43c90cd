"""Spans of rebalances: one for each, one below it for each late member, with the times that are known."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from coterie.diagnosis import Grade
from coterie.facts import Fact
from coterie.ledger.derived import DerivedCause, RebalanceSeen
from coterie.web.groups import WatchedGroups
from coterie.web.traces import LATE_MS, RebalanceTracer
from web.page_groups import BEGAN_MS, bad_group


def spans_of(facts: list[Fact], grade: Grade = Grade.OBSERVED) -> list[ReadableSpan]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    groups = WatchedGroups(grade)
    tracer = RebalanceTracer(provider)
    groups.on_rebalance.append(tracer.ended)
    for fact in facts:
        groups.tell(fact)
    groups.take()
    spans = list(exporter.get_finished_spans())
    tracer.close()
    return spans


def test_each_rebalance_is_a_span_and_each_late_member_one_below_it() -> None:
    spans = spans_of(list(bad_group()))
    rebalances = [one for one in spans if one.name == "rebalance"]
    assert len(rebalances) == 59
    first = rebalances[0]
    assert first.start_time == BEGAN_MS * 1_000_000 and first.end_time == (BEGAN_MS + 2_750) * 1_000_000
    assert first.attributes is not None and first.attributes["messaging.consumer.group.name"] == "payments"
    assert first.attributes["coterie.rebalance.cause"] == "new member"
    late = [one for one in spans if one.name == "wait for member"]
    parents = {one.context.span_id: one for one in rebalances if one.context is not None}
    assert late and all(one.parent is not None and one.parent.span_id in parents for one in late)
    for one in late:
        assert one.start_time is not None and one.end_time is not None
        assert one.end_time - one.start_time > LATE_MS * 1_000_000
        assert one.attributes is not None and str(one.attributes["messaging.client.id"]).startswith("payments-")


def test_a_rebalance_of_unknown_duration_has_no_span() -> None:
    facts: list[Fact] = [
        RebalanceSeen(at_ms, "g", DerivedCause.UNKNOWN, "", None, at_ms, [], at_ms + 1, "range", "a")
        for at_ms in (1, 2)
    ]
    assert spans_of(facts, Grade.DERIVED) == []
