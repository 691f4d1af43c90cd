"""Spark's own Kafka connector, jars, for what stands beside it; fetched once, by Maven, into the user's cache."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

__all__ = ["connector"]

_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>coterie</groupId><artifactId>spark-connector-for-tests</artifactId><version>1</version>
  <dependencies>%s</dependencies>
</project>"""
_DEPENDENCY = f"<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version>{_ALONE}</dependency>"
_POOL = ("org.apache.commons", "commons-pool2", "2.12.0")
_VERSIONS = {
    "4.0.0": (
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.kafka", "kafka-clients", "3.9.0"),
        _POOL,
    ),
    # The nearest to Spark 4.3 that is published; its token provider is not, so it is the one before.
    "4.2.0": (
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.kafka", "kafka-clients", "3.9.2"),
        _POOL,
    ),
}


def connector(version: str) -> str:
    """The jars, as `spark.jars` wants them."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "coterie" / f"spark-kafka-{version}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            pom = Path(scratch, "pom.xml")
            pom.write_text(_POM % "".join(_DEPENDENCY % artifact for artifact in _VERSIONS[version]))
            fetched = Path(scratch, "jars")
            command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            subprocess.run([*command, f"-DoutputDirectory={fetched}"], check=True)
            fetched.rename(folder)  # whole or not at all
    return ",".join(map(str, sorted(folder.glob("*.jar"))))
