"""The table of the broker's settings: Kafka's names, types, bounds and defaults (4.3.1).

    BrokerSettings.load(properties=text, environ=os.environ, sets=["num.partitions=4"])
    BrokerSettings.of({"group.initial.rebalance.delay.ms": 0, "num_partitions": 4})

`BrokerSettings` puts the tables together: `group_coordinator_settings.py`, `transaction_settings.py`, `log_settings.py`
and `socket_server_settings.py` (connections, TLS, SASL). Its own rows are those of the node and of ACLs. Settings that
Kafka does not have begin with `coterie.`. `UNSUPPORTED` has the rows of those that only Kafka has. The configs of
topics, which take their defaults from this table, are in `topic_configs.py`. docs/settings.md is generated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

from coterie.settings.config_def import (
    Flag,
    Given,
    SettingsError,
    Unsupported,
    Word,
    Words,
    ignored,
    int32,
    setting,
    text_of,
)
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings
from coterie.settings.listeners import Endpoint, advertised_endpoints, client_endpoints
from coterie.settings.log_settings import LogSettings
from coterie.settings.socket_server_settings import SocketServerSettings
from coterie.settings.sources import from_environ, from_properties, from_sets
from coterie.settings.transaction_settings import TransactionSettings

NODE = "The node"
ACLS = "ACLs"
TELEMETRY = "Metrics of clients"

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

UNSUPPORTED = (
    ignored(
        "the process is its own controller",
        "process.roles controller.quorum.* controller.quota.* controller.performance.* "
        "controller.socket.timeout.ms metadata.* internal.metadata.* broker.heartbeat.interval.ms "
        "broker.session.timeout.ms initial.broker.registration.timeout.ms server.max.startup.time.ms "
        "unstable.api.versions.enable unstable.feature.versions.enable",
    ),
    ignored(
        "there is one copy of each log, and nothing is replicated",
        "replica.* replication.quota.* num.replica.fetchers num.replica.alter.log.dirs.threads "
        "alter.log.dirs.replication.quota.* leader.imbalance.* "
        "unclean.leader.election.interval.ms offsets.topic.replication.factor inter.broker.listener.name "
        "transaction.state.log.replication.factor transaction.state.log.min.isr "
        "broker.rack follower.fetch.last.tiered.offset.enable request.timeout.ms "
        "socket.connection.setup.timeout.*",
    ),
    ignored("transactions are ended by those who began them, not in two phases", "transaction.two.phase.commit.enable"),
    ignored(
        "groups are of the protocols classic and consumer",
        "group.share.* group.streams.* group.coordinator.* share.coordinator.* share.fetch.*",
    ),
    ignored("there is no tiered storage", "remote.* rlmm.config.* rsm.config.*"),
    ignored(
        "OpenSSL chooses it",
        "ssl.cipher.suites ssl.protocol ssl.provider ssl.secure.random.implementation ssl.keymanager.algorithm "
        "ssl.trustmanager.algorithm ssl.allow.dn.changes ssl.allow.san.changes security.providers",
    ),
    ignored(
        "the broker does not connect to others",
        "ssl.endpoint.identification.algorithm security.inter.broker.protocol sasl.mechanism.inter.broker.protocol "
        "sasl.mechanism.controller.protocol sasl.client.callback.handler.class sasl.login.* "
        "sasl.oauthbearer.assertion.* sasl.oauthbearer.client.credentials.* sasl.oauthbearer.jwt.retriever.class "
        "sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url",
    ),
    ignored(
        "there is no JVM to load a class into; principals are named as Kafka's own class names them",
        "ssl.engine.factory.class principal.builder.class sasl.oauthbearer.jwt.validator.class",
    ),
    ignored("GSSAPI is not supported", "sasl.kerberos.*"),
    ignored("scopes of tokens are not used", "sasl.oauthbearer.scope.claim.name"),
    ignored(
        "an endpoint that fails is asked again at the next refresh", "sasl.oauthbearer.jwks.endpoint.retry.backoff.*"
    ),
    ignored("there are no delegation tokens", "delegation.token.*"),
    ignored(
        "one thread answers requests, and one flushes",
        "num.network.threads num.io.threads background.threads num.recovery.threads.per.data.dir",
    ),
    ignored("there are no quotas", "quota.* client.quota.callback.class max.connection.creation.rate"),
    ignored("the cleaner is one thread, which pauses after each step", "log.cleaner.io.* log.cleaner.threads"),
    ignored(
        "coterie.flush says when a write is on the disk",
        "log.flush.offset.checkpoint.interval.ms log.flush.start.offset.checkpoint.interval.ms",
    ),
    ignored("there is one data directory", "log.dir.failure.timeout.ms cordoned.log.dirs"),
    ignored(
        "there is no JVM to load a class into",
        "alter.config.policy.class.name create.topic.policy.class.name config.providers config.providers.*",
    ),
    ignored(
        "there is no JVM to report metrics of",
        "metric.reporters metrics.* kafka.metrics.* auto.include.jmx.reporter",
    ),
    ignored(
        "Coterie does this in another way",
        "offsets.topic.compression.codec offsets.load.buffer.size transaction.state.log.load.buffer.size "
        "delete.records.purgatory.purge.interval.requests fetch.purgatory.purge.interval.requests "
        "producer.purgatory.purge.interval.requests producer.id.expiration.check.interval.ms "
        "log.initial.task.delay.ms controlled.shutdown.enable early.start.listeners "
        "max.request.partition.size.limit socket.listen.backlog.size",
    ),
    ignored(
        "Kafka 4 does not have it any more",
        "zookeeper.* broker.id.generation.enable reserved.broker.max.id control.plane.listener.name "
        "inter.broker.protocol.version log.message.format.version log.message.downconversion.enable "
        "log.message.timestamp.difference.max.ms offsets.commit.required.acks password.encoder.*",
    ),
    ignored("it is a setting of Confluent's", "confluent.*"),
)


@dataclass(frozen=True, kw_only=True)
class BrokerSettings(SocketServerSettings, LogSettings, TransactionSettings, GroupCoordinatorSettings):
    """The settings of a broker. The rows are in the order of the bases, from the last to the first."""

    whose: ClassVar[str] = "a broker"
    page: ClassVar[str] = "docs/settings.md"
    unsupported: ClassVar[Sequence[Unsupported]] = UNSUPPORTED

    node_id: int = setting(NODE, 1, int32(0), "The id that clients know this broker by.", also=("broker.id",))
    coterie_cluster_id: str = setting(
        NODE, "", Word(), "The id of the cluster. If it is empty, the data directory's is used, or a new one."
    )
    listeners: tuple[str, ...] = setting(
        NODE, ("PLAINTEXT://127.0.0.1:9092",), Words(), "The addresses to listen on, as NAME://host:port."
    )
    advertised_listeners: tuple[str, ...] = setting(
        NODE,
        (),
        Words(),
        "The addresses that clients are told to connect to. If there are none, it is the address that they "
        "connected to.",
    )
    listener_security_protocol_map: tuple[str, ...] = setting(
        NODE,
        ("SASL_SSL:SASL_SSL", "PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT"),
        Words(code=2),
        "The security protocol of each listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    controller_listener_names: tuple[str, ...] = setting(
        NODE, (), Words(), "The listeners for controllers. They are not opened, as there are no controllers."
    )
    log_dirs: tuple[str, ...] = setting(NODE, (), Words(), "The data directory. There can be one.", also=("log.dir",))

    authorizer_class_name: str = setting(
        ACLS,
        "",
        Word(("", STANDARD_AUTHORIZER, STANDARD_AUTHORIZER.rpartition(".")[2])),
        "What decides what clients may do: StandardAuthorizer decides by ACLs. If it is empty, every client that can "
        "connect may do everything.",
        why="there is no JVM to load a class into; StandardAuthorizer is built in",
    )
    super_users: str = setting(
        ACLS,
        "",
        Word(),
        "Principals that may do everything, whatever the ACLs say, with semicolons between them: User:admin;User:ops.",
    )
    allow_everyone_if_no_acl_found: bool = setting(
        ACLS,
        False,
        Flag(),
        "Whether every principal may do everything with a resource that no ACL applies to.",
    )

    coterie_client_telemetry_enable: bool = setting(
        TELEMETRY,
        False,
        Flag(),
        "Whether the broker receives metrics that clients push (KIP-714), and keeps what they say about rebalances. If "
        "it is false, clients do not push: Kafka does the same if it has no plugin for it.",
    )
    telemetry_max_bytes: int = setting(
        TELEMETRY, 1_048_576, int32(1), "The largest metrics of a client that are accepted, compressed or not."
    )

    @classmethod
    def load(
        cls,
        properties: str = "",
        environ: Mapping[str, str] = MappingProxyType({}),
        sets: Sequence[str] = (),
        **more: Any,
    ) -> Self:
        """Make settings from a file, then the environment, `--set name=value` and keywords: the last one counts."""
        problems: list[str] = []
        given = [
            *from_properties(properties, problems),
            *from_environ(environ, cls.rows(), problems),
            *from_sets(sets, problems),
            *(Given(name, text_of(value), f"{name}=") for name, value in more.items()),
        ]
        return cls.settled(given, problems)

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Self:
        """Make settings from values in Python. Names have dots or underscores; values may also be text."""
        return cls.settled([Given(name, text_of(value), "settings") for name, value in values.items()], [])

    def contradictions(self) -> list[str]:
        problems = super().contradictions()
        if len(self.log_dirs) > 1:
            problems.append(f"log.dirs has {len(self.log_dirs)} directories; only one is supported")
        try:
            self.advertised()
            for endpoint in self.endpoints():
                self.check_listener(endpoint)
        except SettingsError as error:
            problems.append(str(error))
        return problems

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the addresses to listen on for clients."""
        return client_endpoints(self.listeners, self.listener_security_protocol_map, self.controller_listener_names)

    def advertised(self) -> tuple[Endpoint, ...]:
        """Return the addresses to advertise, each with the name of its listener. Others advertise where they listen."""
        return advertised_endpoints(self.advertised_listeners, self.endpoints(), self.controller_listener_names)
