"""OffsetCommitter: commits the progress of a query, whatever its source, to a group, so that lag tools see it.

    spark.streams.addListener(OffsetCommitter({"kafka.bootstrap.servers": "localhost:9092", "groupId": "billing"}))

It is for queries on Spark's own JVM Kafka source, which commits nothing, and on format("coterie") without a groupId.
The group has no members then: it is a name to look up, and the query's checkpoint alone says where the query goes on.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from coterie.client.admin.admin import Admin
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import CoterieError, ErrorCode, KafkaError, MalformedError
from coterie.settings import SettingsError
from coterie.spark.batch_plan import BatchPlan, name_of_plan
from coterie.spark.offsets import parse_numbers
from coterie.spark.options import admin_settings

__all__ = ["OffsetCommitter", "reached"]

log = logging.getLogger("coterie.spark")

GROUP = ("groupid", "kafka.consumer.commit.groupid")
"""The option of this source, and the one of committers that are jars."""


def reached(end_offset: str | None) -> dict[TopicPartition, int]:
    """Return the offsets that a batch has reached, from the JSON of a Kafka source; nothing for other sources."""
    if not end_offset:
        return {}
    try:
        data = json.loads(end_offset)
        return BatchPlan.from_json(data).ends() if name_of_plan(data) else parse_numbers(end_offset)
    except (MalformedError, ValueError):
        return {}


class OffsetCommitter(StreamingQueryListener):
    """Commits after each batch. A listener must not disturb its query, so what goes wrong is only logged."""

    def __init__(self, options: Mapping[str, str], query: str | None = None) -> None:
        """Create the committer.

        Args:
            options: The options of the source, with groupId and kafka.bootstrap.servers.
            query: The name of the query whose progress is committed; None for all queries of the session.
        """
        given = {name.lower(): text for name, text in options.items()}
        groups = [given[name] for name in GROUP if given.get(name, "").strip()]
        if not groups:
            raise SettingsError("groupId is missing (or kafka.consumer.commit.groupid): name the group to commit to")
        self._group_id = groups[0]
        self._query = query
        if "kafka.bootstrap.servers" not in given:
            raise SettingsError("kafka.bootstrap.servers is missing: name a broker, as in localhost:9092")
        self._settings = admin_settings(given)
        self._admin: Admin | None = None
        self._committed: dict[TopicPartition, int] = {}

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing: nothing is read yet."""

    def onQueryProgress(self, event: Any) -> None:
        """Commit the end of a batch that is done."""
        progress = event.progress
        if self._query is not None and progress.name != self._query:
            return
        for source in progress.sources:
            self.commit(reached(source.endOffset))

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: nothing was read."""

    def onQueryTerminated(self, event: Any) -> None:
        """Do nothing: another query may go on."""

    def close(self) -> None:
        """Close the connections. A later commit opens them again."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        news = {each: offset for each, offset in offsets.items() if self._committed.get(each) != offset}
        if not news:
            return
        try:
            if self._admin is None:
                self._admin = Admin(self._settings)
            wanted = {each: OffsetAndMetadata(offset) for each, offset in news.items()}
            results = self._admin.alter_group_offsets(self._group_id, wanted)
        except CoterieError as error:
            log.warning("the progress of the query was not committed to group %s: %s", self._group_id, error)
            return
        refused = {each: error for each, error in results.items() if error is not None}
        self._committed |= {each: offset for each, offset in news.items() if each not in refused}
        for why in {str(each): each for each in refused.values()}.values():
            log.warning("the progress of the query was not committed: %s%s", why, _advice(why))


def _advice(error: KafkaError) -> str:
    if error.code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
        return ". The group has members, who commit for themselves: give the query a group of its own"
    return ""
