"""Bytes of a stranger: a message or `MalformedError`, nothing else, and no memory on the word of a length."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from random import Random  # noqa: TID251  (hypothesis throws the rng)
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.protocol.apis import APIS, Api, offset_commit
from protocol.apis.oracle import DIRECTIONS, kio_bytes, kio_message, our_codec, random_message, served

ABSURD = (
    struct.pack(">i", 2**31 - 1),  # an old length
    struct.pack(">h", 2**15 - 1),
    b"\xff\xff\xff\xff\x07",  # 2^31 - 1 as a varint
    b"\xff\xff\xff\xff\x0f",  # 2^32 - 1
    b"\xff" * 12,  # a varint that does not end
)
ENOUGH = 2_000_000
"""Bytes. Had any of the lengths been believed, it would have been 2^31 times eight."""

readers = [pytest.param(api, direction, id=f"{api.name}{direction}") for api in APIS for direction in DIRECTIONS]


def survives(read: Callable[[bytes, int, int], Any], frame: bytes, version: int) -> bool:
    try:
        read(frame, 0, version)
    except MalformedError:
        return False
    return True


@pytest.mark.parametrize(("api", "direction"), readers)
@settings(max_examples=3, deadline=None)
@given(rng=st.randoms(use_true_random=True))
def test_a_message_cut_short_is_malformed(api: Api, direction: str, rng: Random) -> None:
    """Every field but the last tagged ones is needed, so nothing shorter is a message."""
    read, _ = our_codec(api, direction)
    for version in served(api):
        data = kio_bytes(random_message(kio_message(api, version, direction), rng))
        for length in range(0, len(data), max(1, len(data) // 20)):
            assert not survives(read, data[:length], version), f"version {version}: {length} of {len(data)}"


@pytest.mark.parametrize(("api", "direction"), readers)
@settings(max_examples=2, deadline=None)
@given(rng=st.randoms(use_true_random=True))
def test_an_absurd_length_anywhere_costs_nothing(api: Api, direction: str, rng: Random) -> None:
    read, _ = our_codec(api, direction)
    for version in {*served(api)[:1], *served(api)[-1:]}:
        data = kio_bytes(random_message(kio_message(api, version, direction), rng))
        survives(read, data, version)  # what is made on first use is made
        tracemalloc.start()
        try:
            for absurd in ABSURD:
                for at in range(0, len(data), max(1, len(data) // 40)):
                    survives(read, data[:at] + absurd + data[at + len(absurd) :], version)
                    survives(read, data[:at] + absurd, version)
            assert tracemalloc.get_traced_memory()[1] < ENOUGH
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(("api", "direction"), readers)
@given(frame=st.binary(max_size=200))
@settings(max_examples=10, deadline=None)
def test_noise_is_read_or_refused(api: Api, direction: str, frame: bytes) -> None:
    read, _ = our_codec(api, direction)
    for version in served(api):
        survives(read, frame, version)


@pytest.mark.parametrize("version", offset_commit.API.versions)
def test_a_commit_of_two_thousand_million_topics_costs_nothing(version: int) -> None:
    """The reader written out by hand has the same guard."""
    flexible = version >= offset_commit.API.flexible
    head = b"\2g\0\0\0\1\2m" if flexible else b"\0\1g\0\0\0\1\0\1m"
    head += (b"\0" if flexible else b"\xff\xff") if version >= 7 else b""
    head += bytes(8) if version <= 4 else b""
    frame = head + (b"\xff\xff\xff\xff\x0f" if flexible else b"\x7f\xff\xff\xff")
    tracemalloc.start()
    try:
        with pytest.raises(MalformedError, match="ends before its fields do"):
            offset_commit.read_request(frame, 0, version, None)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_text_longer_than_kafka_allows_is_malformed() -> None:
    """The compact form could say more than the old one's int16; Kafka's readers refuse it."""
    from coterie.protocol.apis import heartbeat

    frame = b"\x81\x80\x02" + b"g" * 0x8000 + bytes(20)
    with pytest.raises(MalformedError, match="32767 are allowed"):
        heartbeat.read_request(frame, 0, 4, None)


def test_null_where_a_version_has_none_is_malformed() -> None:
    from coterie.protocol.apis import create_topics

    with pytest.raises(MalformedError, match="topics at byte 0 is null, which version 5 does not allow"):
        create_topics.read_request(b"\0", 0, 5)


def test_text_that_is_no_utf8_is_read_as_java_reads_it() -> None:
    from coterie.protocol.apis import describe_groups

    (word,) = describe_groups.read_request(b"\0\0\0\1\0\2a\xff", 0, 0, None)
    assert word.group_id == "a\N{REPLACEMENT CHARACTER}"


def test_text_that_is_no_utf8_and_could_not_be_said_back_is_malformed() -> None:
    """Each bad byte would become three."""
    from coterie.protocol.apis import describe_groups

    with pytest.raises(MalformedError, match="20000 bytes that is not UTF-8"):
        describe_groups.read_request(b"\0\0\0\1" + (20_000).to_bytes(2, "big") + b"\xff" * 20_000, 0, 0, None)


def test_unknown_tagged_fields_are_stepped_over() -> None:
    """Rule C7."""
    from coterie.protocol.apis import heartbeat

    known = b"\2g\0\0\0\1\2m\0"
    plain = heartbeat.read_request(known + b"\0", 0, 4, None)
    assert heartbeat.read_request(known + b"\2\5\3abc\x81\1\0", 0, 4, None) == plain
    with pytest.raises(MalformedError):
        heartbeat.read_request(known + b"\2\5\3abc\x81\1\1", 0, 4, None)
