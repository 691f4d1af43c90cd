"""The settings of each client as keyword arguments, so that an editor completes them and mypy refuses others.

Made from the tables in `coterie.settings` by `make docs`; do not edit. None counts as not given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from coterie.assignors import Assignor
from coterie.settings.config_def import Password


class ClientKwargs(TypedDict, total=False):
    """The settings that all clients have."""

    bootstrap_servers: str | Sequence[str] | None
    """The brokers to connect to first, as host:port. One of them must be up."""
    client_id: str | None
    """The name of this client in the brokers' logs and in the member ids of a group."""
    request_timeout_ms: int | None
    """How long to wait for a response. Default: 30000."""
    default_api_timeout_ms: int | None
    """How long a call without a timeout of its own may take, retries included. Default: 60000."""
    retry_backoff_ms: int | None
    """The pause before the first retry. It doubles with each further one. Default: 100."""
    retry_backoff_max_ms: int | None
    """The longest pause before a retry. Default: 1000."""
    reconnect_backoff_ms: int | None
    """The pause before the client connects to a broker again. It doubles with each further attempt. Default: 50."""
    reconnect_backoff_max_ms: int | None
    """The longest pause before the client connects to a broker again. Default: 1000."""
    socket_connection_setup_timeout_ms: int | None
    """How long to wait for a connection. It doubles with each further attempt. Default: 10000."""
    socket_connection_setup_timeout_max_ms: int | None
    """The longest time to wait for a connection. Default: 30000."""
    connections_max_idle_ms: int | None
    """How long a connection may be idle before it is closed; a negative time is no limit. Default: 540000, of an admin
    300000."""
    metadata_max_age_ms: int | None
    """How long metadata is used before it is fetched again. Default: 300000."""
    metadata_recovery_strategy: str | None
    """What to do when no known broker answers. rebootstrap: connect to bootstrap.servers again. none: go on as before.
    Default: rebootstrap."""
    metadata_recovery_rebootstrap_trigger_ms: int | None
    """How long to wait before the client connects to bootstrap.servers again. Without effect: bootstrap.servers are
    asked again at once. Default: 300000."""
    client_dns_lookup: str | None
    """How host names are resolved: all addresses of a name are tried. Default: use_all_dns_ips."""
    send_buffer_bytes: int | None
    """The send buffer of the socket; -1 is the system's default. Default: 131072."""
    receive_buffer_bytes: int | None
    """The receive buffer of the socket; -1 is the system's default. Default: 65536, of a producer 32768."""
    enable_metrics_push: bool | None
    """Whether metrics are pushed to the brokers. Without effect: metrics are not pushed to brokers; metrics() has them.
    Default: true, of an admin false."""
    metrics_num_samples: int | None
    """How many samples an average, a maximum or a rate is made from. Default: 2."""
    metrics_recording_level: str | None
    """How much is measured. Without effect: everything is measured. Default: INFO."""
    metrics_sample_window_ms: int | None
    """How long a sample of a metric lasts. Default: 30000."""
    coterie_max_response_bytes: int | None
    """The largest response that is accepted. If a broker announces more, the connection is closed. Default:
    268435456."""
    security_protocol: str | None
    """The kind of the listener: SSL has TLS, SASL_PLAINTEXT has a login, SASL_SSL has both. Default: PLAINTEXT."""
    sasl_mechanism: str | None
    """How the client logs in. Java's default, GSSAPI (Kerberos), is not supported, so that one must be given. Default:
    GSSAPI."""
    sasl_mechanisms: str | None
    """Another name of sasl_mechanism."""
    sasl_username: str | None
    """The user of PLAIN and SCRAM."""
    sasl_plain_username: str | None
    """Another name of sasl_username."""
    sasl_password: str | Password | None
    """The password of PLAIN and SCRAM."""
    sasl_plain_password: str | Password | None
    """Another name of sasl_password."""
    sasl_jaas_config: str | Password | None
    """User and password, or client id and secret, as Java has them: a line with PlainLoginModule, ScramLoginModule or
    OAuthBearerLoginModule."""
    sasl_oauth_token_provider: object | None
    """OAUTHBEARER: what returns tokens, in the form of confluent-kafka (oauth_cb), kafka-python or aiokafka."""
    oauth_cb: object | None
    """Another name of sasl_oauth_token_provider."""
    sasl_oauthbearer_config: str | None
    """OAUTHBEARER: the argument of an oauth_cb that takes one, as in confluent-kafka."""
    sasl_oauthbearer_token_endpoint_url: str | None
    """OAUTHBEARER: where tokens are asked for with client credentials. A file: URL names a file with a token."""
    sasl_oauthbearer_client_credentials_client_id: str | None
    """OAUTHBEARER: the client id for the token endpoint."""
    sasl_oauthbearer_client_id: str | None
    """Another name of sasl_oauthbearer_client_credentials_client_id."""
    sasl_oauthbearer_client_credentials_id: str | None
    """Another name of sasl_oauthbearer_client_credentials_client_id."""
    sasl_oauthbearer_client_credentials_client_secret: str | Password | None
    """OAUTHBEARER: the client secret for the token endpoint."""
    sasl_oauthbearer_client_secret: str | Password | None
    """Another name of sasl_oauthbearer_client_credentials_client_secret."""
    sasl_oauthbearer_client_credentials_secret: str | Password | None
    """Another name of sasl_oauthbearer_client_credentials_client_secret."""
    sasl_oauthbearer_scope: str | None
    """OAUTHBEARER: the scope that is asked for at the token endpoint."""
    sasl_oauthbearer_header_urlencode: bool | None
    """OAUTHBEARER: whether id and secret are URL-encoded for the token endpoint (RFC 6749). Default: false."""
    sasl_oauthbearer_extensions: str | None
    """OAUTHBEARER: SASL extensions, for example logicalCluster=lkc-1."""
    sasl_oauthbearer_method: str | None
    """OAUTHBEARER: librdkafka's name for where tokens come from: a callback (default) or the token endpoint (oidc).
    Default: default."""
    https_ca_location: str | None
    """OAUTHBEARER: the CA certificates that the token endpoint is verified with, a PEM file."""
    sasl_login_callback_handler_class: object | None
    """OAUTHBEARER: Java's class for the token endpoint. It may stay in a file; others cannot be loaded."""
    sasl_login_retry_backoff_ms: int | None
    """The pause before a token is asked for again. It doubles with each further attempt. Default: 100."""
    sasl_login_retry_backoff_max_ms: int | None
    """How long a token endpoint that does not answer is asked again. Default: 10000."""
    ssl_ca_location: str | None
    """The CA certificates that the broker is verified with: a PEM file, or a directory as OpenSSL has it. Without any,
    the system's are used."""
    ssl_cafile: str | None
    """Another name of ssl_ca_location."""
    ssl_truststore_location: str | None
    """The same as a file of Java: PEM or PKCS12."""
    ssl_truststore_certificates: str | Password | None
    """The same as PEM text."""
    ssl_ca_pem: str | Password | None
    """Another name of ssl_truststore_certificates."""
    ssl_truststore_type: str | None
    """The type of ssl.truststore.location. The file itself tells PEM from PKCS12; JKS cannot be read. Default: JKS."""
    ssl_truststore_password: str | Password | None
    """The password of a PKCS12 file in ssl.truststore.location."""
    ssl_certificate_location: str | None
    """The client's certificate and its chain, a PEM file. It may have the key too."""
    ssl_certfile: str | None
    """Another name of ssl_certificate_location."""
    ssl_key_location: str | None
    """The client's private key, a PEM file."""
    ssl_keyfile: str | None
    """Another name of ssl_key_location."""
    ssl_keystore_location: str | None
    """The client's key and certificate in one file of Java or librdkafka: PEM or PKCS12."""
    ssl_keystore_certificate_chain: str | Password | None
    """The client's certificate and its chain as PEM text."""
    ssl_certificate_pem: str | Password | None
    """Another name of ssl_keystore_certificate_chain."""
    ssl_keystore_key: str | Password | None
    """The client's private key as PEM text."""
    ssl_key_pem: str | Password | None
    """Another name of ssl_keystore_key."""
    ssl_keystore_type: str | None
    """The type of ssl.keystore.location. The file itself tells PEM from PKCS12; JKS cannot be read. Default: JKS."""
    ssl_keystore_password: str | Password | None
    """The password of a PKCS12 file in ssl.keystore.location."""
    ssl_key_password: str | Password | None
    """The password of the private key, if it is encrypted."""
    ssl_password: str | Password | None
    """Another name of ssl_key_password."""
    ssl_endpoint_identification_algorithm: str | None
    """Whether the broker's certificate must be for the host name that the client connects to. Default: https."""
    ssl_check_hostname: bool | str | None
    """Another name of ssl_endpoint_identification_algorithm."""
    enable_ssl_certificate_verification: bool | None
    """Whether the broker's certificate is verified at all. Without it, any server can pose as the broker. Default:
    true."""
    ssl_enabled_protocols: str | Sequence[str] | None
    """The versions of TLS that are allowed. Default: TLSv1.2,TLSv1.3."""
    ssl_cipher_suites: str | Sequence[str] | None
    """The cipher suites that are allowed, by their names in OpenSSL. Empty: OpenSSL's choice."""
    ssl_ciphers: str | Sequence[str] | None
    """Another name of ssl_cipher_suites."""
    ssl_context: object | None
    """A context of Python's ssl, in the place of all other ssl settings."""


class ConsumerKwargs(ClientKwargs, total=False):
    """The settings of a consumer."""

    group_id: str | None
    """The consumer group that this consumer is a member of."""
    group_instance_id: str | None
    """The name of a static member. It stays the same over restarts, so that a restart causes no rebalance (KIP-345)."""
    group_protocol: str | None
    """The group protocol. classic: the members assign the partitions themselves. consumer: the broker assigns them
    (KIP-848), which needs Kafka 4.0 or newer. Default: classic."""
    group_remote_assignor: str | None
    """The broker's assignor, uniform or range, with group.protocol=consumer. Without it the broker chooses."""
    partition_assignment_strategy: str | Assignor | type[Assignor] | Sequence[str | Assignor | type[Assignor]] | None
    """The assignors that this member supports, in order of preference. Default: range,cooperative-sticky."""
    session_timeout_ms: int | None
    """How long a member may be silent before the broker removes it from the group. Default: 45000."""
    heartbeat_interval_ms: int | None
    """The time between two heartbeats. Default: 3000."""
    max_poll_interval_ms: int | None
    """The longest time between two calls of poll(). A member that takes longer leaves the group. Default: 300000."""
    enable_auto_commit: bool | None
    """Whether positions are committed in the background. Default: true."""
    auto_commit_interval_ms: int | None
    """How often positions are committed in the background. Default: 5000."""
    client_rack: str | None
    """The rack of this client, for rack-aware assignors and for fetching from the nearest replica."""
    allow_auto_create_topics: bool | None
    """Whether subscribing to a topic creates it, if the broker allows that. Default: true."""
    exclude_internal_topics: bool | None
    """Whether a subscription by pattern leaves internal topics out. Default: true."""
    auto_offset_reset: str | None
    """Where to begin if the group has no committed offset, or the offset no longer exists. Default: latest."""
    fetch_min_bytes: int | None
    """How many bytes the broker waits for before it answers a fetch. Default: 1."""
    fetch_max_wait_ms: int | None
    """How long the broker waits for fetch.min.bytes. Default: 500."""
    fetch_max_bytes: int | None
    """The largest response to a fetch. The first batch is returned even if it is larger. Default: 52428800."""
    max_partition_fetch_bytes: int | None
    """The most data of one partition in a response. The first batch is returned even if it is larger. Default:
    1048576."""
    max_poll_records: int | None
    """The most records that one poll() returns. Default: 500."""
    isolation_level: str | None
    """Which records of transactions are returned: all of them, or only those of committed transactions. Default:
    read_uncommitted."""
    check_crcs: bool | None
    """Whether the checksum of each batch is verified. Default: true."""


class ProducerKwargs(ClientKwargs, total=False):
    """The settings of a producer."""

    acks: str | int | None
    """Which replicas must have a record before it is acknowledged: all in sync (all), the leader (1), none (0).
    Default: all."""
    enable_idempotence: bool | None
    """Whether each record is stored exactly once and in order, however often it is sent. Default: true."""
    transactional_id: str | None
    """The name of the producer's transactions. A new producer of that name fences the one before."""
    transaction_timeout_ms: int | None
    """How long a transaction may be open before the broker aborts it. Default: 60000."""
    retries: int | None
    """How often a batch is sent again. Default: 2147483647."""
    delivery_timeout_ms: int | None
    """How long it may take to deliver a record after send(), retries included. Default: 120000."""
    max_in_flight_requests_per_connection: int | None
    """How many requests to a broker may be unanswered at a time. Default: 5."""
    batch_size: int | None
    """The size at which a batch is full. Default: 16384."""
    linger_ms: int | None
    """How long a batch that is not full waits for more records. Default: 5."""
    buffer_memory: int | None
    """The memory for records that wait to be sent. If it is used up, send() waits. Default: 33554432."""
    max_block_ms: int | None
    """How long send() may wait for memory or for metadata. Default: 60000."""
    max_request_size: int | None
    """The largest request, and so the largest record. Default: 1048576."""
    compression_type: str | None
    """The codec that batches are compressed with. Default: none."""
    compression_gzip_level: int | None
    """The compression level of gzip. Default: -1."""
    compression_lz4_level: int | None
    """The compression level of lz4. Without effect: there is one level of lz4, the fast one, which is Kafka's default.
    Default: 9."""
    compression_zstd_level: int | None
    """The compression level of zstd. Default: 3."""
    metadata_max_idle_ms: int | None
    """How long the metadata of a topic is kept after the last record was sent to it. Default: 300000."""
    partitioner_ignore_keys: bool | None
    """Whether the key is ignored when a partition is chosen. Default: false."""
    partitioner_adaptive_partitioning_enable: bool | None
    """Whether brokers with short queues get more of the records that have no key (KIP-794). Default: true."""
    partitioner_availability_timeout_ms: int | None
    """How long a broker may be slow before it gets no more records. Without effect: a slow broker gets less as its
    queue grows, and is never left out. Default: 0."""


class AdminKwargs(ClientKwargs, total=False):
    """The settings of an admin."""

    retries: int | None
    """How often a call is retried. Without effect: default.api.timeout.ms says how long a call is retried. Default:
    2147483647."""
