"""Random lives of a reader: whatever comes in between, records come in order, once, and only where they belong."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from client.fetch_world import World, fetch_settings, partition
from coterie.client.consumer.subscription_state import EARLIEST, LATEST
from coterie.protocol.records import Record

PARTITIONS = 3
NODES = 2
numbers = st.integers(0, PARTITIONS - 1)


class LifeOfAReader(RuleBasedStateMachine):
    """The model is one number for each assigned partition: the offset that must come next; None if not known yet."""

    @initialize(size=st.integers(1, 5), group=st.booleans(), kept=st.integers(100, 2_000))
    def begin(self, size: int, group: bool, kept: int) -> None:
        limits = fetch_settings(EARLIEST, has_group=group, max_partition_fetch_bytes=kept)
        self.world = World(limits, size=size)
        for number in range(PARTITIONS):
            self.world.partition(number, 10 + number, leader=1 + number % NODES)
            self.world.committed[number] = number
        self.expected: dict[int, int | None] = {}
        self.paused: set[int] = set()
        self.held: set[int] = set()

    @property
    def first(self) -> dict[int, int]:
        """Where a new reader begins."""
        is_group = self.world.settings.group_id is not None
        return {number: self.world.committed[number] if is_group else 0 for number in range(PARTITIONS)}

    # --- what the user and the group do -------------------------------------------------------------------------------

    @rule(chosen=st.sets(numbers))
    def assign(self, chosen: set[int]) -> None:
        self.world.reader.assign([partition(number) for number in sorted(chosen)])
        self.expected = {number: self.expected.get(number, self.first[number]) for number in chosen}
        self.paused &= chosen
        self.held.clear()

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), offset=st.integers(0, 14))
    def seek(self, data: st.DataObject, offset: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.expected)))
        self.world.reader.seek(partition(number), min(offset, self.world.ends[number]))
        self.expected[number] = min(offset, self.world.ends[number])

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def seek_to_an_end(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.expected)))
        self.world.reader.reset(partition(number), data.draw(st.sampled_from([EARLIEST, LATEST])))
        self.expected[number] = None

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def pause_or_resume(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.expected)))
        if number in self.paused:
            self.world.reader.resume(partition(number))
            self.paused.remove(number)
        else:
            self.world.reader.pause(partition(number))
            self.paused.add(number)

    @rule(chosen=st.sets(numbers))
    def hold(self, chosen: set[int]) -> None:
        self.world.reader.hold([partition(number) for number in chosen])
        self.held |= chosen & self.expected.keys()

    @rule(limit=st.integers(1, 8), one_by_one=st.booleans())
    def take(self, limit: int, one_by_one: bool = False) -> None:
        if one_by_one:
            for _ in range(limit):
                one = self.world.reader.take_one()
                self.check_taken(1, [one] if one is not None else [])
        else:
            self.check_taken(limit, self.world.reader.take(limit))

    @rule(count=st.integers(1, 8))
    def iterate(self, count: int) -> None:
        reader = self.world.reader
        before = {one.partition: found.offset for one, found in reader.processed().items()}
        records = [one for one in [reader.take_one(1, lambda: 0)] if one is not None]
        while records and len(records) < count and (more := reader.buffer.take()) is not None:
            records.append(more)
        for one in records:
            assert one.partition in self.expected.keys() - self.paused - self.held
            expected = self.expected[one.partition]
            assert one.offset == (before[one.partition] if expected is None else expected)
            self.expected[one.partition] = one.offset + 1
        for one in records[-1:]:
            assert reader.processed()[partition(one.partition)].offset <= one.offset
            assert reader.positions()[partition(one.partition)].offset > one.offset
            assert all(each.offset <= one.offset for each in records[:-1])
        if len(records) > 1:
            assert reader.processed()[partition(records[-1].partition)].offset > records[-2].offset
            assert reader.buffer.take() is None, "it was stopped when the positions were asked for"

    def check_taken(self, limit: int, records: list[Record]) -> None:
        before = {one.partition: found.offset for one, found in self.world.reader.processed().items()}
        assert len(records) <= limit
        for one in records:
            assert one.partition in self.expected.keys() - self.paused - self.held
            expected = self.expected[one.partition]
            assert one.offset == (before[one.partition] if expected is None else expected)
            before.pop(one.partition, None)
            self.expected[one.partition] = one.offset + 1
        done = {one.partition: at.offset for one, at in self.world.reader.processed().items()}
        assert all(
            done[number] <= records[0].offset for number in done for one in records[:1] if one.partition == number
        )

    @rule()
    def lose_the_last_poll(self) -> None:
        done = {one.partition: found.offset for one, found in self.world.reader.processed().items()}
        self.world.reader.rewind()
        for number, offset in done.items():
            if self.expected.get(number) is not None:
                self.expected[number] = offset

    # --- what brokers and the network do ------------------------------------------------------------------------------

    @rule()
    def ask(self) -> None:
        self.world.effect()

    @precondition(lambda self: self.world.under_way)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        self.world.answer(self.world.under_way[data.draw(st.integers(0, len(self.world.under_way) - 1))])

    @precondition(lambda self: self.world.under_way)
    @rule(data=st.data())
    def break_the_connection(self, data: st.DataObject) -> None:
        self.world.lose(self.world.under_way[data.draw(st.integers(0, len(self.world.under_way) - 1))])

    @rule(number=numbers, node=st.integers(1, NODES))
    def move_a_leader(self, number: int, node: int) -> None:
        self.world.leaders[number] = node

    @rule(number=numbers, more=st.integers(1, 4))
    def write(self, number: int, more: int) -> None:
        self.world.ends[number] += more

    @rule(ms=st.integers(0, 150))
    def let_time_pass(self, ms: int) -> None:
        self.world.pass_ms(ms)

    @invariant()
    def only_one_fetch_is_under_way_to_a_node(self) -> None:
        if hasattr(self, "world"):
            nodes = [effect.node_id for effect in self.world.under_way if hasattr(effect, "node_id")]
            assert len(nodes) == len(set(nodes))

    def teardown(self) -> None:
        """Heal, and demand that everything comes."""
        if not hasattr(self, "world"):
            return
        self.world.reader.assign([partition(number) for number in self.expected])
        for number in self.paused & self.expected.keys():
            self.world.reader.resume(partition(number))
        self.paused.clear()
        self.held.clear()
        for _ in range(40):
            self.world.pass_ms(100)
            self.world.run(1)
            self.take(8)
        for number in self.expected:
            assert self.world.reader.state(partition(number)).position == self.world.ends[number]


LifeOfAReader.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
test_records_come_in_order_once_and_only_where_they_belong = LifeOfAReader.TestCase
