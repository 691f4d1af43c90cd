"""Record batches a broker should take, and more it should not: wrong in the header, in the records, or a bomb."""

from __future__ import annotations

from functools import cache
from random import Random

from coterie.protocol.batch import Compression, pack_header, parse_header
from coterie.protocol.compression import compress
from coterie.protocol.records import BatchRecord, build_batch

__all__ = ["Batches", "bomb"]

PIECE = 4 << 20
GIGABYTE = 1 << 30
LARGEST = 1_000_000
"""Of a batch a broker takes, by default."""
SNAPPY_HEADER = 16


@cache
def bomb(compression: Compression) -> bytes:
    """A batch of one record, it says, whose records unpack to a gigabyte, or as much as its compression can pack.

    Streams of each compression may be put one behind the other.
    """
    header = parse_header(build_batch([BatchRecord(b"k", b"v", 1_000)], compression=compression))
    piece = compress(compression, bytes(PIECE))
    begin, piece = (piece[:SNAPPY_HEADER], piece[SNAPPY_HEADER:]) if compression is Compression.SNAPPY else (b"", piece)
    return bytes(pack_header(header, begin + piece * min(GIGABYTE // PIECE, LARGEST // len(piece))))


class Batches:
    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def some(self) -> bytes:
        rng = self._rng
        chance = rng.random()
        if chance < 0.01:
            return bomb(rng.choice([Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]))
        if chance < 0.1:
            return rng.randbytes(rng.randrange(100))
        whole = self._sound()
        if chance < 0.5:
            return whole
        if chance < 0.7:
            return self._wrong_header(whole)
        if chance < 0.85:
            return self._wrong_records(whole)
        if chance < 0.9:
            return whole + self._sound()
        return whole[: rng.randrange(len(whole))]

    def _sound(self) -> bytes:
        rng = self._rng
        time = rng.choice((-1, 0, 1_000, 1_000_000))
        content = [
            BatchRecord(rng.choice((b"k", None)), rng.choice((b"v", None, bytes(200))), time)
            for _ in range(rng.choice((1, 1, 2, 10)))
        ]
        compression = rng.choice(list(Compression))
        if rng.random() < 0.5:
            return bytes(build_batch(content, compression=compression))
        whole = build_batch(
            content,
            compression=compression,
            producer_id=rng.randrange(3),
            producer_epoch=rng.choice((0, 0, 1)),
            base_sequence=rng.choice((0, 1, 2, 2**31 - 1)),
            is_transactional=rng.random() < 0.1,
        )
        return bytes(whole)

    def _wrong_header(self, whole: bytes) -> bytes:
        """Under a right checksum."""
        rng = self._rng
        header = parse_header(whole)
        absurd = rng.choice((-1, 0, 2, 2**31 - 1, -(2**31)))
        wrong = rng.choice(
            (
                {"record_count": absurd},
                {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
                {"last_offset_delta": absurd},
                {"base_offset": rng.choice((1, -1, 2**63 - 1))},
                {"attributes": rng.getrandbits(15)},
                {"base_timestamp": -(2**63), "max_timestamp": 2**63 - 1},
                {"max_timestamp": -(2**63)},
                {"producer_id": 2**63 - 1, "producer_epoch": 2**15 - 1, "base_sequence": 2**31 - 1},
                {"producer_id": rng.randrange(3), "producer_epoch": -1, "base_sequence": -1},
            )
        )
        return bytes(pack_header(header._replace(**wrong), whole[61:]))

    def _wrong_records(self, whole: bytes) -> bytes:
        """Under a right checksum: only who opens them finds out."""
        rng = self._rng
        body = bytearray(whole[61:])
        for _ in range(rng.randrange(1, 4)):
            body[rng.randrange(len(body))] = rng.getrandbits(8)
        kept = body if rng.random() < 0.5 else body[: rng.randrange(len(body))]
        return bytes(pack_header(parse_header(whole), bytes(kept)))
