"""Produce requests: frames that are sent often, and how their answers are checked."""

from __future__ import annotations

import time
from datetime import timedelta

from kafka.record import MemoryRecordsBuilder

from coordbench.generator import Known
from coordbench.messages import Wire
from coordbench.types import ErrorReplyError, MisbehavedError


def produce_frame(wire: Wire, topic: str, partition: int, size: int) -> bytearray:
    """One record of `size` bytes, to be written by all in-sync replicas."""
    batch = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=size + 1024)
    batch.append(timestamp=int(time.time() * 1000), key=None, value=bytes(size))
    batch.close()
    data = wire.part("produce", "PartitionProduceData", index=partition, records=batch.buffer())
    topics = (wire.part("produce", "TopicProduceData", name=topic, partition_data=(data,)),)
    return wire.frame("produce", transactional_id=None, acks=-1, timeout=timedelta(seconds=30), topic_data=topics)


class KnownProduced(Known):
    """Answers are alike up to the error code; the offset behind it is another each time."""

    def __init__(self, wire: Wire, topic: str) -> None:
        super().__init__(self._verify_all)
        self._wire = wire
        # Correlation id and tags; the numbers of topics and partitions; the topic's name; partition and error code.
        self._alike = 5 + 1 + 1 + len(topic) + 1 + 4 + 2

    def check(self, reply: bytes) -> None:
        head = reply[4 : self._alike]
        if head not in self._bodies:
            self._verify_all(reply)
            self._bodies.add(head)

    def _verify_all(self, reply: bytes) -> None:
        ((answer,),) = (topic.partition_responses for topic in self._wire.parse("produce", reply).responses)
        if int(answer.error_code):
            raise ErrorReplyError("produce", int(answer.error_code))
        if int(answer.base_offset) < 0:
            raise MisbehavedError("produce answered no offset")
