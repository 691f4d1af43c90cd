"""Writes `kafka_configs.json`: what Apache Kafka 4.3.1 says about configs, to hold ours against.

    PYTHONPATH=tests:src .venv/bin/python tests/broker/record_configs.py

Only facts are kept: names, types, values, sources and codes; not Kafka's sentences.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from apache_kafka import VERSION, ApacheKafka, run_java
from raw_kafka import RawConnection

RECORD = Path(__file__).with_name("kafka_configs.json")
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
THROTTLED = "leader.replication.throttled.replicas"

DESCRIBED = [
    ("a plain topic", TOPIC, "plain", None),
    ("some keys of it", TOPIC, "plain", ["retention.ms", "nonsense", "segment.bytes"]),
    ("no keys of it", TOPIC, "plain", []),
    ("a topic with configs", TOPIC, "with-configs", None),
    ("the offsets topic", TOPIC, "__consumer_offsets", None),
    ("an unknown topic", TOPIC, "nope", None),
    ("an illegal topic", TOPIC, "a b", None),
    ("a topic without a name", TOPIC, "", None),
    ("a topic with too long a name", TOPIC, "x" * 250, None),
    ("another broker", BROKER, "2", None),
    ("a broker that is no number", BROKER, "x", None),
    ("loggers without a broker", LOGGER, "", None),
    ("loggers of another broker", LOGGER, "3", None),
    ("client metrics", METRICS, "m", None),
    ("client metrics without a name", METRICS, "", None),
    ("a group", GROUP, "g", None),
    ("a group without a name", GROUP, "", None),
    ("all brokers", BROKER, "", None),
    ("type 0", 0, "x", None),
    ("type 3", 3, "x", None),
    ("type 64", 64, "x", None),
]
WITH_CONFIGS = {"retention.ms": " 5000 ", "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.25"}

Change = tuple[str, int, str | None]


def each(operation: int, values: Mapping[str, Sequence[str | None]]) -> list[tuple[Mapping[str, str], list[Change]]]:
    """Every value on a topic of its own that has no configs yet."""
    return [({}, [(name, operation, value)]) for name, some in values.items() for value in some]


BOTH = {"cleanup.policy": "delete,compact"}
INCREMENTAL: list[tuple[Mapping[str, str], list[Change]]] = [
    *each(
        SET,
        {
            "retention.ms": ("1000", " 1000 ", "-1", "-2", "", None, "9" * 20, "+5", "1_0", "x", "1.0", "0x10"),
            "cleanup.policy": ("", "delete,delete", "DELETE", "compact, delete", "none", "delete,"),
            THROTTLED: ("*", "none", "0:1,x", "0:1:2", "0:1,*", ""),
            "max.compaction.lag.ms": ("0", "1"),
            "segment.bytes": ("1048575", "1048576", "2147483647", "2147483648"),
            "compression.type": ("zip", "LZ4", "lz4", " lz4 ", "none", "uncompressed"),
            "compression.gzip.level": ("10", "-1", "0", "9"),
            "compression.zstd.level": ("23", "-131072"),
            "compression.lz4.level": ("0", "17"),
            "message.timestamp.type": ("createtime", "LogAppendTime"),
            "preallocate": ("TRUE", "yes", " true ", "1"),
            "min.cleanable.dirty.ratio": ("0.2", "1", "1.1", "-0.1", "1e-3", "NaN", "0.5d", "0_1", ".5"),
            "min.insync.replicas": ("0", "2"),
            "remote.storage.enable": ("true", "false"),
            "remote.log.copy.disable": ("true",),
            "local.retention.ms": ("-3", "-2", "5"),
            "message.format.version": ("2.8",),
            "message.downconversion.enable": ("true",),
            "flush.messages": ("0", "1"),
            "flush.ms": ("-1", "0"),
            "index.interval.bytes": ("-1", "0"),
            "segment.index.bytes": ("3", "4"),
            "segment.ms": ("0", "1"),
            "segment.jitter.ms": ("-1", "0"),
            "max.message.bytes": ("-1", "0"),
            "message.timestamp.before.max.ms": ("-1", "0"),
            "retention.bytes": ("-5", "0"),
            "internal.segment.bytes": ("1000",),
            "nonsense": ("1",),
        },
    ),
    *each(
        APPEND, {"cleanup.policy": ("compact", "bogus", "compact,compact", " compact", "", None), THROTTLED: ("0:1",)}
    ),
    *each(APPEND, {"nonsense": ("1",)}),
    *each(DELETE, {"nonsense": ("1",), "retention.ms": ("x",)}),
    *each(SUBTRACT, {"cleanup.policy": ("nothing", "delete")}),
    ({"retention.ms": "7"}, [("retention.ms", APPEND, "5")]),
    ({"retention.ms": "7"}, [("retention.ms", SUBTRACT, "7")]),
    ({"retention.ms": "7"}, [("retention.ms", DELETE, None)]),
    ({"retention.ms": "7", "segment.ms": "8"}, [("retention.ms", SET, "9")]),
    ({}, [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]),
    ({}, [("retention.ms", SET, "5"), ("nonsense", SET, "1")]),
    ({}, [("retention.ms", SET, None), ("nonsense", SET, "1")]),
    (BOTH, [("cleanup.policy", APPEND, "compact")]),
    (BOTH, [("cleanup.policy", SUBTRACT, "delete")]),
    (BOTH, [("cleanup.policy", SUBTRACT, "delete,compact")]),
    ({THROTTLED: "0:1"}, [(THROTTLED, APPEND, "1:1,0:1")]),
    ({THROTTLED: "0:1,1:1"}, [(THROTTLED, SUBTRACT, "0:1")]),
    ({}, [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")]),
    ({"max.compaction.lag.ms": "5"}, [("min.compaction.lag.ms", SET, "10")]),
    ({}, []),
    ({}, [("retention.ms", 9, "1")]),  # the last, in a request of its own: in company it would spoil all of them
]
ALTERED: list[tuple[Mapping[str, str], list[tuple[str, str | None]]]] = [
    ({}, [("retention.ms", "1000"), ("cleanup.policy", "compact")]),
    ({"retention.ms": "1000", "cleanup.policy": "compact"}, [("retention.bytes", "1000")]),
    ({"retention.bytes": "1000"}, [("retention.bytes", None)]),
    ({"retention.bytes": "1000"}, [("retention.bytes", "1"), ("retention.bytes", "1")]),
    ({"retention.bytes": "1000"}, [("nonsense", "1")]),
    ({"retention.bytes": "1000"}, [("retention.bytes", "x")]),
    ({"retention.bytes": "1000"}, []),
]
ELSEWHERE: list[tuple[int, str, str, str | None]] = [
    (TOPIC, "nope", "retention.ms", "77"),
    (TOPIC, "nope", "nonsense", "77"),
    (TOPIC, "", "retention.ms", "77"),
    (TOPIC, "a b", "retention.ms", "77"),
    (TOPIC, "a b", "retention.ms", None),
    (3, "t", "retention.ms", "77"),
    (0, "t", "retention.ms", "77"),
    (64, "t", "retention.ms", "77"),
    (BROKER, "1", "num.partitions", "2"),
    (BROKER, "", "num.partitions", "2"),
    (BROKER, "2", "num.partitions", "2"),
    (BROKER, "x", "num.partitions", "2"),
    (BROKER, "1", "message.max.bytes", "2000000"),
    (GROUP, "g", "consumer.session.timeout.ms", "50000"),
    (GROUP, "g", "nonsense", "1"),
    (GROUP, "", "nonsense", "1"),
    (METRICS, "m", "interval.ms", "50000"),
    (METRICS, "m", "nonsense", "1"),
    (LOGGER, "1", "no.such.logger", "INFO"),
]
"""Only validated, so that nothing is left behind."""

STARTED_WITH = [
    {
        "log.retention.hours": "48",
        "log.roll.hours": "24",
        "log.segment.bytes": "2097152",
        "log.cleanup.policy": "compact",
        "message.max.bytes": "5000",
        "log.cleaner.delete.retention.ms": "77",
        "num.partitions": "3",
        "compression.type": "lz4",
    },
    {
        "log.retention.ms": "1000",
        "log.retention.minutes": "5",
        "log.roll.ms": "9",
        "log.flush.scheduler.interval.ms": "123",
        "log.roll.jitter.hours": "1",
        "log.retention.bytes": "-7",
    },
    {"log.flush.interval.ms": "55", "log.retention.minutes": "5", "log.retention.hours": "-3"},
]

DEFINITIONS = """
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
public class Definitions {
    static void print(String of, ConfigDef definition) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            Object value = key.defaultValue == ConfigDef.NO_DEFAULT_VALUE ? null : key.defaultValue;
            System.out.println(String.join("\\t", of, key.name, key.type.toString(),
                String.valueOf(ConfigDef.convertToString(value, key.type)), String.valueOf(key.validator)));
        }
    }
    public static void main(String[] none) {
        print("broker", kafka.server.KafkaConfig.configDef());
        print("topic", org.apache.kafka.storage.internals.log.LogConfig.configDefCopy());
    }
}
"""


def definitions() -> dict[str, dict[str, list[str | None]]]:
    """Type, default and bounds of every setting of a broker and every config of a topic."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "Definitions.java")
        source.write_text(DEFINITIONS)
        printed = run_java(source)
    found: dict[str, dict[str, list[str | None]]] = {}
    for line in printed.splitlines():
        of, name, *facts = line.split("\t")
        found.setdefault(of, {})[name] = [None if fact == "null" else fact for fact in facts]
    return found


class Asker:
    def __init__(self, connection: RawConnection) -> None:
        self.connection = connection

    def describe(self, resource_type: int, name: str, keys: list[str] | None = None) -> dict[str, Any]:
        resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": keys}
        answer = self.connection.ask(
            "describe_configs", 4, resources=[resource], include_synonyms=True, include_documentation=False
        )
        (result,) = answer.results
        rows = [
            {
                "name": each.name,
                "value": each.value,
                "read_only": each.read_only,
                "source": int(each.config_source),
                "sensitive": each.is_sensitive,
                "type": int(each.config_type),
                "synonyms": [[synonym.name, synonym.value, int(synonym.source)] for synonym in each.synonyms],
            }
            for each in result.configs
        ]
        return {"error": int(result.error_code), "configs": sorted(rows, key=lambda row: str(row["name"]))}

    def own(self, topic: str) -> dict[str, str]:
        return {row["name"]: row["value"] for row in self.describe(TOPIC, topic)["configs"] if row["source"] == 1}

    def create(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        new = [
            {
                "name": name,
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [{"name": key, "value": value} for key, value in configs.items()],
            }
            for name, configs in topics.items()
        ]
        answer = self.connection.ask("create_topics", 7, topics=new, timeout=30_000, validate_only=False)
        assert not any(int(each.error_code) for each in answer.topics)

    def incremental(
        self, changes: Sequence[tuple[int, str, Sequence[Change]]], *, validate_only: bool = False
    ) -> list[int]:
        """The codes of several resources that are altered by one request."""
        resources = [
            {
                "resource_type": resource_type,
                "resource_name": name,
                "configs": [{"name": key, "config_operation": what, "value": value} for key, what, value in some],
            }
            for resource_type, name, some in changes
        ]
        answer = self.connection.ask("incremental_alter_configs", 1, resources=resources, validate_only=validate_only)
        return [int(each.error_code) for each in answer.responses]

    def alter(
        self, changes: Sequence[tuple[int, str, Sequence[tuple[str, str | None]]]], *, validate_only: bool = False
    ) -> list[int]:
        resources = [
            {
                "resource_type": resource_type,
                "resource_name": name,
                "configs": [{"name": key, "value": value} for key, value in some],
            }
            for resource_type, name, some in changes
        ]
        answer = self.connection.ask("alter_configs", 2, resources=resources, validate_only=validate_only)
        return [int(each.error_code) for each in answer.responses]

    def settled(self) -> None:
        """What was done is seen once something done later is: the metadata log has an order."""
        self.create({"last": {"retention.ms": "123"}})
        for _ in range(200):
            if self.own("last") == {"retention.ms": "123"}:
                break
            time.sleep(0.05)
        for _ in range(200):
            self.connection.ask("find_coordinator", 4, key_type=0, coordinator_keys=("g",))
            if self.own("__consumer_offsets"):
                return
            time.sleep(0.05)
        raise TimeoutError("what was altered is not seen after ten seconds")


def answers(connection: RawConnection) -> dict[str, Any]:
    """All that a broker with its defaults is asked."""
    ask = Asker(connection)
    befores = {f"i{number}": before for number, (before, _) in enumerate(INCREMENTAL)}
    befores |= {f"a{number}": before for number, (before, _) in enumerate(ALTERED)}
    ask.create({"plain": {}, "with-configs": WITH_CONFIGS, **befores})
    *together, alone = [(TOPIC, f"i{at}", changes) for at, (_, changes) in enumerate(INCREMENTAL)]
    incremental = ask.incremental(together) + ask.incremental([alone])
    altered = ask.alter([(TOPIC, f"a{at}", configs) for at, (_, configs) in enumerate(ALTERED)])
    ask.settled()
    return {
        "described": [
            {"what": what, "resource": [kind, name, keys], **ask.describe(kind, name, keys)}
            for what, kind, name, keys in DESCRIBED
        ],
        "incremental": [
            {"before": before, "changes": changes, "error": error, "after": ask.own(f"i{at}")}
            for at, ((before, changes), error) in enumerate(zip(INCREMENTAL, incremental, strict=True))
        ],
        "altered": [
            {"before": before, "configs": configs, "error": error, "after": ask.own(f"a{at}")}
            for at, ((before, configs), error) in enumerate(zip(ALTERED, altered, strict=True))
        ],
        "elsewhere": [
            {
                "resource": [kind, name, key, value],
                "incremental": ask.incremental([(kind, name, [(key, SET, value)])], validate_only=True)[0],
                "alter": ask.alter([(kind, name, [(key, value)])], validate_only=True)[0],
            }
            for kind, name, key, value in ELSEWHERE
        ],
    }


def started_with(settings: Mapping[str, str]) -> dict[str, Any]:
    """What a broker with settings says of a topic, and of what it was started with."""
    with ApacheKafka(settings) as kafka, RawConnection(kafka.bootstrap) as connection:
        ask = Asker(connection)
        ask.create({"plain": {}})
        ask.settled()
        broker = [row for row in ask.describe(BROKER, "1")["configs"] if row["name"] in settings]
        return {"settings": settings, "topic": ask.describe(TOPIC, "plain")["configs"], "broker": broker}


def main() -> None:
    with ApacheKafka() as kafka, RawConnection(kafka.bootstrap) as connection:
        record = {"version": VERSION, "definitions": definitions(), **answers(connection)}
    record["started_with"] = [started_with(settings) for settings in STARTED_WITH]
    RECORD.write_text(_lines(record) + "\n")


def _lines(value: Any, depth: int = 0) -> str:
    """JSON with a row on each line, so that a difference is seen."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(_lines(each, depth + 2) for each in value) + "\n]"
    if isinstance(value, dict) and (depth < 3 or any(isinstance(each, list) for each in value.values())):
        rows = [f"{json.dumps(key)}: {_lines(each, depth + 1)}" for key, each in value.items()]
        return "{\n" + ",\n".join(rows) + "\n}" if depth < 3 else "{" + ", ".join(rows) + "}"
    return json.dumps(value)


if __name__ == "__main__":
    main()
