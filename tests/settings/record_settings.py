"""Writes `java_settings.json`: the settings of the Java clients of Apache Kafka 4.3.1, to hold ours against.

    PYTHONPATH=tests:src .venv/bin/python tests/settings/record_settings.py

Only facts are kept: names, types, defaults and bounds; not Kafka's sentences.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from apache_kafka import run_java

RECORD = Path(__file__).with_name("java_settings.json")

PROGRAM = """
import java.util.Map;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

public class Settings {
    public static void main(String[] arguments) {
        var tables = Map.of("consumer", ConsumerConfig.configDef(), "producer", ProducerConfig.configDef(),
            "admin", AdminClientConfig.configDef());
        tables.forEach((whose, table) -> table.configKeys().values().forEach(key -> System.out.println(
            String.join("\\t", whose, key.name, key.type.toString(),
                key.defaultValue == ConfigDef.NO_DEFAULT_VALUE ? "" : String.valueOf(key.defaultValue),
                String.valueOf(key.validator)))));
    }
}
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "Settings.java")
        source.write_text(PROGRAM)
        lines = sorted(run_java(source).splitlines())
    record: dict[str, dict[str, list[str]]] = {}
    for whose, name, kind, default, validator in (line.split("\t") for line in lines):
        record.setdefault(whose, {})[name] = [kind, default, validator]
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
