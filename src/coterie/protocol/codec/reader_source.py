"""Readers made from a message's fields: `read(frame, at)` returns the message and the position after it.

A reader is made as source and compiled; `python_source.py` says why. Numbers that stand side by side, the length of
what comes next among them, are taken at once. What is usual is dealt with in place, what is rare (long, null or tagged)
is left to functions. The reader of a Metadata request, version 12:

    def read(frame, at):
        value = new_Request()
        n = frame[at]
        at += 1
        if 0 < n < 128:
            n = n - 1
        else:
            n, at = read_count(frame, at - 1)
        if n is None:
            value.topics = None
        else:
            count = n
            if count > 100000:
                raise too_many(100000)
            value.topics = list1 = []
            for _ in range(n):
                value1 = new_Topic()
                raw0, n = unpack_16sB(frame, at)
                at += 17
                value1.topic_id = uuid(raw0)
                if 0 < n < 128:
                    end = at + n - 1
                    value1.name = text_of(frame[at:end])
                    at = end
                else:
                    value1.name, at = read_compact_string(frame, at - 1)
                tags = frame[at]
                at += 1
                if tags:
                    _, at = read_tags(frame, at - 1)
                list1.append(value1)
        value.allow_auto_topic_creation, value.include_topic_authorized_operations, tags = unpack_ttB(frame, at)
        at += 3
        if tags:
            _, at = read_tags(frame, at - 1)
        return value, at

See `coterie.protocol.buffer` for why readers may run past the end, and who notices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, lru_cache
from typing import Any, get_args, get_origin
from uuid import UUID

from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.buffer import Encoding, read_tags, text_of
from coterie.protocol.codec.fields import MessageField, is_message, is_records, members, number_format, present
from coterie.protocol.codec.python_source import Source, repeated, shape
from coterie.structs import REQUIRED

# What the sources that `reader_source.py` makes call: values that are no plain numbers, and all that is rare.

Read = Callable[[bytes, int], tuple[Any, int]]

_ZERO_UUID = bytes(16)


class _Errors(dict[int, ErrorCode]):
    def __missing__(self, code: int) -> ErrorCode:
        return ErrorCode.UNKNOWN_SERVER_ERROR  # a newer broker may know more codes


ERRORS = _Errors({int(code): code for code in ErrorCode})


@lru_cache(maxsize=1024)
def uuid(data: bytes) -> UUID | None:
    """Return a UUID from a cache: the same topics recur, and making one takes longer than a small message."""
    return None if data == _ZERO_UUID else UUID(bytes=data)


def too_many(most: int) -> MalformedError:
    return MalformedError(f"a request lists more than {most} entries, which is the most allowed; ask in several")


@cache
def never_null(read: Read, field: str, version: int) -> Read:
    def read_present(frame: bytes, at: int) -> tuple[Any, int]:
        value, end = read(frame, at)
        if value is None:
            raise MalformedError(f"{field} at byte {at} is null, which version {version} does not allow")
        return value, end

    return read_present


@cache
def count_reader(encoding: Encoding, size: int) -> Read:
    """Return the reader of a list's length. A long list must fit into the frame, with `size` bytes or more an entry.

    A short one needs no such care: what is not there raises when it is read.
    """

    def read_count(frame: bytes, at: int) -> tuple[int | None, int]:
        length, at = encoding.read_length(frame, at)
        if length < 0:
            return None, at
        if length * size > len(frame) - at:
            raise IndexError
        return length, at

    return read_count


@cache
def records_reader(encoding: Encoding) -> Read:
    def read_records(frame: bytes, at: int) -> tuple[memoryview | None, int]:
        length, at = encoding.read_length(frame, at)
        if length < 0:
            return None, at
        return memoryview(frame)[at : at + length], at + length

    return read_records


MAX_ENTRIES = 100_000
"""The number of entries that a request may list, nested ones counted: an entry costs a hundred times the memory of its
bytes, and time in which the broker answers no other client. The largest topic has a tenth as many partitions."""
NO_LIMIT = 1 << 31

# A length: its struct code, when it is short and not null, what it then says, and how many bytes it took.
_COMPACT = "B", "0 < n < 128", "n - 1", 1
_OLD_LIST = "i", "0 <= n < 128", "n", 4
_OLD_BYTES = "i", "n >= 0", "n", 4
_OLD_STRING = "h", "n >= 0", "n", 2


@cache
def message_reader(message: type, version: int, encoding: Encoding, most: int = NO_LIMIT) -> Read:
    """`most`: how many entries a list may have, with those of the lists inside it."""
    read: Read = reader_source(message, version, encoding, most).function(f"reader of {message}, version {version}")
    return read


def reader_source(hint: Any, version: int, encoding: Encoding, most: int = NO_LIMIT) -> Source:
    """Make the reader of a message, or of the value of a tagged field."""
    reader = _Reader(version, encoding, most)
    reader.value(hint, "value", "", null=not is_message(hint))
    reader.flush()
    reader.source.line("return value, at")
    return reader.source


@cache
def _template(message: type) -> Any:
    """Return a message with the default of each field, or None where it has none."""
    return message(**{member.name: None for member in members(message) if member.default is REQUIRED})


class _Reader:
    """Writes down how to read; `to` is where the source puts a value: a variable, or an attribute of one."""

    def __init__(self, version: int, encoding: Encoding, most: int) -> None:
        self.source = Source("read(frame, at)")
        self._version = version
        self._encoding = encoding
        self._most = most
        self._run: list[tuple[str, str]] = []  # numbers side by side: the struct code, and where each goes
        self._then: list[str] = []  # what is to be done when they have been taken
        self._lists = 0  # that we are inside of
        self._values = 0  # that are not complete yet

    # --- numbers side by side -----------------------------------------------------------------------------------------

    def _take(self, code: str, to: str) -> None:
        self._run.append((code, to))

    def _take_raw(self, code: str, to: str, finish: str) -> None:
        """Read a field of fixed size that is no plain number; `finish` converts it."""
        raw = f"raw{len(self._then)}"
        self._take(code, raw)
        self._then.append(f"{to} = {finish.format(raw)}")

    def flush(self) -> None:
        if not self._run:
            return
        layout = "".join(code for code, _ in self._run)
        if layout == "B":
            self.source.line(f"{self._run[0][1]} = frame[at]")
        else:
            unpack = self.source.use(shape(layout).unpack_from, f"unpack_{layout}")
            targets = ", ".join(to for _, to in self._run) + ("," if len(self._run) == 1 else "")
            self.source.line(f"{targets} = {unpack}(frame, at)")
        self.source.line(f"at += {shape(layout).size}")
        for line in self._then:
            self.source.line(line)
        self._run, self._then = [], []

    # --- messages -----------------------------------------------------------------------------------------------------

    def _message(self, message: type, to: str) -> None:
        """Copy a message with all defaults, and set its attributes one by one as they are read."""
        assert not hasattr(message, "__post_init__"), f"{message} would be made without it"
        source, version = self.source, self._version
        value = to
        if "." in to:
            self._values += 1
            value = f"value{self._values}"
        source.line(f"{value} = {source.use(_template(message).__copy__, f'new_{message.__name__}')}()")
        here = present(message, version, tagged=False)
        for member in here:
            self.value(member.type, f"{value}.{member.name}", member.name, null=member.may_be_null(version))
        if self._encoding.flexible:
            self._take("B", "tags")
        self.flush()
        for member in members(message):
            assert member in here or member.default is not REQUIRED, f"{message}.{member.name} needs a default"
        if self._encoding.flexible:
            with source.block("if tags:"):
                self._tags(message, value)
        if "." in to:
            source.line(f"{to} = {value}")
            self._values -= 1

    def _tags(self, message: type, value: str) -> None:
        source = self.source
        if tagged := present(message, self._version, tagged=True):
            read = _tags_reader(tagged, self._version, self._encoding, self._most)
            source.line(f"at = {source.use(read, f'read_tags_of_{message.__name__}')}(frame, at - 1, {value})")
        else:
            source.line(f"_, at = {source.use(read_tags, 'read_tags')}(frame, at - 1)")

    # --- values -------------------------------------------------------------------------------------------------------

    def value(self, hint: Any, to: str, field: str, *, null: bool) -> None:
        if hint is ErrorCode:
            self._take_raw("h", to, f"{self.source.use(ERRORS, 'errors')}[{{}}]")
        elif hint is UUID:
            self._take_raw("16s", to, f"{self.source.use(uuid, 'uuid')}({{}})")
        elif code := number_format(hint):
            self._take(code, to)
        elif get_origin(hint) is Sequence:
            self._list(get_args(hint)[0], to, field, null=null)
        elif not is_message(hint):
            self._bytes(hint, to, field, null=null)
        else:
            assert isinstance(hint, type)
            if null:
                self._take("b", "given")  # a byte before it: negative is null (KIP-893)
                self.flush()
                with self.source.block("if given < 0:"):
                    self.source.line(f"{to} = None")
            with self.source.block("else:") if null else nullcontext():
                self._message(hint, to)

    def _bytes(self, hint: Any, to: str, field: str, *, null: bool) -> None:
        """Text, bytes or records: taken in place if short and there, else by a function."""
        assert hint in {str, bytes} or is_records(hint), f"{field}: nothing on the wire is a {hint}"
        source = self.source
        read: Read
        if hint is str:
            read, take = self._encoding.read_string, f"{source.use(text_of, 'text_of')}(frame[at:end])"
        elif hint is bytes:
            read, take = self._encoding.read_bytes, "frame[at:end]"
        else:
            read, take = records_reader(self._encoding), "memoryview(frame)[at:end]"
        old = _OLD_STRING if hint is str else _OLD_BYTES
        code, short, length, back = _COMPACT if self._encoding.flexible else old
        self._take(code, "n")
        self.flush()
        with source.block(f"if {short}:"):
            source.line(f"end = at + {length}")
            source.line(f"{to} = {take}")
            source.line("at = end")
        with source.block("else:"):
            source.line(f"{to}, at = {self._checked(read, field, null=null)}(frame, at - {back})")

    def _checked(self, read: Read, field: str, *, null: bool) -> str:
        name = read.__name__.strip("_")
        if null:
            return self.source.use(read, name)
        return self.source.use(never_null(read, field, self._version), f"{name}_for_{field}")

    # --- lists --------------------------------------------------------------------------------------------------------

    def _list(self, hint: Any, to: str, field: str, *, null: bool) -> None:
        source = self.source
        read = count_reader(self._encoding, shape(number_format(hint) or "x").size)
        code, short, length, back = _COMPACT if self._encoding.flexible else _OLD_LIST
        self._take(code, "n")
        self.flush()
        with source.block(f"if {short}:"):
            source.line(f"n = {length}")
        with source.block("else:"):
            source.line(f"n, at = {self._checked(read, field, null=null)}(frame, at - {back})")
        if null:
            with source.block("if n is None:"):
                source.line(f"{to} = None")
        with source.block("else:") if null else nullcontext():
            self._elements(hint, to)

    def _elements(self, hint: Any, to: str) -> None:
        source = self.source
        if self._most < NO_LIMIT:
            source.line("count += n" if self._lists else "count = n")
            with source.block(f"if count > {self._most}:"):
                source.line(f"raise {source.use(too_many, 'too_many')}({self._most})")
        if code := number_format(hint):
            source.line(f"{to} = list({source.use(repeated(code), f'many_{code}')}[n].unpack_from(frame, at))")
            source.line(f"at += n * {shape(code).size}")
            return
        self._lists += 1
        self._values += 1
        element, elements = f"value{self._values}", f"list{self._values}"
        source.line(f"{to} = {elements} = []")
        with source.block("for _ in range(n):"):
            self.value(hint, element, "an element", null=hint is UUID)
            self.flush()
            source.line(f"{elements}.append({element})")
        self._values -= 1
        self._lists -= 1


def _tags_reader(
    tagged: Sequence[MessageField], version: int, encoding: Encoding, most: int
) -> Callable[[bytes, int, Any], int]:
    """Tagged fields are rare: their readers are made when the first one comes."""

    def read_into(frame: bytes, at: int, value: Any) -> int:
        positions, at = read_tags(frame, at)
        for member in tagged:
            if member.wire.tag in positions:
                read = message_reader(member.type, version, encoding, most)
                setattr(value, member.name, read(frame, positions[member.wire.tag])[0])
        return at

    return read_into
