"""Leader epochs: at which offset each leader epoch began, saved in `leader-epoch-checkpoint`.

A consumer asks where its epoch ended, and so finds out whether what it has read is still in the log (KIP-320).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from operator import itemgetter

from coterie.errors import MalformedError
from coterie.storage.files import Files, read_file, replace_file
from coterie.storage.metadata_files import decode_epochs, encode_epochs
from coterie.storage.segment_files import join

NO_EPOCH = -1
_FILE = "leader-epoch-checkpoint"


class LeaderEpochs:
    """Entries of (epoch, start offset), both rising."""

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries = entries or []
        self._kept = tuple(self.entries)
        """The entries in the file."""

    @classmethod
    def load(cls, files: Files, directory: str) -> LeaderEpochs | None:
        """Read the file; None if it is missing, empty or invalid. It is not synced: the batches have the epochs too."""
        try:
            content = read_file(files, join(directory, _FILE))
            entries = decode_epochs(content)
        except (FileNotFoundError, MalformedError):
            return None
        if not content:
            return None
        rising = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(entries))
        return cls(entries) if rising else None

    def saving(self, files: Files, directory: str) -> Callable[[], None]:
        """Return a function that writes the current entries to the file, if it does not have them."""
        if self._kept == tuple(self.entries):
            return _nothing
        self._kept = tuple(self.entries)
        content = encode_epochs(self.entries)
        # It is not synced: every batch has its epoch in its header, so it can be derived after a crash.
        return lambda: replace_file(files, join(directory, _FILE), content, sync=False)

    def at(self, offset: int) -> int:
        """Return the epoch in which a record was written."""
        before = bisect_right(self.entries, offset, key=itemgetter(1))
        return self.entries[before - 1][0] if before else NO_EPOCH

    @property
    def latest(self) -> int:
        return self.entries[-1][0] if self.entries else NO_EPOCH

    def assign(self, epoch: int, start: int) -> bool:
        """Note that an epoch begins at `start`; return whether it is new. Epochs without records are dropped."""
        if epoch <= self.latest:
            return False
        while self.entries and self.entries[-1][1] >= start:
            self.entries.pop()
        self.entries.append((epoch, start))
        return True

    def cut_end(self, log_end_offset: int) -> bool:
        """Drop the epochs that begin at or after the new end of the log; return whether there were any."""
        before = len(self.entries)
        self.entries = [entry for entry in self.entries if entry[1] < log_end_offset]
        return len(self.entries) != before

    def cut_start(self, log_start_offset: int) -> bool:
        """Drop the epochs that ended before the new log start; the one that has it now begins there."""
        first = max(bisect_right(self.entries, log_start_offset, key=itemgetter(1)) - 1, 0)
        kept = [(epoch, max(start, log_start_offset)) for epoch, start in self.entries[first:]]
        changed, self.entries = kept != self.entries, kept
        return changed

    def end_of(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch up to `epoch` and where it ended; (-1, -1) if there is none."""
        if epoch < 0 or not self.entries or epoch > self.latest:
            return NO_EPOCH, -1
        after = bisect_right(self.entries, epoch, key=itemgetter(0))
        if after == len(self.entries):
            return self.latest, log_end_offset
        if after == 0:
            return epoch, self.entries[0][1]
        return self.entries[after - 1][0], self.entries[after][1]


def _nothing() -> None:
    """Do nothing, because the file is up to date."""
