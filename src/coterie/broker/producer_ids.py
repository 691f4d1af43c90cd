"""Producer ids: each is given out once, ever. Whole blocks are kept: a crash wastes some and repeats none."""

from __future__ import annotations

from coterie.errors import MalformedError
from coterie.log import Files, LogWriteError
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

    def next(self) -> int:
        if self._next == self._end:
            try:
                replace_file(self._files, FILE, encode_properties({"next": str(self._end + BLOCK)}))
            except OSError as error:
                raise LogWriteError.of(f"cannot write {FILE}", error) from error
            self._end += BLOCK
        self._next += 1
        return self._next - 1
