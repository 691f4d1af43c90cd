"""The settings of a producer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coterie.settings.client_settings import ClientSettings
from coterie.settings.config_def import Flag, Word, int32, int64, setting, with_default

PRODUCER = "The producer"
_OWN_CHOICE = "a slow broker gets less as its queue grows, and is never left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """The settings of a producer."""

    whose: ClassVar[str] = "a producer"

    receive_buffer_bytes: int = with_default(ClientSettings, "receive.buffer.bytes", 32_768)
    acks: str = setting(
        PRODUCER,
        "all",
        Word(("all", "-1", "0", "1")),
        "Which replicas must have a record before it is acknowledged: all in sync (all), the leader (1), none (0).",
    )
    enable_idempotence: bool = setting(
        PRODUCER, True, Flag(), "Whether each record is stored exactly once and in order, however often it is sent."
    )
    transactional_id: str | None = setting(
        PRODUCER,
        None,
        Word(is_empty_allowed=False),
        "The name of the producer's transactions. A new producer of that name fences the one before.",
    )
    transaction_timeout_ms: int = setting(
        PRODUCER, 60_000, int32(), "How long a transaction may be open before the broker aborts it."
    )
    retries: int = setting(PRODUCER, 2**31 - 1, int32(0), "How often a batch is sent again.")
    delivery_timeout_ms: int = setting(
        PRODUCER, 120_000, int32(0), "How long it may take to deliver a record after send(), retries included."
    )
    max_in_flight_requests_per_connection: int = setting(
        PRODUCER, 5, int32(1), "How many requests to a broker may be unanswered at a time."
    )
    batch_size: int = setting(PRODUCER, 16_384, int32(0), "The size at which a batch is full.")
    linger_ms: int = setting(PRODUCER, 5, int64(0), "How long a batch that is not full waits for more records.")
    buffer_memory: int = setting(
        PRODUCER, 33_554_432, int64(0), "The memory for records that wait to be sent. If it is used up, send() waits."
    )
    max_block_ms: int = setting(PRODUCER, 60_000, int64(0), "How long send() may wait for memory or for metadata.")
    max_request_size: int = setting(PRODUCER, 1_048_576, int32(0), "The largest request, and so the largest record.")
    compression_type: str = setting(
        PRODUCER, "none", Word(("none", "gzip", "snappy", "lz4", "zstd")), "The codec that batches are compressed with."
    )
    compression_gzip_level: int = setting(PRODUCER, -1, int32(1, 9, (-1,)), "The compression level of gzip.")
    compression_lz4_level: int = setting(
        PRODUCER,
        9,
        int32(1, 17),
        "The compression level of lz4.",
        unused="there is one level of lz4, the fast one, which is Kafka's default",
    )
    compression_zstd_level: int = setting(PRODUCER, 3, int32(-131_072, 22), "The compression level of zstd.")
    metadata_max_idle_ms: int = setting(
        PRODUCER,
        300_000,
        int64(5_000),
        "How long the metadata of a topic is kept after the last record was sent to it.",
    )
    partitioner_ignore_keys: bool = setting(
        PRODUCER, False, Flag(), "Whether the key is ignored when a partition is chosen."
    )
    partitioner_adaptive_partitioning_enable: bool = setting(
        PRODUCER, True, Flag(), "Whether brokers with short queues get more of the records that have no key (KIP-794)."
    )
    partitioner_availability_timeout_ms: int = setting(
        PRODUCER, 0, int64(0), "How long a broker may be slow before it gets no more records.", unused=_OWN_CHOICE
    )

    def contradictions(self) -> list[str]:
        problems = ClientSettings.contradictions(self)
        if "delivery.timeout.ms" in self.given and self.delivery_timeout_ms < self.delivers_within_ms:
            problems.append(
                f"delivery.timeout.ms is {self.delivery_timeout_ms}: "
                f"it is to be at least linger.ms + request.timeout.ms, which is {self.delivers_within_ms}"
            )
        if self.enable_idempotence and "enable.idempotence" in self.given:
            problems += [f"enable.idempotence is true and {why}" for why in self._not_idempotent()]
        elif self.transactional_id is not None:
            reasons = self._not_idempotent() if self.enable_idempotence else ["enable.idempotence is false"]
            problems += [f"transactional.id needs an idempotent producer, and {why}" for why in reasons]
        return problems

    def _not_idempotent(self) -> list[str]:
        why = []
        if self.acks not in {"all", "-1"}:
            why.append(f"acks is {self.acks}: it is to be all")
        if self.retries == 0:
            why.append("retries is 0: it is to be more")
        if self.max_in_flight_requests_per_connection > 5:
            why.append(
                f"max.in.flight.requests.per.connection is {self.max_in_flight_requests_per_connection}: at most 5"
            )
        return why

    @property
    def delivers_within_ms(self) -> int:
        """`delivery.timeout.ms`, raised where it would not allow a batch its first try (as in Java)."""
        return max(self.delivery_timeout_ms, self.linger_ms + self.request_timeout_ms)

    @property
    def is_idempotent(self) -> bool:
        """True unless it is turned off or, as in Java, acks, retries or max.in.flight make it impossible."""
        return self.enable_idempotence and not self._not_idempotent()

    @property
    def required_acks(self) -> int:
        return -1 if self.acks == "all" else int(self.acks)
