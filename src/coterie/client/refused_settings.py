"""Settings that the Java clients have and we have not: refused, with what to do instead. A name may end in `*`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["NO_TLS", "REFUSED"]

NO_TLS = "TLS and SASL are not supported. Connect to a PLAINTEXT listener"

REFUSED: Mapping[str, Sequence[str]] = {
    "records carry bytes. Decode them where you read them: record.value.decode()": (
        "key.deserializer",
        "value.deserializer",
    ),
    "records carry bytes. Encode them where you send them: text.encode()": ("key.serializer", "value.serializer"),
    "there is no JVM to load a class into. Wrap poll() or send() in a function of yours": ("interceptor.classes",),
    "there is no JVM to load a class into. Leave it out": ("metric.reporters", "auto.include.jmx.reporter"),
    "there is no JVM to load a class into. Name the partition in send(), or set partitioner.ignore.keys": (
        "partitioner.class",
    ),
    "values are taken as they are. Read the secret or the file in Python and give what it says": (
        "config.providers",
        "config.providers.*",
    ),
    NO_TLS: ("ssl.*", "sasl.*", "security.providers"),
    "clients talk to brokers. Give bootstrap.servers": ("bootstrap.controllers",),
    "groups are of the classic protocol, whose assignors are in partition.assignment.strategy": (
        "group.remote.assignor",
    ),
    "there are no share groups": ("share.acknowledgement.mode", "share.acquire.mode"),
    "there are no transactions yet; leave it out, and the producer is idempotent": (
        "transactional.id",
        "transaction.timeout.ms",
        "transaction.two.phase.commit.enable",
    ),
    "it is internal to the Java consumer. Leave it out": ("internal.*",),
}
