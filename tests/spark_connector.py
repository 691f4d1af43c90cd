"""Jars that Spark needs in some tests: its own Kafka connector, Avro, and table formats; Maven fetches them once."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

__all__ = ["connector", "jars"]

_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>coterie</groupId><artifactId>spark-connector-for-tests</artifactId><version>1</version>
  <dependencies>%s</dependencies>
</project>"""
_DEPENDENCY = f"<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version>{_ALONE}</dependency>"
_POOL = ("org.apache.commons", "commons-pool2", "2.12.0")
_SPARK, _DELTA, _UNITY = "org.apache.spark", "io.delta", "io.unitycatalog"
_PACKAGES = {
    "spark-kafka-4.0.0": (
        (_SPARK, "spark-sql-kafka-0-10_2.13", "4.0.0"),
        (_SPARK, "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.kafka", "kafka-clients", "3.9.0"),
        _POOL,
    ),
    "spark-kafka-4.1.1": (
        (_SPARK, "spark-sql-kafka-0-10_2.13", "4.1.1"),
        (_SPARK, "spark-token-provider-kafka-0-10_2.13", "4.0.0"),  # as below
        ("org.apache.kafka", "kafka-clients", "3.9.1"),
        _POOL,
    ),
    # The nearest to Spark 4.3 that is published; its token provider is not, so it is the one before.
    "spark-kafka-4.2.0": (
        (_SPARK, "spark-sql-kafka-0-10_2.13", "4.2.0"),
        (_SPARK, "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.kafka", "kafka-clients", "3.9.2"),
        _POOL,
    ),
    "spark-avro-4.1.1": ((_SPARK, "spark-avro_2.13", "4.1.1"),),
    "iceberg-4.1": (("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0"),),
    "delta-4.2": (
        (_DELTA, "delta-spark_4.2_2.13", "4.4.0"),
        *((_DELTA, f"delta-{name}", "4.4.0") for name in ("storage", "kernel-api", "kernel-defaults")),
        (_DELTA, "delta-kernel-unitycatalog", "4.4.0"),
        (_UNITY, "unitycatalog-client", "0.6.0"),
        (_UNITY, "unitycatalog-hadoop", "0.6.0"),
    ),
}


def connector(version: str) -> str:
    """Return the jars of the Kafka connector, as `spark.jars` takes them."""
    return jars(f"spark-kafka-{version}")


def jars(names: str) -> str:
    """Return jars as `spark.jars` takes them.

    Args:
        names: Packages, or paths of jars that were built elsewhere, with commas or spaces between.
    """
    given = names.replace(",", " ").split()
    found = [[Path(name)] if name.endswith(".jar") else sorted(_folder(name).glob("*.jar")) for name in given]
    return ",".join(str(jar) for some in found for jar in some)


def _folder(name: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "coterie" / name
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            pom = Path(scratch, "pom.xml")
            pom.write_text(_POM % "".join(_DEPENDENCY % artifact for artifact in _PACKAGES[name]))
            fetched = Path(scratch, "jars")
            command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            subprocess.run([*command, f"-DoutputDirectory={fetched}"], check=True)
            fetched.rename(folder)  # whole or not at all
    return folder
