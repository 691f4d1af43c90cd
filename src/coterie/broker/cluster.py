"""The nodes of one process, and what they share: the data directory, who leads what, the disk's queue, the timers.

What concerns one connection is an event of its node (`node.py`); what concerns all is one of the cluster: timers that
are due, work of the disk that has ended, nodes that stop and start. `handle(event, now_ms)` returns what follows.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from coterie.assignors import server_side_assignors
from coterie.broker.broker_effects import (
    BackgroundTaskEnded,
    Effects,
    FlushDue,
    FlushEnded,
    MoveGroups,
    MovePartition,
    Starting,
    StartNode,
    StopNode,
    Stopping,
    TimersDue,
    WallClockSet,
    WorkEnded,
)
from coterie.broker.broker_facts import Reporter
from coterie.broker.calls import Connection, Handler, Responses
from coterie.broker.client_metrics_manager import ClientMetricsManager, InstanceExpired
from coterie.broker.client_reports import ClientReports
from coterie.broker.coordinator_service import LoadDue
from coterie.broker.group_service import GroupService
from coterie.broker.handlers.acl_apis import AclApis
from coterie.broker.handlers.cluster_apis import ClusterApis
from coterie.broker.handlers.config_apis import ConfigApis
from coterie.broker.handlers.consumer_group_apis import ConsumerGroupApis
from coterie.broker.handlers.fetch import FetchApi, FetchDue, Fetches
from coterie.broker.handlers.group_apis import GroupApis
from coterie.broker.handlers.log_offsets import LogOffsetApis
from coterie.broker.handlers.metadata import MetadataApis
from coterie.broker.handlers.produce import ProduceApi, ProduceDue
from coterie.broker.handlers.quick_offsets import QuickOffsets
from coterie.broker.handlers.quick_rejoins import QuickRejoins
from coterie.broker.handlers.quota_apis import QuotaApis
from coterie.broker.handlers.reassignment_apis import ReassignmentApis
from coterie.broker.handlers.refusals import TopicError
from coterie.broker.handlers.sasl_apis import SaslApis
from coterie.broker.handlers.scram_apis import ScramApis
from coterie.broker.handlers.telemetry_apis import TelemetryApis
from coterie.broker.handlers.topic_apis import TopicApis
from coterie.broker.handlers.transaction_admin_apis import TransactionAdminApis
from coterie.broker.handlers.transaction_apis import TransactionApis
from coterie.broker.leadership import Leadership
from coterie.broker.maintenance.directory_changes import Changes
from coterie.broker.maintenance.facts_topic import FactsDue, FactsTopic
from coterie.broker.maintenance.flushing import Flusher, WriteOutDue
from coterie.broker.maintenance.log_cleaner import CleanDue, Cleaner
from coterie.broker.maintenance.log_manager import CheckpointDue, LogManager, RepairDue, RetentionDue
from coterie.broker.maintenance.producer_id_manager import ProducerIdManager
from coterie.broker.maintenance.producer_ids import ProducerIds
from coterie.broker.maintenance.scram_credentials import ScramCredentials
from coterie.broker.maintenance.stored_configs import ClientMetricsConfigs, GroupConfigs
from coterie.broker.metadata_cache import MetadataCache, is_internal
from coterie.broker.node import BrokerNode
from coterie.broker.placement import NO_LEADER, Partition
from coterie.broker.replica_manager import ReplicaManager
from coterie.broker.security.acl_store import AclStore
from coterie.broker.security.auth_helper import AuthHelper
from coterie.broker.security.sasl_listener import SaslListener, Validate
from coterie.broker.security.sasl_server_authenticator import FailureDue, SaslServerAuthenticator
from coterie.broker.security.unsecured_tokens import validate_unsecured
from coterie.broker.security.users import Users
from coterie.broker.topic_manager import Made, TopicManager
from coterie.broker.transaction_markers import MarkerWriter
from coterie.broker.transaction_service import (
    CompletionRetryDue,
    MarkerRetryDue,
    TransactionCheckDue,
    TransactionService,
)
from coterie.broker.transactional_writes import AddPartitionsDue, TransactionalWrites
from coterie.coordinator.classic import HeldBytes
from coterie.coordinator.classic.effects import Reply
from coterie.coordinator.consumer.target_assignment import TargetComputation
from coterie.coordinator.runtime import GROUP_TIMERS, GroupCoordinator, Timers
from coterie.coordinator.transactions import TransactionCoordinator
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import CoterieError
from coterie.facts import ClockSet
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.protocol.messages import TopicsDeleted
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.protocol.transaction_state import TRANSACTION_STATE_TOPIC
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.listeners import Endpoint
from coterie.storage import (
    DataDirectory,
    Files,
    LogConfig,
    PartitionLog,
    StoredTopic,
    facts_log_config,
    offsets_log_config,
)
from coterie.structs import replace

__all__ = ["Cluster", "check_nodes"]

MAX_NODES = 100
"""Each has a port of its own; a mistyped number must not take all there are."""


def check_nodes(count: int) -> None:
    if not 1 <= count <= MAX_NODES:
        raise CoterieError(f"{count} nodes; a broker has 1 to {MAX_NODES} of them")


class Cluster:
    def __init__(
        self,
        files: Files,
        settings: BrokerSettings,
        now_ms: int,
        *,
        fresh_id: Callable[[], UUID],
        sync: bool,
        nodes: int = 1,
        wall: WallClock | None = None,
        users: Users | None = None,
    ) -> None:
        """`fresh_id` makes ids of members, topics and the cluster. Nodes are numbered from `node.id` on.

        `users` may log in, besides those of the settings and those that were stored.
        """
        check_nodes(nodes)
        self._assignors = server_side_assignors(settings.group_consumer_assignors)
        self.files = files
        self.settings = settings
        self.wall = WallClock() if wall is None else wall
        self.data_path = "memory"
        self.gathers_writes = False
        """If True, a flush begins with `FlushDue`, not with the event that needs it."""
        self._fresh_id = fresh_id
        self.users = Users({}, lambda: fresh_id().bytes) if users is None else users
        self._sasl_listeners: dict[str, SaslListener] = {}
        self.held_by_groups = HeldBytes()
        self.directory = DataDirectory.open(
            files,
            now_ms,
            cluster_id=settings.coterie_cluster_id or _cluster_id(fresh_id()),
            node_id=settings.node_id,
            config_of=self._config_of,
            journaled=sync,
        )
        try:
            self._build(range(settings.node_id, settings.node_id + nodes), sync=sync)
        except BaseException:
            self.directory.release()
            raise
        self.on: dict[type, Callable[[Any, int], Effects]] = {
            # what a driver reports
            Starting: self._start,
            Stopping: self._stop,
            TimersDue: self._timers_due,
            FlushDue: lambda _event, _now_ms: [],  # `after` begins it
            WallClockSet: self._wall_clock_set,
            StopNode: lambda event, _now_ms: self.leadership.stop(event.node_id, event.token),
            StartNode: lambda event, _now_ms: self.leadership.start(event.node_id, event.token),
            MovePartition: self._move_partition,
            MoveGroups: self._move_coordinator,
            # work that ended
            FlushEnded: self._flush_ended,
            WorkEnded: lambda _event, now_ms: self.changes.ended(now_ms),
            BackgroundTaskEnded: self.cleaner.ended,
            TargetComputation: self._ask_groups,
            # timers that are due
            **dict.fromkeys(GROUP_TIMERS, self._ask_groups),
            MarkerRetryDue: lambda event, now_ms: event.service.marker_due(event, now_ms),
            CompletionRetryDue: lambda event, now_ms: event.service.ask(event.event, now_ms),
            TransactionCheckDue: lambda event, now_ms: event.service.check_due(event, now_ms),
            AddPartitionsDue: self._transactional_writes.add_due,
            FetchDue: self.fetches.due,
            FailureDue: lambda event, _now_ms: event.effects(),
            ProduceDue: lambda event, now_ms: event.production.due(now_ms),
            LoadDue: lambda event, now_ms: event.service.load_due(event, now_ms),
            FactsDue: lambda _event, now_ms: self.facts_topic.write(now_ms),
            CleanDue: lambda _event, now_ms: self.cleaner.due(now_ms),
            CheckpointDue: lambda _event, _now_ms: self.log_manager.checkpoint(),
            RetentionDue: lambda _event, _now_ms: self.log_manager.check_retention(),
            RepairDue: lambda event, _now_ms: self.log_manager.repair(event.log),
            WriteOutDue: lambda _event, now_ms: self.flusher.write_out(now_ms),
            InstanceExpired: self._instance_expired,
        }
        """The handler of each event. A driver may add those of its own timers."""

    # --- building -----------------------------------------------------------------------------------------------------

    def _build(self, numbers: range, *, sync: bool) -> None:
        files, directory, settings, wall = self.files, self.directory, self.settings, self.wall
        self.timers: Timers[Any] = Timers()
        self.next_ms = self.timers.next_ms  # asked after every event
        self.reporter = reporter = Reporter(wall)
        self._responses = responses = Responses(reporter)
        self.changes = changes = Changes(reporter, responses)
        self.flusher = flusher = Flusher(
            sync=sync, reporter=reporter, timers=self.timers, journal=directory.journal, ends=directory.ends
        )
        self._acls = AclStore(files, settings, directory.ends)
        self.auth = AuthHelper(self._acls.authorizer, reporter)
        self.leadership = Leadership(
            files,
            directory,
            changes,
            reporter,
            numbers,
            self._moved,
            rebalances=settings.auto_leader_rebalance_enable,
        )
        self.metadata = MetadataCache(directory, self.leadership)
        self.fetches = Fetches(responses, self.auth, self.metadata, self.timers, reporter, settings.fetch_max_bytes)
        self.log_manager = LogManager(
            files, directory, settings, changes, flusher, self.fetches, self.timers, reporter, wall
        )
        self.cleaner = Cleaner(files, directory, settings, changes, flusher, self.timers, reporter, wall)
        self.topics = TopicManager(
            files,
            directory,
            settings,
            changes,
            self.metadata,
            self.leadership,
            flusher,
            self.fetches,
            reporter,
            wall,
            self._fresh_id,
            {OFFSETS_TOPIC: self._load_groups, TRANSACTION_STATE_TOPIC: self._load_transactions},
        )
        self.facts_topic = FactsTopic(
            settings,
            directory,
            flusher,
            self.timers,
            reporter,
            wall,
            create=partial(self.topics.ask_to_ensure, FACTS_TOPIC),
            check_retention=self.log_manager.check_retention,
        )
        highest = max((log.highest_producer_id for log in directory.logs.values()), default=-1)
        self._producer_ids = ProducerIdManager(ProducerIds(files, highest, directory.ends), changes, reporter)
        self._markers = MarkerWriter(
            directory, self.leadership, lambda number: self.nodes[number].groups, flusher, reporter, wall
        )
        self._transactional_writes = TransactionalWrites(self._transactions_of, self.timers, settings)
        self.scram_credentials = ScramCredentials(files)
        self._group_configs = GroupConfigs(files)
        self._client_metrics_configs = ClientMetricsConfigs(files)
        self.client_reports = ClientReports() if settings.coterie_client_telemetry_enable else None
        self.nodes = {number: self._node(replace(settings, node_id=number)) for number in numbers}

    def _node(self, settings: BrokerSettings) -> BrokerNode:
        replicas = ReplicaManager(self.leadership.led[settings.node_id], self.directory, self.flusher)
        groups = GroupService(
            GroupCoordinator(
                settings, self.timers, self.wall, self.held_by_groups, self.metadata, self._group_configs.by_name
            ),
            replicas,
            self.directory,
            self.flusher,
            self.changes,
            self.timers,
            self.reporter,
            self.wall,
            self._responses,
            self.facts_topic,
            self._assignors,
        )
        transactions = TransactionService(
            TransactionCoordinator(settings, self.wall),
            replicas,
            self.directory,
            self.flusher,
            self.changes,
            self.timers,
            self.reporter,
            self.wall,
            self._producer_ids,
            self._markers,
        )
        client_metrics = ClientMetricsManager(
            self._client_metrics_configs, settings.telemetry_max_bytes, self._fresh_id, self.timers
        )
        return BrokerNode(
            settings,
            groups,
            transactions,
            replicas,
            self.fetches,
            client_metrics,
            self.reporter,
            self._handlers(settings, replicas, groups, transactions, client_metrics),
            self._authenticator_for,
            self.after,
            lambda routes: {
                **QuickOffsets(routes, groups, self.metadata, self.auth.authorizer).handlers(),
                **QuickRejoins(routes, groups, self.auth.authorizer).handlers(),
            },
        )

    def _authenticator_for(self, connection: Connection) -> SaslServerAuthenticator | None:
        listener = self._sasl_listeners.get(connection.listener)
        if listener is None:
            return None
        return SaslServerAuthenticator(connection, listener, self.timers, self.reporter, self.wall)

    def offer_sasl(self, endpoint: Endpoint, validate: Validate = validate_unsecured) -> None:
        """Have the clients of a listener authenticate. `validate` looks at the tokens of OAUTHBEARER."""
        self._sasl_listeners[endpoint.name] = SaslListener(
            endpoint,
            self.settings,
            self.users,
            self.scram_credentials.credential_of,
            validate,
            self._fresh_id,
        )

    def _handlers(
        self,
        settings: BrokerSettings,
        replicas: ReplicaManager,
        groups: GroupService,
        transactions: TransactionService,
        client_metrics: ClientMetricsManager,
    ) -> dict[int, Handler]:
        """Return the handler of each API. Each class of handlers gets the services it needs."""
        responses, metadata, changes, reporter = self._responses, self.metadata, self.changes, self.reporter
        auth = self.auth
        return {
            **GroupApis(responses, auth, groups, metadata, self._fresh_id, self._transactional_writes).handlers(),
            **ConsumerGroupApis(responses, auth, groups, metadata, self._fresh_id).handlers(),
            **ProduceApi(
                responses,
                auth,
                replicas,
                metadata,
                self.timers,
                settings,
                reporter,
                self.wall,
                self._transactional_writes,
            ).handlers(),
            **FetchApi(self.fetches, replicas).handlers(),
            **MetadataApis(responses, auth, metadata, self.topics, settings).handlers(),
            **TopicApis(responses, auth, self.topics, changes, metadata, settings, self._forget_offsets).handlers(),
            **LogOffsetApis(responses, auth, replicas, self.directory, changes, reporter).handlers(),
            **ClusterApis(
                responses,
                auth,
                replicas,
                metadata,
                self.topics,
                changes,
                reporter,
                lambda: self.data_path,
                self.wall,
                self.files.space,
                settings.coterie_client_telemetry_enable,
            ).handlers(),
            **ReassignmentApis(
                responses, auth, replicas, metadata, self.leadership, settings, lambda: self.data_path
            ).handlers(),
            **TransactionApis(responses, auth, transactions, groups, metadata, self._producer_ids).handlers(),
            **TransactionAdminApis(responses, auth, replicas, metadata, transactions, self._markers).handlers(),
            **QuotaApis(responses, auth).handlers(),
            **AclApis(responses, auth, self._acls, changes, reporter).handlers(),
            **SaslApis(responses).handlers(),
            **ScramApis(responses, auth, self.scram_credentials, changes, reporter).handlers(),
            **ConfigApis(
                responses,
                auth,
                self.directory,
                metadata,
                changes,
                settings,
                reporter,
                self.wall,
                lambda: self.data_path,
                self._group_configs,
                self._client_metrics_configs,
            ).handlers(),
            **TelemetryApis(
                responses, auth, client_metrics, self.client_reports, self.has_group, reporter, self.facts_topic
            ).handlers(),
        }

    def _config_of(self, topic: StoredTopic) -> LogConfig:
        if topic.name == FACTS_TOPIC:
            return facts_log_config(topic.configs, self.settings)
        if is_internal(topic.name):
            return offsets_log_config(topic.configs, self.settings)
        return LogConfig.of(topic.configs, self.settings)

    # --- events -------------------------------------------------------------------------------------------------------

    def handle(self, event: Any, now_ms: int) -> Effects:
        """Return what follows from an event: one of `broker_effects.py`, or a timer that is due."""
        kind = type(event)
        return self.after(self.on[kind](event, now_ms), now_ms, flushes=kind is FlushDue)

    def after(self, effects: Effects, now_ms: int, *, flushes: bool = False) -> Effects:
        """Add to the effects of an event what it has left to do; every event ends with this.

        Changes and flushes that were asked for begin if none is under way. Fetches are answered whose logs have grown.
        """
        flushes |= not self.gathers_writes
        changes, flusher = self.changes, self.flusher
        flush = None
        while True:
            if changes.waiting:
                effects += changes.start(now_ms)
            if flusher.settled:
                effects += flusher.settle(now_ms)
            if flushes and flush is None and flusher.can_start:
                followed, flush = flusher.start(now_ms)
                effects += followed
            if flusher.grown:
                effects += self._logs_grown(now_ms)
            # Those who waited for what was durable already may have asked for more.
            if not (flusher.settled or (changes.waiting and changes.can_start)):
                break
        if flush is not None:
            effects.append(flush)
        if self.auth.denials:
            effects += self.auth.report(now_ms)
        return effects

    def mistaken(self, doing: str, now_ms: int) -> Effects:
        """Report the exception that is being handled, and continue."""
        return self.after([self.reporter.mistake(doing, now_ms)], now_ms)

    def _logs_grown(self, now_ms: int) -> Effects:
        grown, self.flusher.grown = self.flusher.grown, {}
        effects: Effects = []
        for log in grown:
            try:
                effects += self.fetches.advanced(log, now_ms)
            except Exception:  # noqa: BLE001  the readers of other logs are answered all the same
                effects.append(self.reporter.mistake(f"reading {log.path}, which has grown", now_ms))
        return effects

    def _start(self, _event: Starting, now_ms: int) -> Effects:
        effects = [*self._load_groups(now_ms), *self._load_transactions(now_ms)]
        self.log_manager.start(now_ms)
        self.cleaner.start(now_ms)
        return effects

    def _load_groups(self, now_ms: int) -> Effects:
        return [effect for node in self.nodes.values() for effect in node.groups.load_all(now_ms)]

    def _load_transactions(self, now_ms: int) -> Effects:
        return [effect for node in self.nodes.values() for effect in node.transactions.load_all(now_ms)]

    def _transactions_of(self, transactional_id: str) -> TransactionService | None:
        """Return the service of the node that coordinates a transactional id; None if there is none now."""
        partition = next(iter(self.nodes.values())).transactions.coordinator.partition_of(transactional_id)
        leader = self.leadership.leader_of((TRANSACTION_STATE_TOPIC, partition))
        return None if leader == NO_LEADER else self.nodes[leader].transactions

    def _stop(self, _event: Stopping, now_ms: int) -> Effects:
        self.fetches.is_stopping = True
        self.cleaner.stop()
        effects: Effects = []
        for node in self.nodes.values():
            effects += [*node.transactions.lose_all(now_ms), *node.groups.lose_all(now_ms)]
        effects += self.fetches.answer_all(now_ms)
        effects += self.facts_topic.write(now_ms)
        self.log_manager.repair_all()
        return effects

    def _flush_ended(self, event: FlushEnded, now_ms: int) -> Effects:
        effects, failed = self.flusher.ended(event, now_ms)
        for log, error in failed:
            effects.append(self.reporter.trouble(f"{log.path}: {error}", now_ms))
            self.log_manager.repair(log)
        return effects

    def _wall_clock_set(self, event: WallClockSet, now_ms: int) -> Effects:
        """Emit the fact that the wall clock was set, for readers that compute durations from the times of facts."""
        fact = ClockSet(now_ms, "", event.by_ms)
        effect = self.reporter.fact(fact)
        self.facts_topic.add(fact, now_ms)
        return [effect]

    # --- timers -------------------------------------------------------------------------------------------------------

    def _timers_due(self, _event: TimersDue, now_ms: int) -> Effects:
        effects: Effects = []
        for event in self.timers.due(now_ms):
            try:
                effects += self.on[type(event)](event, now_ms)
            except Exception:  # noqa: BLE001  the other timers ring all the same
                effects.append(self.reporter.mistake(f"a timer, {type(event).__name__}", now_ms))
        return effects

    def _instance_expired(self, event: InstanceExpired, _now_ms: int) -> Effects:
        event.manager.expired(event.client_instance_id)
        return []

    def _ask_groups(self, event: Any, now_ms: int) -> Effects:
        """Hand an event of a group, or of a partition of groups, to the node that coordinates it now."""
        group_id = getattr(event, "group_id", None)
        partition = event.partition if group_id is None else self.partition_of(group_id)
        leader = self.leadership.leader_of((OFFSETS_TOPIC, partition))
        return [] if leader == NO_LEADER else self.nodes[leader].groups.ask(event, now_ms)

    # --- nodes stop and start -----------------------------------------------------------------------------------------

    def partition_of(self, group_id: str) -> int:
        return next(iter(self.nodes.values())).coordinator.partition_of(group_id)

    def has_group(self, group_id: str) -> bool:
        """Return whether a node coordinates this group now."""
        partition = self.partition_of(group_id)
        leader = self.leadership.leader_of((OFFSETS_TOPIC, partition))
        shard = None if leader == NO_LEADER else self.nodes[leader].coordinator.shards.get(partition)
        return shard is not None and group_id in shard.groups

    def _move_partition(self, event: MovePartition, _now_ms: int) -> Effects:
        return self.leadership.move((event.topic, event.partition), event.node_id, event.token)

    def _move_coordinator(self, event: MoveGroups, _now_ms: int) -> Effects:
        def there(made: Made, _at_ms: int) -> Effects:
            if isinstance(made, TopicError):
                why = CoterieError(f"__consumer_offsets does not exist and cannot be created: {made}")
                return [Reply(event.token, why)]
            return self.leadership.move((OFFSETS_TOPIC, self.partition_of(event.group_id)), event.node_id, event.token)

        self.topics.ask_to_ensure(OFFSETS_TOPIC, there)
        return []

    def _moved(self, key: Partition, log: PartitionLog, was: int, leader: int, now_ms: int) -> Effects:
        """The leader of a partition has changed."""
        effects: Effects = []
        topic, number = key
        if topic == OFFSETS_TOPIC:
            if was != NO_LEADER:
                effects += self.nodes[was].groups.lose(number, now_ms)
            if leader != NO_LEADER:
                self.nodes[leader].groups.gain(number, log)
        elif topic == TRANSACTION_STATE_TOPIC:
            if was != NO_LEADER:
                effects += self.nodes[was].transactions.lose(number, now_ms)
            if leader != NO_LEADER:
                self.nodes[leader].transactions.gain(number, log)
        return [*effects, *self.fetches.look_again(log, now_ms)]

    def _forget_offsets(self, topics: frozenset[str], now_ms: int) -> Effects:
        """Have all groups delete their offsets of topics that were deleted."""
        return [effect for node in self.nodes.values() for effect in node.groups.ask(TopicsDeleted(topics), now_ms)]


def _cluster_id(fresh: UUID) -> str:
    """Return a cluster id as Kafka writes it: 22 characters of base64."""
    return urlsafe_b64encode(fresh.bytes).decode().rstrip("=")
