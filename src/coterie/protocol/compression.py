"""The four compressions of record batches, as Kafka's clients write and read them; never beyond a given size.

A compressed batch may announce anything and expand a thousandfold, so nothing is decompressed without a limit: the
output buffer is what the codec may fill, and it grows only as far as the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

import cramjam

from coterie.errors import MalformedError
from coterie.protocol.batch import Compression
from coterie.protocol.buffer import Buffer

_INT32 = Struct(">i")

# snappy-java's stream: a magic, its version and the oldest version that reads it, then blocks with their length.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + _INT32.pack(1) + _INT32.pack(1)
_XERIAL_BLOCK: Final = 32 * 1024

_LZ4_FAST: Final = 1  # as Kafka's by default; cramjam's default searches harder, at five times the cost

_FIRST_GUESS: Final = 8  # most batches shrink less than that
_GROWTH: Final = 4
_KEPT: Final = 16 * 1024 * 1024
_TOO_SMALL: Final = "failed to write whole buffer"  # cramjam has no type for it


class BombError(MalformedError):
    """Decompressed, the batch would be larger than the limit."""


class Scratch:
    """Memory to decompress into again and again: new memory for each batch costs a tenth of the decompression."""

    def __init__(self) -> None:
        self._memory = bytearray()

    @property
    def size(self) -> int:
        """How much memory there is."""
        return len(self._memory)

    def of(self, size: int) -> memoryview:
        """Return a buffer of this size, valid until the next call."""
        if size > _KEPT:
            return memoryview(bytearray(size))
        if size > len(self._memory):
            self._memory = bytearray(size)  # never resized: a view of the old one may still be in use
        return memoryview(self._memory)[:size]


def compress(compression: Compression, data: Buffer, level: int | None = None) -> bytes:
    """`level` None: the codec's own default, which is Kafka's as well. Snappy and this lz4 have one level."""
    return _COMPRESS[compression](data, level)


def decompress(compression: Compression, data: Buffer, limit: int, scratch: Scratch | None = None) -> Buffer:
    """Return the decompressed data, at most `limit` bytes; with `scratch` it is valid until that is used again."""
    try:
        return _DECOMPRESS[compression](data, limit, scratch or Scratch())
    except cramjam.DecompressionError as error:
        raise MalformedError(f"{len(data)} bytes that should be {compression.name.lower()} are not: {error}") from None


def _too_large(limit: int) -> BombError:
    return BombError(f"a batch that has more than {limit} bytes when decompressed; that is the most allowed")


# --- gzip, lz4 and zstd -----------------------------------------------------------------------------------------------


def _into_growing_buffer(codec: Callable[[Buffer, memoryview], int]) -> Callable[[Buffer, int, Scratch], Buffer]:
    def decompress_within(data: Buffer, limit: int, scratch: Scratch) -> Buffer:
        size = min(limit, max(_FIRST_GUESS * len(data) + 1024, scratch.size))  # what the last batch needed
        while True:
            output = scratch.of(size)
            try:
                return output[: codec(data, output)]
            except cramjam.DecompressionError as error:
                if _TOO_SMALL not in str(error):
                    raise
            if size == limit:
                raise _too_large(limit)
            size = min(limit, _GROWTH * size)

    return decompress_within


# --- snappy -----------------------------------------------------------------------------------------------------------


def _compress_snappy(data: Buffer, _level: int | None) -> bytes:
    parts = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK]))
        parts += _INT32.pack(len(block)), block
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int, _scratch: Scratch) -> Buffer:
    """A stream of snappy-java's, or one bare block, as librdkafka writes it."""
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(view, limit, 0)
    output = bytearray()
    at = len(_XERIAL_HEADER)
    while at < len(view):
        if len(view) - at < _INT32.size:
            raise MalformedError(f"a snappy stream ends within the length of a block, at byte {at}")
        (length,) = _INT32.unpack_from(view, at)
        at += _INT32.size
        if not 0 < length <= len(view) - at:
            raise MalformedError(f"a snappy block of {length} bytes at byte {at}; {len(view) - at} bytes are left")
        output += _snappy_block(view[at : at + length], limit, len(output))
        at += length
    return output


def _snappy_block(block: memoryview, limit: int, before: int) -> bytearray:
    size = cramjam.snappy.decompress_raw_len(block)
    if before + size > limit:
        raise _too_large(limit)
    output = bytearray(size)
    cramjam.snappy.decompress_raw_into(block, output)
    return output


# --- lz4 --------------------------------------------------------------------------------------------------------------


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    """A frame of independent blocks: Kafka's Java reader refuses linked ones."""
    compressor = cramjam.lz4.Compressor(level=_LZ4_FAST if level is None else level, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


_COMPRESS: Final[dict[Compression, Callable[[Buffer, int | None], bytes]]] = {
    Compression.NONE: lambda data, _level: bytes(data),
    Compression.GZIP: lambda data, level: bytes(cramjam.gzip.compress(data, level)),
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: lambda data, level: bytes(cramjam.zstd.compress(data, level)),
}
_DECOMPRESS: Final[dict[Compression, Callable[[Buffer, int, Scratch], Buffer]]] = {
    Compression.NONE: lambda data, _limit, _scratch: data,
    Compression.GZIP: _into_growing_buffer(cramjam.gzip.decompress_into),
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _into_growing_buffer(cramjam.lz4.decompress_into),
    Compression.ZSTD: _into_growing_buffer(cramjam.zstd.decompress_into),
}
