"""The four compressions: both ways, as other clients frame them, and never beyond the limit."""

from __future__ import annotations

import gzip
import hashlib

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.protocol.batch import Compression
from coterie.protocol.compression import BombError, Scratch, compress, decompress

REAL = [each for each in Compression if each is not Compression.NONE]
ENOUGH = 10_000_000


@given(st.binary(max_size=2000), st.integers(1, 200), st.sampled_from(Compression))
def test_both_ways(data: bytes, times: int, compression: Compression) -> None:
    plain = data * times
    assert bytes(decompress(compression, compress(compression, plain), ENOUGH)) == plain


@pytest.mark.parametrize("compression", REAL)
def test_the_limit_holds_to_the_byte(compression: Compression) -> None:
    packed = compress(compression, bytes(100_000))
    assert len(bytes(decompress(compression, packed, 100_000))) == 100_000
    with pytest.raises(BombError, match="more than 99999 bytes"):
        decompress(compression, packed, 99_999)


@pytest.mark.parametrize("compression", REAL)
def test_a_bomb_is_refused_without_being_unpacked(compression: Compression) -> None:
    """Nothing is allocated beyond the limit: with it at 1 MiB this ends at once, whatever the bomb holds."""
    bomb = compress(compression, bytes(50_000_000))
    with pytest.raises(BombError):
        decompress(compression, bomb, 1024 * 1024)


@pytest.mark.parametrize("compression", REAL)
@pytest.mark.parametrize("garbage", [b"", b"not compressed at all", bytes(range(256))])
def test_garbage_is_malformed(compression: Compression, garbage: bytes) -> None:
    with pytest.raises(MalformedError):
        decompress(compression, garbage, ENOUGH)


@pytest.mark.parametrize("compression", REAL)
def test_a_stream_cut_short_is_malformed(compression: Compression) -> None:
    packed = compress(compression, bytes(range(256)) * 200)
    with pytest.raises(MalformedError):
        decompress(compression, packed[:-5], ENOUGH)


def test_snappy_is_framed_as_snappy_java_does_it() -> None:
    """Header, then blocks of at most 32 KiB with their length; librdkafka sends one bare block instead."""
    plain = bytes(range(256)) * 400
    framed = compress(Compression.SNAPPY, plain)
    assert framed[:16] == b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2
    at, blocks = 16, []
    while at < len(framed):
        length = int.from_bytes(framed[at : at + 4], "big")
        blocks.append(bytes(cramjam.snappy.decompress_raw(framed[at + 4 : at + 4 + length])))
        at += 4 + length
    assert b"".join(blocks) == plain and [len(block) for block in blocks] == [32768, 32768, 32768, 4096]
    bare = bytes(cramjam.snappy.compress_raw(plain))
    assert bytes(decompress(Compression.SNAPPY, bare, ENOUGH)) == plain


@pytest.mark.parametrize(
    "blocks", [b"\x00\x00", b"\x00\x00\x00\x09abc", b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x01\xff"]
)
def test_snappy_blocks_that_do_not_add_up_are_malformed(blocks: bytes) -> None:
    with pytest.raises(MalformedError):
        decompress(Compression.SNAPPY, compress(Compression.SNAPPY, b"")[:16] + blocks, ENOUGH)


def test_a_snappy_stream_of_many_blocks_cannot_pass_the_limit_together() -> None:
    with pytest.raises(BombError):
        decompress(Compression.SNAPPY, compress(Compression.SNAPPY, bytes(100_000)), 50_000)


def test_lz4_blocks_are_independent() -> None:
    """Kafka's Java reader refuses a frame whose flags lack this bit."""
    frame = compress(Compression.LZ4, b"x" * 200_000)
    assert frame[:4] == b"\x04\x22\x4d\x18" and frame[4] & 0x20


@pytest.mark.parametrize("size", [0, 1, 100, 65_535, 65_536, 65_537, 300_000])
def test_lz4_frames_are_read_by_others(size: int) -> None:
    """As the reference library reads them: what shrinks, and what does not and is stored as it is."""
    for plain in (bytes(size), hashlib.shake_256(b"noise").digest(size)):
        frame = compress(Compression.LZ4, plain)
        assert lz4.frame.decompress(frame) == plain
        assert len(frame) <= size + 15 + 8 * (size // 65_536 + 1)


def test_gzip_of_other_makers_is_read() -> None:
    assert bytes(decompress(Compression.GZIP, gzip.compress(b"hello"), ENOUGH)) == b"hello"


@pytest.mark.parametrize("size", [1, 10_000, 1_000_000])
def test_output_grows_to_what_is_needed(size: int) -> None:
    packed = compress(Compression.ZSTD, bytes(size))
    assert len(bytes(decompress(Compression.ZSTD, packed, ENOUGH))) == size


def test_memory_is_used_again_and_the_limit_still_holds() -> None:
    """A scratch that is larger than the limit must not let more through; nor may old content shine through."""
    scratch = Scratch()
    for compression in REAL:
        large, small = compress(compression, b"L" * 50_000), compress(compression, b"s" * 100)
        assert bytes(decompress(compression, large, ENOUGH, scratch)) == b"L" * 50_000
        assert bytes(decompress(compression, small, ENOUGH, scratch)) == b"s" * 100
        with pytest.raises(BombError):
            decompress(compression, large, 40_000, scratch)
    assert scratch.of(10).obj is scratch.of(20).obj
    assert scratch.of(100_000_000).obj is not scratch.of(100_000_000).obj, "what is huge is not kept"


class Counted(Scratch):
    """Counts how often memory was asked for: each time the codec begins anew."""

    times = 0

    def of(self, size: int) -> memoryview:
        self.times += 1
        return super().of(size)


def test_a_batch_that_shrinks_as_much_as_the_one_before_is_decompressed_once() -> None:
    scratch = Counted()
    for compression in (Compression.GZIP, Compression.LZ4, Compression.ZSTD):
        packed = compress(compression, b"repeats " * 100_000)
        decompress(compression, packed, ENOUGH, scratch)
        scratch.times = 0
        assert len(decompress(compression, packed, ENOUGH, scratch)) == 800_000
        assert scratch.times == 1, compression


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZSTD], ids=lambda each: each.name)
def test_a_higher_level_compresses_more(compression: Compression) -> None:
    """`compression.gzip.level` and its sisters."""
    words = (b"alpha ", b"beta ", b"gamma ", b"delta ")
    data = b"".join(words[number * number % 7 % 4] + b"%d" % (number * 7919 % 1000) for number in range(5_000))
    small, large = (compress(compression, data, level) for level in (9, 1))
    assert len(small) < len(large) < len(data)
    for packed in (small, large):
        assert bytes(decompress(compression, packed, len(data))) == data
