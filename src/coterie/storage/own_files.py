"""Small files of ours in a data directory: a first line with a checksum, then text or JSON.

    # coterie-topics.json version 2 crc32c 1c291ca3
    {"topics": ...}

The checksum is of the first line up to it and of all that follows, so a file that was changed, cut or put in another's
place is told from one that we wrote. The line is a comment in Kafka's `.properties` files. Files of an earlier release
have no such line; they are read as version 1, and get one when they are written again.

A write is a new file that is synced, renamed and has its directory synced: there is always the old content or the new.
So a file that is not as we wrote it was damaged, and nothing is concluded from it: `DamagedFileError`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from crc32c import crc32c

from coterie.storage.files import Files, read_file, replace_file
from coterie.storage.log_errors import DamagedFileError, LaterFormatError

__all__ = ["LEADERS", "META", "OWN_FILES", "PRODUCER_IDS", "TOPICS", "Content", "OwnFile"]

FIRST = 1
"""The version of files without a first line of ours."""
_HEAD = re.compile(rb"(# (\S+) version ([0-9]+)) crc32c ([0-9a-f]{8})\n")


class Content(NamedTuple):
    version: int
    payload: bytes


class OwnFile(NamedTuple):
    path: str
    version: int
    """The one we write, and the latest we read."""
    holds: str
    """What is in it, for the message about damage: "which topics there are"."""
    repairs: str
    """What `coterie repair` can do about it."""

    @property
    def name(self) -> bytes:
        return self.path.rpartition("/")[2].encode()

    def encode(self, payload: bytes) -> bytes:
        head = b"# %s version %d" % (self.name, self.version)
        return b"%s crc32c %08x\n%s" % (head, crc32c(payload, crc32c(head)), payload)

    def decode(self, data: bytes) -> Content:
        if not data:
            raise self.damaged("is empty")
        if b"\0" in data:
            raise self.damaged("has zeros in it, which were never written")
        if not data.startswith(b"#"):
            return Content(FIRST, data)
        head = _HEAD.match(data)
        if head is None:
            raise self.damaged("does not begin with the line that has its checksum")
        payload = data[head.end() :]
        if crc32c(payload, crc32c(head[1])) != int(head[4], 16):
            raise self.damaged("has a wrong checksum")
        if head[2] != self.name:
            raise self.damaged(f"has the content of {head[2].decode(errors='replace')}")
        version = int(head[3])
        if version > self.version:
            raise LaterFormatError(
                f"{self.path} has format {version}, this version knows {self.version}: use the one that wrote it"
            )
        return Content(version, payload)

    def read(self, files: Files) -> Content:
        """`DamagedFileError` if it is missing or not as it was written, `LaterFormatError` if it is too new."""
        try:
            data = read_file(files, self.path)
        except FileNotFoundError:
            raise self.damaged("is missing") from None
        return self.decode(data)

    def write(self, files: Files, payload: bytes) -> None:
        """When this returns, the file and its name are durable."""
        replace_file(files, self.path, self.encode(payload))

    def renew(self, files: Files, content: Content) -> None:
        """Give a file of an earlier release, which made sense, its checksum."""
        if content.version < self.version:
            self.write(files, content.payload)

    def damaged(self, wrong: str) -> DamagedFileError:
        return DamagedFileError(self.path, wrong, self.holds, self.repairs)


TOPICS = OwnFile(
    "coterie-topics.json",
    2,
    "which topics there are, with their ids, partitions and configs",
    "it finds topics, ids and partitions in the partitions' directories; configs are lost",
)
META = OwnFile(
    "meta.properties",
    2,
    "the ids of the cluster and of the node that the directory belongs to",
    "it writes the file with ids that it is given",
)
LEADERS = OwnFile(
    "coterie-leaders.json",
    2,
    "which node leads which partition, and how often that has changed",
    "it has every partition led where it was created, with the epochs that the logs have",
)
PRODUCER_IDS = OwnFile(
    "coterie-producer-ids.properties",
    2,
    "up to where producer ids were given out; none may be given out twice",
    "it goes on behind the highest that the logs have",
)
OWN_FILES = (TOPICS, META, LEADERS, PRODUCER_IDS)
"""All of them; `coterie-journal` has its own checksums (`journal.py`), and so have Kafka's files that have any."""
