"""The same mistake is the same error, in the same words, in every client that can be given it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

import pytest

import coterie
from coterie import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ClientClosedError,
    ConfigChange,
    ConfigResource,
    Consumer,
    IllegalArgumentError,
    IllegalStateError,
    InvalidTopicError,
    NewTopic,
    NotAssignedError,
    OffsetAndMetadata,
    Producer,
    SettingsError,
)

PAIRS: dict[type, type] = {Consumer: AsyncConsumer, Producer: AsyncProducer, Admin: AsyncAdmin}
NOWHERE: dict[str, object] = {"bootstrap.servers": "127.0.0.1:1"}
HERE = ("orders", 0)
TOO_LARGE = 2**40
HALF = "\ud800"
Call = Callable[[Any], Any]


@dataclass(frozen=True)
class Mistake:
    error: type[Exception]
    says: str
    calls: dict[type, list[Call]]
    """By synchronous client; the asynchronous one of the pair is called in the same way."""


def _mistakes() -> Iterator[Mistake]:
    yield Mistake(
        IllegalArgumentError,
        '\'orders\' is not a partition: give TopicPartition("orders", 0) or ("orders", 0)',
        {
            Consumer: [
                lambda one: one.assign(["orders"]),
                lambda one: one.seek("orders", 1),
                lambda one: one.pause("orders"),
                lambda one: one.position("orders"),
                lambda one: one.commit({"orders": 1}),
                lambda one: one.committed("orders"),
                lambda one: one.end_offsets(["orders"]),
                lambda one: one.offsets_for_times({"orders": 1}),
            ],
            Admin: [
                lambda one: one.delete_records({"orders": 1}),
                lambda one: one.list_offsets({"orders": coterie.LATEST}),
                lambda one: one.list_group_offsets("g", ["orders"]),
                lambda one: one.alter_group_offsets("g", {"orders": 1}),
                lambda one: one.delete_group_offsets("g", ["orders"]),
                lambda one: one.alter_partition_reassignments({"orders": [1]}),
                lambda one: one.list_partition_reassignments(["orders"]),
                lambda one: one.elect_leaders(["orders"]),
            ],
        },
    )
    yield Mistake(
        IllegalArgumentError,
        "('orders', -1) is not a partition",
        {
            Consumer: [lambda one: one.assign([("orders", -1)]), lambda one: one.commit({("orders", -1): 1})],
            Producer: [lambda one: one.send("orders", "v", partition=-1)],
            Admin: [lambda one: one.delete_records({("orders", -1): 1})],
        },
    )
    yield Mistake(
        IllegalArgumentError,
        "7 is not a list of partitions",
        {
            Consumer: [lambda one: one.assign(7), lambda one: one.beginning_offsets(7)],
            Admin: [lambda one: one.list_group_offsets("g", 7), lambda one: one.delete_group_offsets("g", 7)],
        },
    )
    yield Mistake(
        IllegalArgumentError,
        "[('orders', 0)] does not say which offset is for which partition",
        {
            Consumer: [lambda one: one.commit([HERE]), lambda one: one.commit_async([HERE])],
            Admin: [lambda one: one.alter_group_offsets("g", [HERE]), lambda one: one.delete_records([HERE])],
        },
    )
    for offset in (-7, "7", 2**63):
        yield _wrong_offset(offset)
    yield Mistake(
        IllegalArgumentError,
        "has the time -70; a time is in ms since 1970, 0 or more, below 2^63 - 1",
        {
            Consumer: [lambda one: one.offsets_for_times({HERE: -70})],
            Producer: [lambda one: one.send("orders", "v", timestamp=-70)],
            Admin: [lambda one: one.list_offsets({HERE: -70})],
        },
    )
    yield Mistake(
        IllegalArgumentError,
        "3 is not the name of a topic: give one name, as text",
        {
            Consumer: [lambda one: one.subscribe([3]), lambda one: one.partitions_for(3)],
            Producer: [lambda one: one.send(3, "v"), lambda one: one.send(3, "v", timestamp=1)],
            Admin: [
                lambda one: one.describe_topics([3]),
                lambda one: one.delete_topics([3]),
                lambda one: one.create_topics([NewTopic(3)]),  # type: ignore[arg-type]
                lambda one: one.create_partitions({3: 3}),
            ],
        },
    )
    for name in ("no name!", "", ".."):
        yield _wrong_name(name)
    yield from _what_does_not_fit_its_field()
    yield from _what_is_not_utf8()
    yield Mistake(
        IllegalArgumentError,
        "3 is not a list of names",
        {
            Consumer: [lambda one: one.subscribe(3)],
            Admin: [lambda one: one.describe_topics(3), lambda one: one.describe_groups(3)],
        },
    )
    yield Mistake(
        IllegalArgumentError,
        "is one topic, and several may be given: give",
        {Admin: [lambda one: one.describe_topics("orders"), lambda one: one.delete_topics("orders")]},
    )
    yield Mistake(
        IllegalArgumentError,
        "'orders' is not of type",
        {
            Admin: [
                lambda one: one.create_topics(["orders"]),
                lambda one: one.describe_configs(["orders"]),
                lambda one: one.alter_configs({ConfigResource.topic("t"): ["orders"]}),
                lambda one: one.describe_log_dirs(["orders"]),
            ]
        },
    )
    yield Mistake(
        IllegalArgumentError,
        "the timeout is '5': give seconds, as in 1.5",
        {
            Consumer: [
                lambda one: one.poll("5"),
                lambda one: one.commit({HERE: 1}, timeout="5"),
                lambda one: one.end_offsets([HERE], timeout="5"),
                lambda one: one.close("5"),
            ],
            Producer: [lambda one: one.flush("5"), lambda one: one.close("5")],
        },
    )
    yield Mistake(
        NotAssignedError,
        "orders-0 is not assigned to this consumer, and nothing else is",
        {Consumer: [lambda one: one.seek(HERE, 1), lambda one: one.pause(HERE), lambda one: one.position(HERE)]},
    )


def _wrong_offset(offset: Any) -> Mistake:
    return Mistake(
        IllegalArgumentError,
        f"orders-0 has the offset {offset!r}; an offset is 0 or more, below 2^63",
        {
            Consumer: [
                lambda one: one.seek(HERE, offset),
                lambda one: one.commit({HERE: offset}),
                lambda one: one.commit_async({HERE: OffsetAndMetadata(offset)}),
            ],
            Admin: [
                lambda one: one.alter_group_offsets("g", {HERE: offset}),
                lambda one: one.delete_records({HERE: offset}),
            ],
        },
    )


def _wrong_name(name: str) -> Mistake:
    return Mistake(
        InvalidTopicError,
        f'topic "{name}": a topic\'s name is 1 to 249 of a-z A-Z 0-9 . _ and -, and not . or ..',
        {
            Consumer: [lambda one: one.subscribe([name]), lambda one: one.partitions_for(name)],
            Producer: [lambda one: one.send(name, "v")],
            Admin: [lambda one: one.create_topics([NewTopic("orders"), NewTopic(name)])],
        },
    )


def _of_an_admin(says: str, *calls: Call) -> Mistake:
    return Mistake(IllegalArgumentError, says, {Admin: list(calls)})


def _what_does_not_fit_its_field() -> Iterator[Mistake]:
    yield _wrong_partitions(TOO_LARGE)
    yield _wrong_partitions("3")
    yield _of_an_admin(
        f'the number of partitions of topic "orders" is {TOO_LARGE}: give a whole number',
        lambda one: one.create_partitions({"orders": TOO_LARGE}),
    )
    yield _of_an_admin(
        'the replication factor of topic "orders" is 70000: give a whole number from -32768 to 32767',
        lambda one: one.create_topics([NewTopic("orders", replication_factor=70_000)]),
    )
    yield _of_an_admin(
        f"the id of a broker is {TOO_LARGE}: give a whole number from 0 to 2147483647",
        lambda one: one.create_topics([NewTopic("orders", replicas={0: [TOO_LARGE]})]),
        lambda one: one.alter_partition_reassignments({HERE: [TOO_LARGE]}),
        lambda one: one.describe_log_dirs([TOO_LARGE]),
    )
    yield _of_an_admin(
        'the configs [\'x\']: give {"retention.ms": "1000"}',
        lambda one: one.create_topics([NewTopic("orders", configs=["x"])]),  # type: ignore[arg-type]
    )
    yield _of_an_admin(
        'the config value of retention.ms 5: names and values are text, as in "1000"',
        lambda one: one.create_topics([NewTopic("orders", configs={"retention.ms": 5})]),  # type: ignore[dict-item]
        lambda one: one.alter_configs({ConfigResource.topic("orders"): [ConfigChange("retention.ms", 5)]}),  # type: ignore[arg-type]
    )
    yield Mistake(
        IllegalArgumentError,
        f"the leader epoch of orders-0 is {TOO_LARGE}",
        {
            Consumer: [lambda one: one.commit({HERE: OffsetAndMetadata(1, leader_epoch=TOO_LARGE)})],
            Admin: [lambda one: one.alter_group_offsets("g", {HERE: OffsetAndMetadata(1, leader_epoch=TOO_LARGE)})],
        },
    )


def _what_is_not_utf8() -> Iterator[Mistake]:
    """Half of a character of UTF-16 is text for Python, and no text for Kafka."""
    yield Mistake(
        IllegalArgumentError,
        f"{HALF!r} is not the name of a topic: it has half of a character (a lone surrogate)",
        {
            Consumer: [lambda one: one.subscribe([HALF]), lambda one: one.partitions_for(HALF)],
            Producer: [lambda one: one.send(HALF, "v")],
            Admin: [
                lambda one: one.create_topics([NewTopic(HALF)]),
                lambda one: one.describe_topics([HALF]),
                lambda one: one.delete_topics([HALF]),
                lambda one: one.create_partitions({HALF: 3}),
            ],
        },
    )
    yield _of_an_admin(
        f"{HALF!r} is not the name of a group: it has half of a character",
        lambda one: one.describe_groups([HALF]),
        lambda one: one.delete_groups([HALF]),
        lambda one: one.list_group_offsets(HALF),
        lambda one: one.alter_group_offsets(HALF, {HERE: 1}),
    )
    yield _of_an_admin(
        "config value of retention.ms",
        lambda one: one.create_topics([NewTopic("orders", configs={"retention.ms": HALF})]),
        lambda one: one.alter_configs({ConfigResource.topic("orders"): [ConfigChange("retention.ms", HALF)]}),
    )
    yield _of_an_admin(
        f"{HALF!r} is not the name of a resource", lambda one: one.describe_configs([ConfigResource.topic(HALF)])
    )
    yield Mistake(
        IllegalArgumentError,
        f"({HALF!r}, 0) is not a partition",
        {
            Consumer: [lambda one: one.assign([(HALF, 0)]), lambda one: one.commit({(HALF, 0): 1})],
            Admin: [lambda one: one.alter_group_offsets("g", {(HALF, 0): 1})],
        },
    )
    yield Mistake(
        IllegalArgumentError,
        f"orders-0 has the metadata {HALF!r}; it is text of 32767 bytes at most, in UTF-8",
        {
            Consumer: [
                lambda one: one.commit({HERE: OffsetAndMetadata(1, HALF)}),
                lambda one: one.commit_async({HERE: OffsetAndMetadata(1, HALF)}),
            ],
            Admin: [lambda one: one.alter_group_offsets("g", {HERE: OffsetAndMetadata(1, HALF)})],
        },
    )
    for what, given in (
        ("value of a record", {"value": HALF}),
        ("key of a record", {"key": HALF}),
        ("header 'name' of a record", {"headers": {"name": HALF}}),
        ("name of a header", {"headers": {HALF: "content"}}),
    ):
        yield _not_utf8_in_a_record(what, given)


def _wrong_partitions(number: Any) -> Mistake:
    return _of_an_admin(
        f'the number of partitions of topic "orders" is {number!r}: give a whole number',
        lambda one: one.create_topics([NewTopic("orders", partitions=number)]),
    )


def _not_utf8_in_a_record(what: str, given: dict[str, Any]) -> Mistake:
    return Mistake(
        IllegalArgumentError,
        f"the {what} is {HALF!r}: it has half of a character (a lone surrogate), which cannot be sent as UTF-8",
        {Producer: [lambda one: one.send("orders", **given)]},
    )


MISTAKES = [(kind, mistake) for mistake in _mistakes() for kind in mistake.calls]


def _named(value: object) -> str:
    return value.__name__ if isinstance(value, type) else "-"


async def _ended(client: object, call: Call) -> None:
    answer = call(client)
    if isawaitable(answer):
        await answer


async def _made(kind: type, calls: list[Call], settings: dict[str, object]) -> list[Exception]:
    client = PAIRS[kind](settings)
    raised: list[Exception] = []
    for call in calls:
        with pytest.raises(coterie.CoterieError) as caught:
            await _ended(client, call)
        raised.append(caught.value)
    await client.close(**({} if kind is Admin else {"timeout": 0}))
    return raised


def _settings(kind: type) -> dict[str, object]:
    return {**NOWHERE, "group.id": "g"} if kind is Consumer else NOWHERE


@pytest.mark.parametrize(("kind", "mistake"), MISTAKES, ids=_named)
def test_a_mistake_is_told_before_anybody_is_asked(kind: type, mistake: Mistake) -> None:
    """There is no broker: what is wrong in itself needs none."""
    raised: list[Exception] = []
    with kind(_settings(kind)) as client:
        for call in mistake.calls[kind]:
            with pytest.raises(coterie.CoterieError) as caught:
                call(client)
            raised.append(caught.value)
    raised += asyncio.run(_made(kind, mistake.calls[kind], _settings(kind)))
    for error in raised:
        assert type(error) is mistake.error and mistake.says in str(error), error


AFTER_CLOSE: dict[type, list[Call]] = {
    Consumer: [
        lambda one: one.subscribe("orders"),
        lambda one: one.assign([HERE]),
        lambda one: one.poll(0),
        lambda one: one.commit({HERE: 1}),
        lambda one: one.seek(HERE, 1),
        lambda one: one.assignment(),
        lambda one: one.end_offsets([HERE]),
        lambda one: one.partitions_for("orders"),
    ],
    Producer: [lambda one: one.send("orders", "v")],
    Admin: [lambda one: one.list_topics(), lambda one: one.describe_groups(["g"]), lambda one: one.describe_cluster()],
}


@pytest.mark.parametrize("kind", PAIRS, ids=_named)
def test_a_closed_client_says_so(kind: type) -> None:
    client = kind(_settings(kind))
    client.close()
    client.close()
    for call in AFTER_CLOSE[kind]:
        with pytest.raises(ClientClosedError, match="this client is closed: make a new one"):
            call(client)

    async def story() -> None:
        one = PAIRS[kind](_settings(kind))
        await one.close()
        await one.close()
        for call in AFTER_CLOSE[kind]:
            with pytest.raises(ClientClosedError, match="this client is closed: make a new one"):
                await _ended(one, call)

    asyncio.run(story())


GIVEN: list[tuple[str, tuple[object, ...], dict[str, object]]] = [
    ("nosuch (settings): unknown setting", (NOWHERE,), {"nosuch": 1}),
    ("did you mean client.id", (NOWHERE,), {"clientid": "x"}),
    ("settings are a mapping, not 'localhost:9092'", ("localhost:9092",), {}),
    ("bootstrap.servers is empty: name a broker", (), {}),
    ("bootstrap.servers has 'localhost:abc': must be host:port", (), {"bootstrap_servers": "localhost:abc"}),
    ("request.timeout.ms", (NOWHERE,), {"request_timeout_ms": "soon"}),
    (
        r"client.id = '\ud800' (settings): it has half of a character (a lone surrogate)",
        (NOWHERE,),
        {"client_id": HALF},
    ),
]


@pytest.mark.parametrize(("says", "values", "keywords"), GIVEN, ids=[one[0] for one in GIVEN])
def test_wrong_settings_are_told_when_a_client_is_made(
    says: str, values: tuple[object, ...], keywords: dict[str, object]
) -> None:
    told = set()
    for kind in (*PAIRS, *PAIRS.values()):
        with pytest.raises(SettingsError) as caught:
            kind(*values, **keywords)
        told.add(str(caught.value))
    assert len(told) == 1 and says in told.pop()


@pytest.mark.parametrize(
    ("kind", "name"), [(Consumer, "group.id"), (Consumer, "group.instance.id"), (Producer, "transactional.id")]
)
def test_a_name_in_the_settings_can_be_sent(kind: type, name: str) -> None:
    for one in (kind, PAIRS[kind]):
        with pytest.raises(SettingsError, match=f"{name} = .* it has half of a character"):
            one(NOWHERE, **{name.replace(".", "_"): HALF})


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Consumer, coterie.ConsumerSettings.of(NOWHERE)),
        (Producer, coterie.ProducerSettings.of(NOWHERE)),
        (Admin, coterie.AdminSettings.of(NOWHERE)),
    ],
    ids=_named,
)
def test_settings_as_an_object_leave_no_room_for_keywords(kind: type, settings: object) -> None:
    for one in (kind, PAIRS[kind]):
        with pytest.raises(SettingsError, match="client_id comes too late: give all of them to"):
            one(settings, client_id="x")


def test_what_needs_a_group_says_so() -> None:
    calls: list[Call] = [
        lambda one: one.subscribe("orders"),
        lambda one: one.commit(),
        lambda one: one.commit_async(),
        lambda one: one.committed(HERE),
        lambda one: one.group_metadata(),
        lambda one: one.enforce_rebalance(),
    ]
    raised: list[Exception] = []
    with Consumer(NOWHERE) as client:
        for call in calls:
            with pytest.raises(IllegalStateError, match=r"needs a group") as caught:
                call(client)
            raised.append(caught.value)
    again = asyncio.run(_made(Consumer, calls, NOWHERE))
    assert [(type(error), str(error)) for error in raised] == [(type(error), str(error)) for error in again]
