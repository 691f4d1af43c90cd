"""Refresh the metadata of topics now and then, and report changes of topics and their partitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from coterie.assignors import Topic as AssignorTopic
from coterie.client.event_log import EventLog
from coterie.client.member.facts import TopicFound, TopicMissing
from coterie.client.network.metadata import Metadata, TopicMetadata
from coterie.client.network.network_client import NetworkClient
from coterie.client.network.runtime import BackgroundTasks
from coterie.errors import ErrorCode, KafkaError
from coterie.settings.consumer_settings import ConsumerSettings

_WILL_PASS = frozenset({ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE})


class TopicWatch:
    def __init__(
        self,
        settings: ConsumerSettings,
        cluster: NetworkClient,
        tasks: BackgroundTasks,
        on_change: Callable[[Mapping[str, AssignorTopic]], None],
        on_denied: Callable[[KafkaError], None],
        log: EventLog,
    ) -> None:
        """`on_denied` is called with an error each time the broker says that topics may not be read."""
        self._settings = settings
        self._cluster = cluster
        self._tasks = tasks
        self._on_change = on_change
        self._on_denied = on_denied
        self._log = log
        self._missing: dict[str, bool] = {}
        """Topics that do not exist, and whether that was reported."""
        self._topics: Collection[str] | None = ()
        self._seen: Mapping[str, AssignorTopic] | None = None
        self._looked_at = cluster.metadata
        self._is_refreshing = False

    def watch(self, topics: Collection[str] | None) -> None:
        """Keep what is known of these fresh; None: of all topics."""
        self._topics = topics
        self._seen = None
        self._looked_at = Metadata()
        self._tasks.disarm("watch")
        if topics is None or topics:
            self._look()

    def _look(self) -> None:
        if not self._is_refreshing:
            self._is_refreshing = True
            self._tasks.start(self._refresh())

    async def _refresh(self) -> None:
        settings, asked = self._settings, self._topics
        try:
            await self._cluster.refresh(asked, allow_auto_create=settings.allow_auto_create_topics)
        except KafkaError as error:
            self._log.warn(error)
        finally:
            self._is_refreshing = False
        if asked != self._topics:
            self._look()
            return
        self.look_again()
        self._report_missing(asked or ())
        self._report_denied(asked or ())
        is_complete = asked is None or all(name in (self._seen or ()) for name in asked)
        after_ms = settings.metadata_max_age_ms if is_complete else settings.retry_backoff_max_ms
        self._tasks.arm("watch", self._cluster.clock_ms() + after_ms, self._look)

    def _report_missing(self, asked: Collection[str]) -> None:
        """Warn about missing topics at the second check: a topic that is being created is missing at the first."""
        now_ms, group_id, known = self._cluster.clock_ms(), self._settings.group_id or "", self._cluster.metadata.topics
        before, self._missing = self._missing, {}
        for name in sorted(asked):
            error = known[name].error if name in known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if name in (self._seen or ()) or error in _WILL_PASS:
                if before.get(name) and name in (self._seen or ()):
                    self._log.write(TopicFound(now_ms, group_id, name))
                continue
            self._missing[name] = name in before
            if before.get(name) is False:
                self._log.write(TopicMissing(now_ms, group_id, name, error))

    def _report_denied(self, asked: Collection[str]) -> None:
        known, code = self._cluster.metadata.topics, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        denied = sorted(name for name in asked if name in known and known[name].error is code)
        if denied:
            advice = "the principal needs READ on it; ask for that ACL"
            self._on_denied(KafkaError.of(code, f'subscribing to topic "{", ".join(denied)}"', advice))

    def look_again(self) -> None:
        """Check the current metadata, whichever request has fetched it. New metadata is another object."""
        if self._cluster.metadata is self._looked_at or (self._topics is not None and not self._topics):
            return
        self._looked_at = self._cluster.metadata
        found = self.topics(self._topics)
        if found != self._seen:
            self._seen = found
            self._on_change(found)

    def topics(self, names: Collection[str] | None) -> dict[str, AssignorTopic]:
        """Return the topics that exist, as assignors need them. Internal topics are hidden from patterns by default."""
        known = self._cluster.metadata.topics
        if names is None:
            hides = self._settings.exclude_internal_topics
            names = [name for name, topic in known.items() if not (hides and topic.is_internal)]
        return {
            name: AssignorTopic(len(known[name].partitions), self._racks(known[name]))
            for name in names
            if name in known and known[name].partitions and not known[name].error
        }

    def _racks(self, topic: TopicMetadata) -> list[list[str]] | None:
        racks = {node.id: node.rack for node in self._cluster.metadata.nodes.values() if node.rack}
        if not racks:
            return None
        return [[racks[replica] for replica in one.replicas if replica in racks] for one in topic.partitions.values()]
