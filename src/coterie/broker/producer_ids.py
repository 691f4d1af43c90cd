"""Producer ids: each is given out once, ever. Whole blocks are kept: a crash wastes some and repeats none."""

from __future__ import annotations

from coterie.errors import MalformedError
from coterie.log import Change, Files, LogWriteError
from coterie.log.checkpoints import decode_properties, encode_properties
from coterie.log.files import read_file, replace_file

__all__ = ["ProducerIds"]

FILE = "coterie-producer-ids.properties"
BLOCK = 1_000


class ProducerIds:
    def __init__(self, files: Files) -> None:
        self._files = files
        self._next = self._end = self._read()

    def _read(self) -> int:
        if not self._files.exists(FILE):
            return 0
        try:
            return int(decode_properties(read_file(self._files, FILE))["next"])
        except (KeyError, ValueError) as error:
            raise MalformedError(f"{FILE} is not what we write: {error!r}") from None

    @property
    def is_empty(self) -> bool:
        return self._next == self._end

    def next(self) -> int | None:
        """None if the block is used up: then `another_block` comes first."""
        if self.is_empty:
            return None
        self._next += 1
        return self._next - 1

    def another_block(self) -> Change[None]:
        end = self._end + BLOCK

        def work() -> None:
            try:
                replace_file(self._files, FILE, encode_properties({"next": str(end)}))
            except OSError as error:
                raise LogWriteError.of(f"cannot write {FILE}", error) from error

        def take(_: None) -> None:
            self._end = end

        return Change(work, take)
