"""Client instances and what they are asked for (KIP-714), by the rules of Kafka 4.3.1's ClientMetricsManager.

A client instance is known by its id, which the broker makes up at its first request. It has a subscription id, which
changes with the subscriptions that it matches, and may push once in each push interval. An instance is forgotten when
its connection closes, when it is silent for long, and when there are too many.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from coterie.broker.calls import Connection
from coterie.broker.client_metrics import (
    CLIENT_ATTRIBUTES,
    MetricsSubscribed,
    MetricsSubscription,
    subscribed,
    subscription_of,
)
from coterie.broker.maintenance.stored_configs import ClientMetricsConfigs
from coterie.coordinator.runtime import Timers
from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.apis import get_telemetry_subscriptions, push_telemetry
from coterie.protocol.batch import Compression
from coterie.protocol.checksums import crc32c
from coterie.storage.metadata_files import id_text
from coterie.structs import DataStruct

__all__ = ["ClientMetricsInstance", "ClientMetricsManager", "InstanceExpired"]

MOST_INSTANCES = 16_384
"""The number of instances that are kept. If there are more, the least recently seen one is forgotten."""
LONGEST_ATTRIBUTE = 512
"""The characters of an attribute that are kept: a client can name thousands of instances, and long names of itself."""
LEAST_SILENCE_MS = 60_000
"""The time after which a silent instance is forgotten, unless three push intervals are longer."""
ACCEPTED_COMPRESSIONS = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
RESERVED_IDS = (None, UUID(int=1))
"""Ids that no instance has; None is the zero id."""
MAY_ASK_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""After these errors a client asks for its subscription again at once."""
_NEVER = -(1 << 62)


class InstanceExpired(DataStruct, frozen=True):
    """The timer of an instance that was silent for too long."""

    manager: ClientMetricsManager
    client_instance_id: UUID


@dataclass(slots=True)
class ClientMetricsInstance:
    client_instance_id: UUID
    attributes: Mapping[str, str | None]
    """The attributes of the client, as they were at its first request; subscriptions match them."""
    subscribed: MetricsSubscribed
    subscription_id: int
    version: int
    """The version of the subscriptions that `subscribed` was made from."""
    got_ms: int = _NEVER
    pushed_ms: int = _NEVER
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    def may_get(self, now_ms: int) -> bool:
        """Note a request for the subscription; False if it comes before the push interval is over."""
        if now_ms - max(self.got_ms, self.pushed_ms) < self.subscribed.interval_ms:
            return False
        self.got_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Note a push; False if it comes too early. The first one after a request for the subscription never does."""
        if self.got_ms <= self.pushed_ms and now_ms - self.pushed_ms < self.subscribed.interval_ms:
            return False
        self.pushed_ms = now_ms
        return True


def subscription_id_of(wanted: MetricsSubscribed, client_instance_id: UUID) -> int:
    """Return the CRC of what is asked for, mixed with the hash of the instance id, as Kafka computes it."""
    crc = crc32c(f"[{', '.join(wanted.metrics)}]{wanted.interval_ms}".encode())
    mixed = client_instance_id.int >> 64 ^ client_instance_id.int
    value = crc ^ (mixed >> 32 ^ mixed) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


class ClientMetricsManager:
    """The client instances of one node."""

    def __init__(
        self, configs: ClientMetricsConfigs, max_bytes: int, fresh_id: Callable[[], UUID], timers: Timers[object]
    ) -> None:
        self._configs = configs
        self.max_bytes = max_bytes
        self._fresh_id = fresh_id
        self._timers = timers
        self.instances: OrderedDict[UUID, ClientMetricsInstance] = OrderedDict()
        """The instances, the least recently seen one first."""
        self._subscriptions: tuple[int, list[MetricsSubscription]] = -1, []
        """The version of the configs, and the subscriptions that they are."""

    def get(
        self, request: get_telemetry_subscriptions.Request, connection: Connection, client_id: str, now_ms: int
    ) -> get_telemetry_subscriptions.Response:
        """Answer which metrics a client shall push."""
        client_instance_id = request.client_instance_id or self._new_id()
        instance = self._instance(client_instance_id, connection, client_id, now_ms)
        if not instance.may_get(now_ms) and instance.last_error not in MAY_ASK_AGAIN:
            return get_telemetry_subscriptions.Response(error=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return get_telemetry_subscriptions.Response(
            client_instance_id=client_instance_id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=[int(each) for each in ACCEPTED_COMPRESSIONS],
            push_interval_ms=instance.subscribed.interval_ms,
            telemetry_max_bytes=self.max_bytes,
            delta_temporality=True,
            requested_metrics=instance.subscribed.metrics,
        )

    def push(
        self,
        request: push_telemetry.Request,
        connection: Connection,
        client_id: str,
        now_ms: int,
        receive: Callable[[UUID, push_telemetry.Request], None],
    ) -> ErrorCode:
        """Judge a push. `receive` gets the metrics of one that is accepted, and raises `MalformedError`."""
        client_instance_id = request.client_instance_id
        if client_instance_id is None or client_instance_id in RESERVED_IDS:
            return ErrorCode.INVALID_REQUEST
        instance = self._instance(client_instance_id, connection, client_id, now_ms)
        error = self._refuse(request, instance, now_ms)
        instance.is_terminating = request.terminating
        if error is ErrorCode.NONE and len(request.metrics) > 0:
            try:
                receive(client_instance_id, request)
            except MalformedError:
                error = ErrorCode.INVALID_RECORD
        instance.last_error = error
        return error

    def _refuse(self, request: push_telemetry.Request, instance: ClientMetricsInstance, now_ms: int) -> ErrorCode:
        if instance.is_terminating:
            return ErrorCode.INVALID_REQUEST
        if not instance.may_push(now_ms) and not request.terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if request.subscription_id != instance.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if request.compression_type not in Compression.__members__.values():
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if len(request.metrics) > self.max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    # --- instances ----------------------------------------------------------------------------------------------------

    def _new_id(self) -> UUID:
        return next(fresh for fresh in iter(self._fresh_id, None) if fresh not in self.instances)

    def _instance(
        self, client_instance_id: UUID, connection: Connection, client_id: str, now_ms: int
    ) -> ClientMetricsInstance:
        """Return the instance. A new one, or one whose subscriptions may have changed, begins again."""
        instance = self.instances.get(client_instance_id)
        if instance is None or instance.version < self._configs.version:
            known = (
                instance.attributes if instance is not None else _attributes(client_instance_id, connection, client_id)
            )
            wanted = subscribed(self._current(), known)
            instance = self.instances[client_instance_id] = ClientMetricsInstance(
                client_instance_id,
                known,
                wanted,
                subscription_id_of(wanted, client_instance_id),
                self._configs.version,
            )
            connection.client_instance_id = client_instance_id
        self.instances.move_to_end(client_instance_id)
        silence_ms = max(LEAST_SILENCE_MS, 3 * instance.subscribed.interval_ms)
        self._timers.arm((self, client_instance_id), now_ms + silence_ms, InstanceExpired(self, client_instance_id))
        while len(self.instances) > MOST_INSTANCES:
            self._forget(next(iter(self.instances)))
        return instance

    def _current(self) -> list[MetricsSubscription]:
        version, found = self._subscriptions
        if version != self._configs.version:
            found = [subscription_of(configs) for configs in self._configs.by_name.values()]
            self._subscriptions = self._configs.version, found
        return found

    def disconnected(self, connection: Connection) -> None:
        """Forget the instance that was first seen on a connection, which has closed."""
        if connection.client_instance_id is not None:
            self._forget(connection.client_instance_id)

    def expired(self, client_instance_id: UUID) -> None:
        self.instances.pop(client_instance_id, None)

    def _forget(self, client_instance_id: UUID) -> None:
        if self.instances.pop(client_instance_id, None) is not None:
            self._timers.disarm((self, client_instance_id))


def _attributes(client_instance_id: UUID, connection: Connection, client_id: str) -> Mapping[str, str | None]:
    name, version = connection.software
    port = None if connection.port is None else str(connection.port)
    values = (id_text(client_instance_id), client_id, name, version, connection.host, port)
    kept = (None if value is None else value[:LONGEST_ATTRIBUTE] for value in values)
    return dict(zip(CLIENT_ATTRIBUTES, kept, strict=True))
