"""The launcher itself: a Kafka that was killed comes back on its own data."""

from __future__ import annotations

from pathlib import Path

import pytest

from apache_kafka import ApacheKafka, jars, needs_apache_kafka, why_not
from raw_kafka import RawConnection


def topics_of(kafka: ApacheKafka) -> set[str]:
    with RawConnection(kafka.bootstrap) as connection:
        return {
            topic.name for topic in connection.ask("metadata", 4, topics=None, allow_auto_topic_creation=False).topics
        }


def create(kafka: ApacheKafka, name: str) -> None:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    with RawConnection(kafka.bootstrap) as connection:
        (answer,) = connection.ask("create_topics", 7, topics=[topic], timeout=30_000).topics
        assert not answer.error_code, answer


@needs_apache_kafka
@pytest.mark.real_time
def test_a_killed_kafka_comes_back_on_the_same_port_with_its_data() -> None:
    with ApacheKafka() as kafka:
        create(kafka, "kept")
        first, bootstrap = kafka.pid, kafka.bootstrap
        kafka.kill()
        with pytest.raises(ConnectionRefusedError):
            topics_of(kafka)
        kafka.start()
        assert (kafka.pid != first, kafka.bootstrap) == (True, bootstrap)
        assert topics_of(kafka) == {"kept"}
        assert (kafka.data_dir / "kept-0").is_dir()
        home = kafka.home
    assert not home.exists()


def test_a_machine_without_java_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "needs Java 17" in (why_not() or "")


def test_a_machine_without_jars_and_maven_is_told_where_to_put_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "java").write_text("")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("COTERIE_KAFKA_LIBS", raising=False)
    assert "COTERIE_KAFKA_LIBS" in (why_not() or "")


def test_a_directory_without_kafka_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COTERIE_KAFKA_LIBS", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="holds no kafka_2"):
        jars()
