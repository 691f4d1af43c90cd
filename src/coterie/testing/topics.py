"""A topic of a broker under test: its records, and waiting for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from coterie.protocol.batch import HEADER_SIZE, batches
from coterie.protocol.compression import decompress
from coterie.protocol.records import MAX_DECOMPRESSED, Record, read_records
from coterie.testing.groups import TIMEOUT_S, Waited

if TYPE_CHECKING:
    from coterie.testing.controlled_server import ControlledServer
    from coterie.testing.kafka_broker import KafkaBroker

_READ_AT_ONCE = 1 << 20


class Topic:
    """A topic of a broker under test, `broker.topic("orders")`. It need not exist yet."""

    def __init__(self, broker: KafkaBroker, name: str) -> None:
        self._broker = broker
        self.name = name
        """The name of the topic."""

    def __repr__(self) -> str:
        return f"<topic {self.name}: {self.partitions} partitions, {len(self.records)} records>"

    @property
    def partitions(self) -> int:
        """The number of its partitions; 0 if it does not exist."""
        return self._broker.run_on_broker(lambda server: _partitions(server, self.name))

    @property
    def records(self) -> list[Record]:
        """All records that consumers can read, partition by partition, in the order of their offsets."""
        return self._broker.run_on_broker(lambda server: records_of(server, self.name))

    def wait_records(self, count: int, *, partition: int | None = None, timeout: float = TIMEOUT_S) -> list[Record]:
        """Wait until the topic has so many records, or more.

        Args:
            count: How many records.
            partition: The number of a partition, to count the records of this one alone.
            timeout: How many seconds to wait at most.

        Returns:
            The records.

        Raises:
            WaitTimeoutError: There were not as many in time.
        """
        return self._broker.wait(*self._has(count, partition), timeout)

    async def wait_records_async(
        self,
        count: int,
        *,
        partition: int | None = None,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109
    ) -> list[Record]:
        """Do what `wait_records` does, in a test with asyncio."""
        return await self._broker.wait_async(*self._has(count, partition), timeout)

    def _has(self, count: int, partition: int | None) -> Waited[list[Record]]:
        def check(server: ControlledServer) -> list[Record] | None:
            if _at_most(server, self.name, partition) < count:
                return None
            found = records_of(server, self.name, partition)
            return found if len(found) >= count else None

        where = self.name if partition is None else f"{self.name}-{partition}"
        return f"{where} to have {count} record{'' if count == 1 else 's'}", check, None

    def assert_processed_once(self, processed: Iterable[bytes | str | None]) -> None:
        """Fail unless every record of the topic was processed exactly once.

        Args:
            processed: The values that the code under test has processed, in any order.

        Raises:
            AssertionError: Records are missing, were processed several times, or are not in the topic. They are listed.
        """
        produced = Counter(record.value for record in self.records)
        done = Counter(value.encode() if isinstance(value, str) else value for value in processed)
        if done == produced:
            return
        problems = []
        missing, more = produced - done, done - produced
        unknown = {value: count for value, count in more.items() if value not in produced}
        twice = {value: count for value, count in more.items() if value in produced}
        for what, values in (("not processed", missing), ("processed too often", twice), ("not produced", unknown)):
            if values:
                listed = [f"{value!r}{f' ({count} times)' if count > 1 else ''}" for value, count in values.items()]
                rest = f", and {len(listed) - 10} more" if len(listed) > 10 else ""
                problems.append(f"{what}: {', '.join(listed[:10])}{rest}")
        raise AssertionError(
            f"each of the {sum(produced.values())} records of {self.name} was to be processed once; "
            + "; ".join(problems)
        )


def _partitions(server: ControlledServer, name: str) -> int:
    topic = server.cluster.directory.topics.get(name)
    return 0 if topic is None else topic.partitions


def _at_most(server: ControlledServer, name: str, partition: int | None) -> int:
    """Return how many records there are, or more: offsets may be missing."""
    logs, flusher = server.cluster.directory.logs, server.cluster.flusher
    numbers = range(_partitions(server, name)) if partition is None else [partition]
    found = [logs[name, number] for number in numbers if (name, number) in logs]
    return sum(flusher.high_watermark(log) - log.log_start_offset for log in found)


def records_of(server: ControlledServer, name: str, partition: int | None = None, first: int = 0) -> list[Record]:
    """Return the records from offset `first` on that consumers can read, of one partition or of all."""
    found: list[Record] = []
    for number in range(_partitions(server, name)) if partition is None else [partition]:
        log = server.cluster.directory.logs.get((name, number))
        if log is None:
            continue
        offset, end = max(first, log.log_start_offset), server.cluster.flusher.high_watermark(log)
        while offset < end:
            data = log.read(offset, _READ_AT_ONCE, end)
            if not data:
                break
            for at, header in batches(data):
                if not header.is_control:
                    body = memoryview(data)[at + HEADER_SIZE : at + header.size]
                    plain = decompress(header.compression, body, MAX_DECOMPRESSED)
                    found += read_records(plain, header, name, number, offset, end)
                offset = header.next_offset
    return found
