"""The sources that readers and writers are made from."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.apis import Api, by_key, fetch, metadata
from coterie.protocol.apis.__main__ import main, page, sources
from coterie.protocol.buffer import COMPACT, OLD, Encoding
from coterie.protocol.codec import reader_source as reading
from coterie.protocol.codec import writer_source as writing
from coterie.protocol.codec.codec import encoding_of
from coterie.protocol.codec.fields import Int8, Int32, message, wire
from coterie.protocol.codec.python_source import Source
from coterie.protocol.codec.reader_source import message_reader, reader_source
from coterie.protocol.codec.writer_source import message_writer, writer_source
from protocol.apis.oracle import every_message, our_message

ENCODINGS = [pytest.param(OLD, id="old"), pytest.param(COMPACT, id="compact")]


@message
class Inner:
    names: Sequence[str]
    numbers: Sequence[Int32] | None = None


@message
class Outer:
    inners: Sequence[Inner]
    inner: Inner | None = None
    ids: Sequence[UUID] = ()
    error: ErrorCode = wire(since=1, default=ErrorCode.NONE)
    late: Sequence[Inner] = wire(since=2, tag=3, default=())


def written(value: Any, version: int, encoding: Encoding) -> bytes:
    parts: list[bytes | memoryview] = []
    kind: Any = type(value)
    message_writer(kind, version, encoding)(parts.append, value)
    return b"".join(parts)


@pytest.mark.parametrize(("module", "made"), [(reading, reader_source), (writing, writer_source)])
def test_the_example_in_the_docstring_is_what_is_made(module: ModuleType, made: object) -> None:
    shown = sources(metadata.API, 12).split("\n\n")
    function = next(
        part for part in shown if part.strip().startswith("def read" if made is reader_source else "def write")
    )
    assert indent(function.strip(), "    ") in (module.__doc__ or "")


def test_every_source_can_be_printed() -> None:
    assert "value1.topic_id = uuid(raw0)" in main(["fetch", "17"])
    assert main(["Fetch", "17"]) == main(["fetch", "17"])
    assert main([]) == page()
    for wrong in (["fetch"], ["fetch", "99"], ["fetch", "x"], ["nothing", "1"]):
        with pytest.raises(SystemExit, match="usage"):
            main(wrong)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("version", [0, 1])
def test_messages_within_messages_come_back(version: int, encoding: Encoding) -> None:
    for names in ([], [""], ["a", "é" * 70], ["x" * 126, "x" * 127, "x" * 128], [str(n) for n in range(200)]):
        for numbers in (None, [], [1, -2], list(range(126)), list(range(127)), list(range(1000))):
            inner = Inner(names=names, numbers=numbers)
            value = Outer(inners=[inner, inner], inner=inner if names else None, ids=[UUID(int=7)] * len(names))
            data = written(value, version, encoding)
            assert message_reader(Outer, version, encoding)(b"??" + data, 2) == (value, len(data) + 2)


def test_a_list_in_a_tagged_field_comes_back() -> None:
    value = Outer(inners=[], ids=[], late=[Inner(names=["a"]), Inner(names=[], numbers=[1])])
    data = written(value, 2, COMPACT)
    assert message_reader(Outer, 2, COMPACT)(data, 0) == (value, len(data))
    assert message_reader(Outer, 1, COMPACT)(data, 0)[0].late == (), "a version without it does not look at it"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_entries_of_inner_lists_count(encoding: Encoding) -> None:
    data = written(Outer(inners=[Inner(names=["a"] * 3, numbers=[1] * 4)] * 2), 0, encoding)  # 2 + 2 * (3 + 4)
    assert len(message_reader(Outer, 0, encoding, 16)(data, 0)[0].inners) == 2
    with pytest.raises(MalformedError, match="more than 15 entries"):
        message_reader(Outer, 0, encoding, 15)(data, 0)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_null_says_where_it_is_and_that_it_is_not_allowed(encoding: Encoding) -> None:
    told = written(Outer(inners=[Inner(names=["?"])]), 0, encoding)
    where = rf"an element at byte {2 * len(encoding.length(0))} is null, which version 0 does not allow"
    with pytest.raises(MalformedError, match=where):
        message_reader(Outer, 0, encoding)(told.replace(encoding.string("?"), encoding.string(None)), 0)
    with pytest.raises(MalformedError, match="inners at byte 0 is null, which version 0 does not allow"):
        message_reader(Outer, 0, encoding)(encoding.length(-1) + b"\0" * 20, 0)
    with pytest.raises(ValueError, match=r"Inner\.names is None, which version 0 cannot say"):
        written(Outer(inners=[Inner(names=None)]), 0, encoding)  # type: ignore[arg-type]


def test_an_error_of_a_newer_broker_is_unknown() -> None:
    data = written(Outer(inners=[], error=ErrorCode.NOT_COORDINATOR), 1, OLD)
    assert message_reader(Outer, 1, OLD)(data, 0)[0].error is ErrorCode.NOT_COORDINATOR
    assert message_reader(Outer, 1, OLD)(data[:-2] + b"\x7f\xff", 0)[0].error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_records_are_views_when_read_and_stay_where_they_are_when_written() -> None:
    records = bytes(500)
    part = fetch.FetchedPartition(partition=0, records=records)
    reply = fetch.Response(responses=[fetch.FetchedTopic(topic_id=UUID(int=1), partitions=[part])])
    parts = fetch.write_response_parts(reply, 17)
    assert any(one is records for one in parts)
    read = fetch.read_response(b"".join(parts), 0, 17).responses[0].partitions[0].records
    assert isinstance(read, memoryview) and read == records


def test_what_cannot_be_on_the_wire_is_our_mistake() -> None:
    @message
    class Vague:
        number: int

    @message
    class Late:
        number: Int8 = wire(since=1)

    @message
    class Busy:
        number: Int8

        def __post_init__(self) -> None: ...

    Vague.__annotations__ = {"number": int}
    for made, complaint in ((Vague, "nothing on the wire"), (Late, "needs a default"), (Busy, "without it")):
        with pytest.raises(AssertionError, match=complaint):
            message_reader(made, 0, OLD)


def test_equal_names_of_different_things_are_told_apart() -> None:
    source = Source("f()")
    assert [source.use(thing, "x") for thing in (min, max, min, 5, "five", ())] == ["x", "x_", "x", "5", "'five'", "()"]
    source.line("return x(1, 2), x_(1, 2)")
    assert source.function("a test")() == (1, 2)


def test_a_message_without_fields_is_written_as_nothing() -> None:
    api = by_key[16]
    assert written(our_message(api, "Request")(), 0, encoding_of(api, 0)) == b""


@pytest.mark.parametrize("api", {api.name: api for api, _, _ in every_message()}.values(), ids=lambda api: api.name)
def test_every_version_of_every_api_has_sources(api: Api) -> None:
    for version in api.versions:
        compile(sources(api, version), api.name, "exec")
