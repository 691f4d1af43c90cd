"""What Apache Kafka 4.3.1 said, and where we say something else on purpose, each with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORD: dict[str, Any] = json.loads(Path(__file__).with_name("kafka_configs.json").read_text())

OTHER_DEFAULTS = {
    "node.id": "Kafka has none and wants one; a single node can have a default",
    "listeners": "127.0.0.1 unless told otherwise",
    "advertised.listeners": "empty is none",
    "controller.listener.names": "Kafka wants one; there is no controller to talk to",
    "log.dirs": "empty is none: the server has its own word for where data is",
}
OTHER_BOUNDS = {
    "default.replication.factor": "one node, one replica",
    "min.insync.replicas": "one node, one replica",
    "ssl.keystore.type": "a word that is no type is refused",
    "ssl.truststore.type": "a word that is no type is refused",
    "ssl.enabled.protocols": "older versions of TLS are refused",
    "sasl.server.callback.handler.class": "there is no JVM to load another class into",
    "authorizer.class.name": "there are no ACLs, so asking for them is refused",
    "group.min.session.timeout.ms": "Kafka takes a negative one, and then nothing ends a session",
    "group.max.session.timeout.ms": "Kafka takes a negative one, and then nobody can join",
    "group.initial.rebalance.delay.ms": "Kafka takes a negative one; it means nothing",
    "offset.metadata.max.bytes": "Kafka takes a negative one, and then every commit is refused",
    "offsets.topic.segment.bytes": "Kafka takes less than segment.bytes may be, and then never finds a coordinator",
    "transaction.state.log.segment.bytes": "the same",
    "log.roll.ms": "Kafka refuses 0 and less when it starts",
    "log.roll.jitter.ms": "Kafka takes a negative one; it means nothing",
    "log.flush.interval.ms": "the bound of flush.ms, which it becomes",
}

ONE_REPLICA = (
    "Kafka 4.1 and later write min.insync.replicas into a new cluster's dynamic settings (KIP-966); we have none"
)
OTHER_ROWS = {"min.insync.replicas": ONE_REPLICA}

OTHER_ANSWERS_ABOUT = {
    "all brokers": ONE_REPLICA,
}
OTHER_ALTERATIONS = {
    ("min.cleanable.dirty.ratio", "NaN"): "no ratio",
    ("min.cleanable.dirty.ratio", "0.5d"): "Java's own way to write a number",
    ("internal.segment.bytes", "1000"): "Kafka's own tests use it",
    ("retention.ms", "1", 9): "an unknown operation is the client's mistake; Kafka answers UNKNOWN_SERVER_ERROR",
}
NOT_ALTERED_HERE = {
    4: "a broker's settings are read when it starts",
    8: "there are no loggers",
}
