"""The broker as a parameter: `coterie serve`, or Apache Kafka 4.3.1; what groups do on it is in its own topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from apache_kafka import ApacheKafka
from clients.harness import BrokerProcess
from clients.journal import LiveJournal

__all__ = ["EitherBroker", "apache_kafka", "coterie"]

OFFSETS_PARTITIONS = 4


@dataclass(frozen=True)
class EitherBroker:
    """Whose it is cannot be seen from here."""

    bootstrap: str
    facts: LiveJournal
    restart: Callable[[], None]
    """In order, and on the same port; returns when it answers again."""
    said: Callable[[], str]


@contextmanager
def coterie(directory: Path, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[EitherBroker]:
    with BrokerProcess(directory, {"offsets.topic.num.partitions": OFFSETS_PARTITIONS, **more}) as broker:

        def restart() -> None:
            broker.stop()
            broker.start()

        journal = LiveJournal(broker.bootstrap)
        yield EitherBroker(broker.bootstrap, journal, restart, broker.said)
        journal.close()


@contextmanager
def apache_kafka(_directory: Path, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[EitherBroker]:
    properties: Mapping[str, str] = {"offsets.topic.num.partitions": str(OFFSETS_PARTITIONS), **more}
    with ApacheKafka(properties) as kafka:

        def restart() -> None:
            kafka.stop()
            kafka.start()

        def said() -> str:
            return f"--- Apache Kafka, last lines\n{(kafka.home / 'server.log').read_text(errors='replace')[-4_000:]}"

        journal = LiveJournal(kafka.bootstrap)
        yield EitherBroker(kafka.bootstrap, journal, restart, said)
        journal.close()
