"""The settings of each client as keyword arguments, so that an editor completes them and mypy refuses others.

Made from the table in `client_settings.py` by `make docs`; do not edit. None counts as not given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from coterie.assignors import Assignor

__all__ = ["AdminKwargs", "ClientKwargs", "ConsumerKwargs", "ProducerKwargs"]


class ClientKwargs(TypedDict, total=False):
    """The settings that all clients have."""

    bootstrap_servers: str | Sequence[str] | None
    """Where to ask first, host:port with commas between them; one that lives is enough."""
    client_id: str | None
    """What the brokers' logs and the group's members show this client as."""
    request_timeout_ms: int | None
    """How long an answer may take. Default: 30000."""
    default_api_timeout_ms: int | None
    """How long a call may take, with all its retries, that is not told otherwise. Default: 60000."""
    retry_backoff_ms: int | None
    """The pause before the first retry; it doubles each time. Default: 100."""
    retry_backoff_max_ms: int | None
    """The longest pause before a retry. Default: 1000."""
    reconnect_backoff_ms: int | None
    """The pause before a broker is connected to again; it doubles each time. Default: 50."""
    reconnect_backoff_max_ms: int | None
    """The longest pause before a new connection. Default: 1000."""
    socket_connection_setup_timeout_ms: int | None
    """How long a connection may take to come about; it doubles each time. Default: 10000."""
    socket_connection_setup_timeout_max_ms: int | None
    """The longest it may take. Default: 30000."""
    connections_max_idle_ms: int | None
    """A connection that is silent so long is closed; negative: never. Default: 540000, of an admin 300000."""
    metadata_max_age_ms: int | None
    """How long it is believed who leads what. Default: 300000."""
    metadata_recovery_strategy: str | None
    """When no known broker answers, bootstrap.servers are asked again, or not. Default: rebootstrap."""
    metadata_recovery_rebootstrap_trigger_ms: int | None
    """How long to wait before. Without effect: bootstrap.servers are asked again at once. Default: 300000."""
    security_protocol: str | None
    """How connections are protected. Default: PLAINTEXT."""
    client_dns_lookup: str | None
    """All addresses of a name are tried. Default: use_all_dns_ips."""
    send_buffer_bytes: int | None
    """The socket's send buffer; -1: as the system has it. Default: 131072."""
    receive_buffer_bytes: int | None
    """The socket's receive buffer; -1: the system's. Default: 65536, of a producer 32768."""
    enable_metrics_push: bool | None
    """Metrics go to the brokers. Without effect: metrics are not pushed to brokers; metrics() has them. Default: true,
    of an admin false."""
    metrics_num_samples: int | None
    """So many samples make an average, a maximum or a rate. Default: 2."""
    metrics_recording_level: str | None
    """How much is measured. Without effect: all of it is. Default: INFO."""
    metrics_sample_window_ms: int | None
    """How long a sample of a metric lasts. Default: 30000."""
    coterie_max_response_bytes: int | None
    """The largest answer; a broker that announces more is not believed. Default: 268435456."""


class ConsumerKwargs(ClientKwargs, total=False):
    """The settings of a consumer."""

    group_id: str | None
    """The group to be a member of."""
    group_instance_id: str | None
    """A name that outlives restarts: the member is static, and a restart moves nothing (KIP-345)."""
    group_protocol: str | None
    """Who assigns: the members themselves. Default: classic."""
    partition_assignment_strategy: str | Assignor | type[Assignor] | Sequence[str | Assignor | type[Assignor]] | None
    """The assignors this member can use, the favourite first. Default: range,cooperative-sticky."""
    session_timeout_ms: int | None
    """A member that is silent so long is out of the group. Default: 45000."""
    heartbeat_interval_ms: int | None
    """The time between two heartbeats. Default: 3000."""
    max_poll_interval_ms: int | None
    """A member that does not poll for so long leaves. Default: 300000."""
    enable_auto_commit: bool | None
    """Positions are committed in the background. Default: true."""
    auto_commit_interval_ms: int | None
    """How often they are. Default: 5000."""
    client_rack: str | None
    """Where this client stands, for assignors and for reading nearby."""
    allow_auto_create_topics: bool | None
    """Subscribing may create a topic, if the broker does. Default: true."""
    exclude_internal_topics: bool | None
    """A pattern does not match internal topics. Default: true."""
    auto_offset_reset: str | None
    """Where to begin when the group has no offset. Default: latest."""
    fetch_min_bytes: int | None
    """An answer waits until there are so many bytes, Default: 1."""
    fetch_max_wait_ms: int | None
    """but not longer than this. Default: 500."""
    fetch_max_bytes: int | None
    """The most one answer has, though never less than a batch. Default: 52428800."""
    max_partition_fetch_bytes: int | None
    """The most one partition has in an answer. Default: 1048576."""
    max_poll_records: int | None
    """The most records of one poll(). Default: 500."""
    isolation_level: str | None
    """Whether records of transactions are seen before their end, and when they were aborted. Default:
    read_uncommitted."""
    check_crcs: bool | None
    """Batches whose checksum is wrong are refused. Default: true."""


class ProducerKwargs(ClientKwargs, total=False):
    """The settings of a producer."""

    acks: str | int | None
    """Who must have a record: all in-sync replicas, the leader, nobody. Default: all."""
    enable_idempotence: bool | None
    """A record is stored once and in order, however often it has to be sent. Default: true."""
    retries: int | None
    """How often a batch is sent again. Default: 2147483647."""
    delivery_timeout_ms: int | None
    """How long it is tried. Default: 120000."""
    max_in_flight_requests_per_connection: int | None
    """Requests under way to one broker. Default: 5."""
    batch_size: int | None
    """A batch of a partition is full with so many bytes. Default: 16384."""
    linger_ms: int | None
    """How long a batch that is not full waits for more. Default: 5."""
    buffer_memory: int | None
    """Bytes that may wait to be sent; then send() waits. Default: 33554432."""
    max_block_ms: int | None
    """How long send() may wait for room or for metadata. Default: 60000."""
    max_request_size: int | None
    """The largest request, and the largest record. Default: 1048576."""
    compression_type: str | None
    """What batches are compressed with. Default: none."""
    compression_gzip_level: int | None
    """Level of gzip. Default: -1."""
    compression_lz4_level: int | None
    """Level of lz4. Without effect: our lz4 has one level, the fast one, which is Kafka's default. Default: 9."""
    compression_zstd_level: int | None
    """Level of zstd. Default: 3."""
    metadata_max_idle_ms: int | None
    """A topic that nothing was sent to for so long is forgotten. Default: 300000."""
    partitioner_ignore_keys: bool | None
    """A record with a key goes to any partition, as one without does. Default: false."""
    partitioner_adaptive_partitioning_enable: bool | None
    """Records without a key go rather to brokers with short queues (KIP-794). Default: true."""
    partitioner_availability_timeout_ms: int | None
    """After which a slow broker gets nothing. Without effect: a slow broker gets less as its queue grows, and is never
    left out. Default: 0."""


class AdminKwargs(ClientKwargs, total=False):
    """The settings of an admin."""

    retries: int | None
    """Retries of a call. Without effect: default.api.timeout.ms says how long it is tried. Default: 2147483647."""
