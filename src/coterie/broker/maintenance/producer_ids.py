"""Producer ids: each is given out once, ever. Whole blocks are kept: a crash wastes some and repeats none."""

from __future__ import annotations

from coterie.storage import DiskChange, DurableEnds, Files, LogWriteError
from coterie.storage.durable_ends import PRODUCER_IDS_END
from coterie.storage.metadata_files import PRODUCER_IDS, decode_properties, encode_properties

__all__ = ["ProducerIds"]

BLOCK = 1_000
_MOST_SEEN = 2**62
"""A client may write any producer id. An id that leaves no room for larger ones does not count."""


class ProducerIds:
    def __init__(self, files: Files, highest_seen: int = -1, ends: DurableEnds | None = None) -> None:
        """`highest_seen` is the highest id in the logs: if the file says less, it is gone or an old copy.

        `ends` has up to where ids were given out as well.
        """
        self._files = files
        self._ends = ends
        kept = ends.end_of(PRODUCER_IDS_END) if ends is not None else 0
        self._next = self._end = max(self._read(), kept, highest_seen + 1 if highest_seen < _MOST_SEEN else 0)

    def _read(self) -> int:
        if not self._files.exists(PRODUCER_IDS.path):
            return 0
        content = PRODUCER_IDS.read(self._files)
        try:
            found = int(decode_properties(content.payload)["next"])
        except (KeyError, ValueError) as error:
            raise PRODUCER_IDS.damaged(f"is not what we write: {error!r}") from None
        PRODUCER_IDS.renew(self._files, content)
        return found

    @property
    def is_empty(self) -> bool:
        return self._next == self._end

    def next(self) -> int | None:
        """None if the block is used up: then `another_block` comes first."""
        if self.is_empty:
            return None
        self._next += 1
        return self._next - 1

    def another_block(self) -> DiskChange[None]:
        end = self._end + BLOCK

        def work() -> None:
            try:
                PRODUCER_IDS.write(self._files, encode_properties({"next": str(end)}))
            except OSError as error:
                raise LogWriteError.of(f"cannot write {PRODUCER_IDS.path}", error) from error
            if self._ends is not None:
                self._ends.add([(PRODUCER_IDS_END, end)])

        def take(_: None) -> None:
            self._end = end

        return DiskChange(work, take)
