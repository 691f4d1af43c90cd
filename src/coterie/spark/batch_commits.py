"""The offsets of a batch, on their way from the source, which reads it, to the sink, which commits them.

Spark runs the source of a query in a process of its own beside the driver's. That process offers the offsets of the
batch that runs, and who its member is in the group, on a socket; the sink in the driver's process asks for them just
before it commits. So they are never older than a rebalance by more than a moment, and the group's coordinator refuses
those that are. The socket is a file in a directory that only this user can open.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

from coterie.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from coterie.errors import CoterieError

__all__ = ["BatchCommits", "BatchCommitsServer", "RefusedCommitsError", "ask_for_commits"]

ANSWER_S = 30.0
"""How long the sink waits for the source's answer."""


class RefusedCommitsError(CoterieError):
    """The source does not let the sink commit its batch: another member may be reading the same records."""


class BatchCommits(NamedTuple):
    """The offsets that the sink commits for one source, and the member in whose name it does."""

    group: GroupMetadata
    offsets: Mapping[TopicPartition, OffsetAndMetadata]

    def to_json(self) -> str:
        rows = [[*each, at.offset, at.metadata] for each, at in sorted(self.offsets.items())]
        return json.dumps({"group": list(self.group), "offsets": rows})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raise RefusedCommitsError if it is a refusal."""
        data = json.loads(text)
        if "refused" in data:
            raise RefusedCommitsError(data["refused"])
        offsets = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata=note)
            for topic, partition, offset, note in data["offsets"]
        }
        return cls(GroupMetadata(*data["group"]), offsets)


class BatchCommitsServer:
    """Answers every connection with the commits of the batch that runs, or with the reason why there are none."""

    def __init__(self, commits: Callable[[], BatchCommits]) -> None:
        self._commits = commits
        self._server: asyncio.AbstractServer | None = None

    async def listen(self, path: str) -> None:
        """Listen at this file; a socket of an earlier process at the same place is replaced."""
        self._server = await asyncio.start_unix_server(self._answer, path)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            text = self._commits().to_json()
        except CoterieError as error:
            text = json.dumps({"refused": str(error)})
        writer.write(text.encode())
        writer.close()


def ask_for_commits(path: str) -> BatchCommits:
    """Ask the source at this socket.

    Raises:
        RefusedCommitsError: The source refuses, or does not answer.
    """
    answer = bytearray()
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(ANSWER_S)
            asking.connect(path)
            while piece := asking.recv(65_536):
                answer += piece
    except OSError as error:
        answer.clear()
        reason = str(error)
    else:
        reason = "it ended"
    if not answer:
        raise RefusedCommitsError(
            f"the source whose offsets are part of the transaction does not answer: {reason}. Its process has ended, "
            "or the options of source_options() were not given to one source of this query. The batch was aborted: "
            "start the query again"
        )
    return BatchCommits.from_json(answer.decode())
