"""GetTelemetrySubscriptions and PushTelemetry (KIP-714). Every client may send them; no right is needed.

Without `coterie.client.telemetry.enable` they answer as Kafka without a plugin does: metrics are accepted and dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from coterie.broker.broker_effects import Effects
from coterie.broker.broker_facts import Reporter
from coterie.broker.calls import Call, Handler, Responses
from coterie.broker.client_metrics_manager import ClientMetricsManager
from coterie.broker.client_reports import ClientReports
from coterie.broker.maintenance.facts_topic import FactsTopic
from coterie.broker.security.auth_helper import AuthHelper
from coterie.facts import ClientReported
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.apis import get_telemetry_subscriptions, push_telemetry
from coterie.protocol.batch import Compression
from coterie.protocol.compression import decompress
from coterie.protocol.frames import client_id_of
from coterie.structs import DataStruct


class TelemetryApis(DataStruct, frozen=True, eq=False):
    responses: Responses
    auth: AuthHelper
    manager: ClientMetricsManager
    reports: ClientReports | None
    """None: the metrics are dropped."""
    has_group: Callable[[str], bool]
    reporter: Reporter
    facts_topic: FactsTopic

    def handlers(self) -> Mapping[int, Handler]:
        return {
            get_telemetry_subscriptions.API.key: self._get_telemetry_subscriptions,
            push_telemetry.API.key: self._push_telemetry,
        }

    def _get_telemetry_subscriptions(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = get_telemetry_subscriptions.read_request(frame, at, call.version)
        response = self.manager.get(request, call.connection, client_id_of(frame), now_ms)
        return self.responses.answer(call, response, now_ms)

    def _push_telemetry(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = push_telemetry.read_request(frame, at, call.version)
        client_id = client_id_of(frame)
        effects: Effects = []

        def receive(client_instance_id: UUID, push: push_telemetry.Request) -> None:
            metrics = decompress(Compression(push.compression_type), push.metrics, self.manager.max_bytes)
            if self.reports is None:
                return
            fact = self.reports.receive(client_instance_id, metrics, client_id, call.connection.host, now_ms)
            if fact is not None and self._may_report(call, fact):
                effects.append(self.reporter.fact(fact))
                self.facts_topic.add(fact, now_ms)

        error = self.manager.push(request, call.connection, client_id, now_ms, receive)
        return [*effects, *self.responses.answer(call, push_telemetry.Response(error=error), now_ms)]

    def _may_report(self, call: Call, fact: ClientReported) -> bool:
        """A client can name any group. It may speak of groups that there are, and that it may be a member of."""
        return self.has_group(fact.group_id) and self.auth.authorize(
            call, AclOperation.READ, AclResourceType.GROUP, fact.group_id, logs=False
        )
