"""A span for each rebalance, with one for each late member, for OpenTelemetry. It needs the extra `otel`.

The exporter is configured by OpenTelemetry's own variables, such as OTEL_EXPORTER_OTLP_ENDPOINT. A rebalance of which
it is not known when it began has no span.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coterie.errors import CoterieError
from coterie.extras import how_to_install
from coterie.version import __version__
from coterie.web.totals import EndedRebalance

if TYPE_CHECKING:
    from coterie.web.groups import WatchedGroup

LATE_MS = 1_000
"""A member is late if the others waited longer than that for it."""
MOST_LATE = 20
_NS = 1_000_000


class RebalanceTracer:
    def __init__(self, provider: Any = None) -> None:
        """Without `provider` spans go to the collector, in batches."""
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ModuleNotFoundError:
            raise CoterieError(f"traces need opentelemetry-sdk: {how_to_install('otel')}") from None
        if provider is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            provider = TracerProvider(resource=Resource.create({"service.name": "coterie"}))
            provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._provider = provider
        self._tracer = provider.get_tracer("coterie", __version__)

    def ended(self, group: WatchedGroup, one: EndedRebalance) -> None:
        """Make the spans of a rebalance that has ended."""
        from opentelemetry.trace import set_span_in_context
        from opentelemetry.trace.status import Status, StatusCode

        if one.began_ms is None:
            return
        measured = {
            "coterie.rebalance.moved": one.moved,
            "coterie.rebalance.unassigned_ms": one.unassigned_ms,
        }
        names = {member.member_id: member.client_id or member.member_id for member in group.timeline.members}
        span = self._tracer.start_span(
            "rebalance",
            start_time=one.began_ms * _NS,
            attributes={
                "messaging.system": "kafka",
                "messaging.consumer.group.name": one.group_id,
                "coterie.rebalance.cause": one.cause,
                "coterie.rebalance.member": names.get(one.member_id, one.member_id),
                "coterie.rebalance.generation": one.number,
                "coterie.rebalance.outcome": one.outcome,
                **{name: value for name, value in measured.items() if value is not None},
            },
        )
        if one.was_lost:
            span.set_status(Status(StatusCode.ERROR, one.outcome))
        late = sorted(((ms, who) for who, ms in one.joined_after_ms.items() if ms > LATE_MS), reverse=True)
        for after_ms, member_id in late[:MOST_LATE]:
            child = self._tracer.start_span(
                "wait for member",
                context=set_span_in_context(span),
                start_time=one.began_ms * _NS,
                attributes={
                    "messaging.client.id": names.get(member_id, member_id),
                    "coterie.member.id": member_id,
                },
            )
            child.end((one.began_ms + after_ms) * _NS)
        span.end(one.ended_ms * _NS)

    def close(self) -> None:
        """Send what is waiting."""
        self._provider.shutdown()
