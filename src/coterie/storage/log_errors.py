"""The errors of logs and data directories; `code` is what a client gets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from coterie.errors import CoterieError, ErrorCode


class LogError(CoterieError):
    """Base of the errors of this package."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class RefusedError(LogError):
    """A batch that breaks a rule of this log (its size, its time, its producer's sequence); the log is untouched."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class LogOffsetOutOfRangeError(LogError):
    """The log does not have this offset yet, or no longer."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class DiskError(LogError):
    """The disk refused: it is full, broken or missing."""

    code = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(self, message: str, errno: int | None) -> None:
        super().__init__(message)
        self.errno = errno

    @classmethod
    def of(cls, doing: str, error: OSError) -> Self:
        return cls(f"{doing}: {error.strerror or error}", error.errno)


class LogWriteError(DiskError):
    """A write failed. The log was cut back to its last valid end, and the write can be tried again later."""


class LogReadError(DiskError):
    """The log cannot be read now."""


class DirectoryError(LogError):
    """The data directory cannot be used: locked, written by another program, or by a later version."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class LaterFormatError(DirectoryError):
    """The file was written by a later version of this package."""


class DamagedFileError(DirectoryError):
    """A file is missing or not as it was written: nothing is concluded from it, and nothing is changed."""

    def __init__(self, path: str, wrong: str, holds: str, repairs: str) -> None:
        super().__init__(
            f"{path} {wrong}. It holds {holds}. Nothing was changed. Bring the file back from a copy, or run "
            f"`coterie repair` on the data directory: {repairs}"
        )
        self.path = path
        self.wrong = wrong


@contextmanager
def writing(doing: str) -> Iterator[None]:
    """Turn an `OSError` into a `LogWriteError` that says what was being done."""
    try:
        yield
    except OSError as error:
        raise LogWriteError.of(doing, error) from error
