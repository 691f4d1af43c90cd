"""The promise of a query in a group, held by machines that do anything at any time.

No record is missing. What is read twice was in a batch under way when its reader crashed or was put out; joins, leaves
and orderly stops cost nothing. Here the group, Spark's checkpoint and its sink are a few lines each; the rules are the
shipped ones. The sink keeps what a batch brought under the number of the batch, as Spark's own sinks do, and may have
done so before the checkpoint knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random  # noqa: TID251  a walk is its seed

import pytest

from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.spark.batch_plan import BatchPlan, BatchPlanner, Span, ends_within
from coterie.spark.checkpoint import next_offset, spans_to_repeat
from coterie.spark.membership import OwnedPartitions

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
Place = tuple[TopicPartition, int]


class World:
    def __init__(self) -> None:
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.owner: dict[TopicPartition, Member | None] = dict.fromkeys(PARTITIONS, None)
        self.may_be_twice: set[Place] = set()

    def commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed |= offsets

    def owned_by(self, member: Member) -> list[TopicPartition]:
        return [each for each in PARTITIONS if self.owner[each] is member]

    def give(self, partition: TopicPartition, to: Member | None) -> None:
        self.owner[partition] = to
        if to is not None:
            to.assigned(partition)


def places(spans: dict[TopicPartition, Span]) -> set[Place]:
    return {(each, offset) for each, span in spans.items() for offset in range(*span)}


class Member:
    """A plain consumer: reads, processes, commits."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_alive = True
        self.seen: list[Place] = []
        self.positions: dict[TopicPartition, int] = {}
        self.uncommitted: dict[TopicPartition, Span] = {}

    def assigned(self, partition: TopicPartition) -> None:
        found = self.world.committed.get(partition)
        self.positions[partition] = found.offset if found else 0

    def read(self, at_most: int) -> None:
        self.commit()
        for each, end in ends_within(at_most, self.positions, self.world.ends).items():
            span = Span(self.positions[each], end)
            self.seen += sorted(places({each: span}))
            self.uncommitted[each] = span
            self.positions[each] = end

    def commit(self) -> None:
        self.world.commit({each: OffsetAndMetadata(span.until_offset) for each, span in self.uncommitted.items()})
        self.uncommitted = {}

    def asked_for(self, partition: TopicPartition) -> bool:
        self.commit()
        del self.positions[partition]
        return True

    def stop(self) -> None:
        self.commit()
        self.end()

    def crash(self) -> None:
        self.world.may_be_twice |= places(self.uncommitted)
        self.end()

    def end(self) -> None:
        self.is_alive = False
        self.positions, self.uncommitted = {}, {}


class Query(Member):
    """A Spark query: checkpoint and sink outlive it. The order of things is that of coterie.spark.queries."""

    in_transaction = False

    def __init__(self, world: World, name: str, *, is_alone: bool) -> None:
        super().__init__(world)
        self.is_alone = is_alone
        self.is_alive = False
        self.log: list[BatchPlan] = [BatchPlan(name, 0, {})]
        self.done = 0
        """How many plans of the log are in the log of what is done."""
        self.sink: dict[int, set[Place]] = {}
        self.owned = OwnedPartitions()

    def start(self) -> None:
        self.is_alive = True
        self.owned = OwnedPartitions(in_transaction=self.in_transaction)

    def assigned(self, partition: TopicPartition) -> None:
        self.owned.assigned([partition])

    @property
    def last_done(self) -> BatchPlan:
        return self.log[self.done]

    def latest_offset(self, at_most: int) -> None:
        owned = self.owned
        owned.batch_done(self.last_done)
        self.flush()
        found = {
            each: next_offset(each, self.last_done, self.world.committed, in_transaction=self.in_transaction)
            for each in owned.without_start()
        }
        owned.start_at({each: 0 if at is None else at for each, at in found.items()})
        self.flush()
        plan = BatchPlanner(None, 0).plan(
            self.last_done, owned.to_plan(), self.world.ends, now_ms=0, max_offsets=at_most, may_wait=True
        )
        if plan is not self.last_done:
            owned.batch_planned(plan)
            self.log.append(plan)

    def flush(self) -> None:
        due = self.owned.commits_due()
        self.world.commit(due)
        self.owned.committed(due)

    def execute(self, *, only_sink: bool) -> None:
        plan = self.repeated()
        self.sink.setdefault(plan.number, places(plan.to_read()))
        if not only_sink:
            self.done += 1

    def repeated(self) -> BatchPlan:
        """Spark runs the batch after the last one done: planned a moment ago, or found in the log after a restart."""
        plan = self.log[self.done + 1]
        owned = self.owned
        if owned.running is None or owned.running.number != plan.number:
            spans = spans_to_repeat(plan, self.world.committed, in_transaction=self.in_transaction)
            owned.batch_planned(BatchPlan(plan.query, plan.number, spans))
        assert owned.running is not None
        return owned.running

    def asked_for(self, partition: TopicPartition) -> bool:
        """With checkpointLocation it sees by itself that the batch is done; else at the next latestOffset."""
        self.owned.revoke([partition])
        if not self.owned.is_free([partition]):
            return False
        self.owned.release([partition])
        return True

    def stop(self) -> None:
        running = self.owned.running
        if running is not None and running.number == self.last_done.number:
            self.owned.batch_done(self.last_done)
        self.flush()
        if not self.is_alone:
            self.world.commit(self.owned.commits_to_release())
        if running is not None and running.number in self.sink and running.number != self.last_done.number:
            self.world.may_be_twice |= places(running.to_read())  # in the sink and not in the checkpoint
        self.end()

    def crash(self) -> None:
        running = self.log[-1] if self.done < len(self.log) - 1 else self.last_done
        uncommitted = {
            each: span
            for each, span in running.to_read().items()
            if self.world.committed[each].offset < span.until_offset
        }
        self.world.may_be_twice |= places(uncommitted)
        self.end()

    def remove(self) -> None:
        self.owned.lose(self.world.owned_by(self))
        if self.owned.fenced is not None:
            self.crash()

    def has_batch(self) -> bool:
        return self.done < len(self.log) - 1


class TransactionalQuery(Query):
    """A query whose sink commits the rows of a batch and the offsets of its source in one transaction."""

    in_transaction = True

    def execute(self, *, only_sink: bool) -> None:
        plan = self.repeated()
        if plan.number not in self.sink:
            commits = self.owned.commits_of_batch()
            self.sink[plan.number] = places(plan.to_read())
            self.world.commit(commits)
        if not only_sink:
            self.done += 1


class TransactionalMember(Member):
    """A consumer that commits its offsets with what it has made of the records."""

    def read(self, at_most: int) -> None:
        super().read(at_most)
        self.commit()


Action = Callable[[], None]


class Walk:
    """Members of a group and all that can happen to them, one thing after the other."""

    def __init__(self, seed: int, *, is_alone: bool, query: type[Query] = Query, member: type[Member] = Member) -> None:
        self.rng = Random(seed)
        self.is_alone = is_alone
        self.world = World()
        self.member = member
        self.queries = [query(self.world, name, is_alone=is_alone) for name in ("a1", "b2")[: 1 if is_alone else 2]]
        self.plain = [] if is_alone else [member(self.world)]
        for each in PARTITIONS:
            self.world.ends[each] = 5

    def roll(self, sides: int) -> int:
        return self.rng.randrange(sides)

    def step(self) -> None:
        if self.is_alone:
            self.give_all_to(self.queries[0])
        actions = [*self.of_the_cluster()]
        for query in self.queries:
            actions += self.of_a_query(query)
        if self.plain:
            actions += [lambda: self.plain[-1].read(4), lambda: self.replace_plain(Member.stop)]
            actions += [lambda: self.replace_plain(Member.crash)]
        actions[self.roll(len(actions))]()

    def of_the_cluster(self) -> Iterator[Action]:
        yield self.produce
        if not self.is_alone:
            yield from [self.rebalance] * 3

    def of_a_query(self, query: Query) -> Iterator[Action]:
        if not query.is_alive:
            yield query.start
            yield query.start
            return
        if query.has_batch():
            yield lambda: query.execute(only_sink=False)
            yield lambda: query.execute(only_sink=False)
            yield lambda: query.execute(only_sink=True)
        else:
            yield lambda: query.latest_offset(4)
            yield lambda: query.latest_offset(100)
        yield lambda: self.gone(query, Query.stop)
        yield lambda: self.gone(query, Query.crash)
        yield lambda: self.gone(query, Query.remove)

    def produce(self) -> None:
        self.world.ends[PARTITIONS[self.roll(len(PARTITIONS))]] += 3

    def rebalance(self) -> None:
        """A partition goes to somebody who lives, as soon as its owner lets it go."""
        partition = PARTITIONS[self.roll(len(PARTITIONS))]
        living: list[Member] = [each for each in [*self.queries, *self.plain[-1:]] if each.is_alive]
        owner = self.world.owner[partition]
        taker = living[self.roll(len(living))] if living else None
        if owner is not taker and (owner is None or owner.asked_for(partition)):
            self.world.give(partition, taker)

    def replace_plain(self, how: Callable[[Member], None]) -> None:
        self.gone(self.plain[-1], how)
        self.plain.append(self.member(self.world))

    def gone(self, member: Member, how: Callable[[Query], None] | Callable[[Member], None]) -> None:
        owned = self.world.owned_by(member)
        assert isinstance(member, Query) or how in {Member.stop, Member.crash}
        how(member)  # type: ignore[arg-type]
        for each in owned:
            self.world.owner[each] = None

    # --- what must hold -----------------------------------------------------------------------------------------------

    def seen(self) -> Counter[Place]:
        found: Counter[Place] = Counter()
        for query in self.queries:
            for batch in query.sink.values():
                found.update(batch)
        for member in self.plain:
            found.update(member.seen)
        return found

    def check_nothing_twice(self) -> None:
        """But for what is in a sink and not yet in its checkpoint, which only Spark could know."""
        in_between = {
            place for query in self.queries if query.has_batch() for place in query.sink.get(query.log[-1].number, ())
        }
        twice = {place for place, count in self.seen().items() if count > 1}
        assert not twice - in_between - self.world.may_be_twice

    def give_all_to(self, member: Member) -> None:
        for each in PARTITIONS:
            if member.is_alive and self.world.owner[each] is not member:
                self.world.give(each, member)

    def heal(self) -> None:
        """All stop in order, never to return, and a last consumer reads to the end."""
        for query in self.queries:
            if query.is_alive:
                self.gone(query, Query.stop)
        if self.plain:
            self.gone(self.plain[-1], Member.stop)
        self.plain.append(self.member(self.world))
        self.give_all_to(self.plain[-1])
        self.plain[-1].read(10**9)

    def written(self) -> set[Place]:
        return {(each, offset) for each, end in self.world.ends.items() for offset in range(end)}


@pytest.mark.parametrize("first", range(0, 2_000, 500))
def test_nothing_is_missing_and_nothing_twice_but_what_was_running_in_a_crash(first: int) -> None:
    for seed in range(first, first + 500):
        walk = Walk(seed, is_alone=False)
        for _ in range(80):
            walk.step()
            walk.check_nothing_twice()
        walk.heal()
        walk.check_nothing_twice()
        assert walk.seen().keys() == walk.written(), seed


def test_a_query_alone_reads_everything_exactly_once_whatever_becomes_of_it() -> None:
    """Spark's own promise: a group with one member changes nothing about it."""
    for seed in range(1_000):
        walk = Walk(seed, is_alone=True)
        (query,) = walk.queries
        for _ in range(60):
            walk.step()
            assert set(walk.seen().values()) <= {1}, seed
        if not query.is_alive:
            query.start()
        walk.give_all_to(query)
        for _ in range(3):
            if query.has_batch():
                query.execute(only_sink=False)
            query.latest_offset(10**9)
        assert walk.seen() == Counter(walk.written()), seed


@pytest.mark.parametrize("first", range(0, 2_000, 500))
def test_with_the_offsets_in_the_sinks_transactions_every_record_is_there_once(first: int) -> None:
    """Whoever crashes, is removed from the group or stops, at whatever moment."""
    for seed in range(first, first + 500):
        walk = Walk(seed, is_alone=False, query=TransactionalQuery, member=TransactionalMember)
        for _ in range(80):
            walk.step()
            assert set(walk.seen().values()) <= {1}, seed
        walk.heal()
        assert walk.seen() == Counter(walk.written()), seed
