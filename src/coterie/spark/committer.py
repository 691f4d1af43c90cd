"""OffsetCommitter: the progress of a query, whatever its source, as offsets of a group, so that lag tools see it.

    spark.streams.addListener(OffsetCommitter({"kafka.bootstrap.servers": "localhost:9092", "groupId": "billing"}))

For queries on Spark's own JVM Kafka source, which commits nothing anywhere, and on ours without a groupId. The group
has no members then: it is a name to look up, and the query's checkpoint alone says where it goes on.
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
from coterie.settings.client_settings import AdminSettings
from coterie.spark.offset_limits import parse_numbers
from coterie.spark.plan import Plan

__all__ = ["OffsetCommitter", "reached"]

log = logging.getLogger("coterie.spark")

GROUP = ("groupid", "kafka.consumer.commit.groupid")
"""Ours, and what the committers that are jars call it."""


def reached(end_offset: str | None) -> dict[TopicPartition, int]:
    """How far a batch came, from the JSON of its source; nothing if it is neither Spark's Kafka source nor ours."""
    if not end_offset:
        return {}
    try:
        data = json.loads(end_offset)
        return Plan.from_json(data).ends() if isinstance(data, dict) and "plan" in data else parse_numbers(end_offset)
    except (MalformedError, ValueError):
        return {}


class OffsetCommitter(StreamingQueryListener):
    """A listener must not disturb its query: what goes wrong is in the log."""

    def __init__(self, options: Mapping[str, str], query: str | None = None) -> None:
        """The options of the source; `query` is the name of the one query it is for, if there are several."""
        given = {name.lower(): text for name, text in options.items()}
        groups = [given[name] for name in GROUP if given.get(name, "").strip()]
        if not groups:
            raise SettingsError("groupId is missing (or kafka.consumer.commit.groupid): whose offsets are they to be?")
        self._group_id = groups[0]
        self._query = query
        wanted = {"bootstrap.servers", "client.id", "request.timeout.ms", "default.api.timeout.ms"}
        settings = {name.removeprefix("kafka."): text for name, text in given.items() if name.startswith("kafka.")}
        if "bootstrap.servers" not in settings:
            raise SettingsError("kafka.bootstrap.servers is missing: name a broker, as in localhost:9092")
        self._settings = AdminSettings.of({name: text for name, text in settings.items() if name in wanted})
        self._admin: Admin | None = None
        self._committed: dict[TopicPartition, int] = {}

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is read yet."""

    def onQueryProgress(self, event: Any) -> None:
        """Comes after a batch is done."""
        progress = event.progress
        if self._query is not None and progress.name != self._query:
            return
        for source in progress.sources:
            self.commit(reached(source.endOffset))

    def onQueryIdle(self, event: Any) -> None:
        """Nothing was read."""

    def onQueryTerminated(self, event: Any) -> None:
        """Another query may go on."""

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
