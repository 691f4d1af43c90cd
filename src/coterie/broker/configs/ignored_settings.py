"""Settings that Kafka has and that change nothing here, with the reason. A name may end in `*`.

They are accepted, so that a file or an environment made for Kafka works, and named in the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["IGNORED"]

IGNORED: Mapping[str, Sequence[str]] = {
    "the process is its own controller": (
        "process.roles",
        "controller.quorum.*",
        "controller.quota.*",
        "controller.performance.*",
        "controller.socket.timeout.ms",
        "metadata.*",
        "internal.metadata.*",
        "broker.heartbeat.interval.ms",
        "broker.session.timeout.ms",
        "initial.broker.registration.timeout.ms",
        "server.max.startup.time.ms",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
    ),
    "there is one copy of each log: nobody copies it, waits for a copy, or asks another machine": (
        "replica.*",
        "replication.quota.*",
        "num.replica.fetchers",
        "num.replica.alter.log.dirs.threads",
        "alter.log.dirs.replication.quota.*",
        "auto.leader.rebalance.enable",
        "leader.imbalance.*",
        "unclean.leader.election.interval.ms",
        "offsets.topic.replication.factor",
        "inter.broker.listener.name",
        "broker.rack",
        "follower.fetch.last.tiered.offset.enable",
        "request.timeout.ms",
        "socket.connection.setup.timeout.*",
    ),
    "there are no transactions yet": (
        "transaction.*",
        "transactional.id.expiration.ms",
        "add.partitions.to.txn.retry.*",
    ),
    "groups are of the classic protocol": (
        "group.consumer.*",
        "group.share.*",
        "group.streams.*",
        "group.coordinator.*",
        "share.coordinator.*",
        "share.fetch.*",
    ),
    "there is no tiered storage": ("remote.*", "rlmm.config.*", "rsm.config.*"),
    "nothing but PLAINTEXT is spoken; a listener that should speak more is refused": (
        "ssl.*",
        "sasl.*",
        "security.inter.broker.protocol",
        "security.providers",
        "listener.name.*",
        "principal.builder.class",
        "connection.failed.authentication.delay.ms",
        "connections.max.reauth.ms",
        "delegation.token.*",
        "super.users",
        "allow.everyone.if.no.acl.found",
    ),
    "one thread answers, and one flushes": (
        "num.network.threads",
        "num.io.threads",
        "background.threads",
        "num.recovery.threads.per.data.dir",
    ),
    "there are no quotas": (
        "quota.*",
        "client.quota.callback.class",
        "max.connection.creation.rate",
    ),
    "the cleaner is one thread, which rests after each small step": ("log.cleaner.io.*", "log.cleaner.threads"),
    "coterie.flush says when a write is on the disk": (
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
    ),
    "there is one data directory": ("log.dir.failure.timeout.ms", "cordoned.log.dirs"),
    "there is no JVM to load a class into": (
        "alter.config.policy.class.name",
        "create.topic.policy.class.name",
        "config.providers",
        "config.providers.*",
    ),
    "there is no JVM to report metrics of": (
        "metric.reporters",
        "metrics.*",
        "kafka.metrics.*",
        "auto.include.jmx.reporter",
        "telemetry.max.bytes",
    ),
    "the work behind it is done in another way": (
        "offsets.topic.compression.codec",
        "offsets.load.buffer.size",
        "delete.records.purgatory.purge.interval.requests",
        "fetch.purgatory.purge.interval.requests",
        "producer.purgatory.purge.interval.requests",
        "producer.id.expiration.check.interval.ms",
        "log.initial.task.delay.ms",
        "controlled.shutdown.enable",
        "early.start.listeners",
        "max.request.partition.size.limit",
        "socket.listen.backlog.size",
        "socket.receive.buffer.bytes",
    ),
    "Kafka 4 does not have it any more": (
        "zookeeper.*",
        "broker.id.generation.enable",
        "reserved.broker.max.id",
        "control.plane.listener.name",
        "inter.broker.protocol.version",
        "log.message.format.version",
        "log.message.downconversion.enable",
        "log.message.timestamp.difference.max.ms",
        "offsets.commit.required.acks",
        "password.encoder.*",
    ),
    "it is Confluent's own": ("confluent.*",),
}
