"""Many things asked for at once: each has its own result, and each is tried again for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from types import ModuleType
from typing import Any, TypeVar

from coterie.client.network.backoff import gave_up
from coterie.client.network.network_client import NetworkClient
from coterie.client.types import TopicPartition
from coterie.errors import NO_SUCH_TOPIC, RETRIABLE, ConnectionLostError, ErrorCode, KafkaError, RequestTimedOutError

K = TypeVar("K")
T = TypeVar("T")

FOR_TOPICS = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED})
FOR_GROUPS = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
FOR_PARTITIONS = RETRIABLE - NO_SUCH_TOPIC
"""A topic that is not there is an answer: who asks for it wants to know now, not when the time is up."""


def checked(results: Mapping[K, T | KafkaError]) -> dict[K, T]:
    """Return the values of an admin's results, or raise the first error among them.

    Args:
        results: What a method of an admin returned.

    Returns:
        The values.

    Raises:
        KafkaError: The first error.
    """
    values: dict[K, T] = {}
    for key, found in results.items():
        if isinstance(found, KafkaError):
            raise found
        values[key] = found
    return values


def failure(code: ErrorCode, what: str, said: str | None = None) -> KafkaError | None:
    return KafkaError.of(code, what, said) if code else None


async def each(
    cluster: NetworkClient,
    items: Collection[K],
    ask: Callable[[Sequence[K]], Awaitable[Mapping[K, T | KafkaError]]],
    *,
    what: Callable[[K], str],
    again: frozenset[ErrorCode],
) -> dict[K, T | KafkaError]:
    """Ask for all items; then again for those without an answer or with an error in `again`, until the timeout."""
    results: dict[K, T | KafkaError] = {}
    left: Sequence[K] = list(dict.fromkeys(items))
    within_ms = cluster.settings.default_api_timeout_ms
    failures = 0
    try:
        async with asyncio.timeout(within_ms / 1000):
            while left:
                answers = await _answers(ask, left)
                for item in left:
                    results[item] = answers[item] if item in answers else _not_named(what(item))
                left = [item for item in left if _is_worth_a_try(results[item], again)]
                if left:
                    failures += 1
                    cluster.expire()
                    await cluster.pause(failures)
    except TimeoutError:
        for item in left:
            last = results.get(item)
            results[item] = RequestTimedOutError(
                gave_up(what(item), last if isinstance(last, KafkaError) else None, within_ms)
            )
    return {item: results[item] for item in dict.fromkeys(items)}


async def _answers(
    ask: Callable[[Sequence[K]], Awaitable[Mapping[K, T | KafkaError]]], left: Sequence[K]
) -> Mapping[K, T | KafkaError]:
    try:
        return await ask(left)
    except KafkaError as error:
        lost = ConnectionLostError(str(error)) if isinstance(error, RequestTimedOutError) else error
        return dict.fromkeys(left, lost)


def _not_named(what: str) -> KafkaError:
    return KafkaError(f"{what}: the broker's answer does not mention it")


def _is_worth_a_try(found: object, again: frozenset[ErrorCode]) -> bool:
    return isinstance(found, KafkaError) and (found.code in again or isinstance(found, ConnectionLostError))


async def ask_controller(cluster: NetworkClient, api: ModuleType, request: Any) -> Any:
    """The broker may take `request.timeout.ms` over it, and has as long again to say so."""
    node_id = await cluster.controller()
    return await cluster.send(node_id, api, request, timeout_ms=2 * cluster.settings.request_timeout_ms)


async def by_node(
    items: Sequence[K],
    node_of: Callable[[K], Awaitable[int]],
    ask: Callable[[int, Sequence[K]], Awaitable[Mapping[K, T | KafkaError]]],
) -> dict[K, T | KafkaError]:
    """Ask each node for its own items, all nodes at once. If a node fails, only its items fail."""
    results: dict[K, T | KafkaError] = {}
    by: dict[int, list[K]] = {}
    for item, found in zip(
        items, await asyncio.gather(*(_node_or_error(node_of, item) for item in items)), strict=True
    ):
        if isinstance(found, KafkaError):
            results[item] = found
        else:
            by.setdefault(found, []).append(item)
    answers = await asyncio.gather(*(_answers(_bound(ask, node), its) for node, its in by.items()))
    for answer in answers:
        results.update(answer)
    return results


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    return [(name, list(its)) for name, its in groupby(sorted(partitions), attrgetter("topic"))]


async def _node_or_error(node_of: Callable[[K], Awaitable[int]], item: K) -> int | KafkaError:
    try:
        return await node_of(item)
    except KafkaError as error:
        return error


def _bound(
    ask: Callable[[int, Sequence[K]], Awaitable[Mapping[K, T | KafkaError]]], node_id: int
) -> Callable[[Sequence[K]], Awaitable[Mapping[K, T | KafkaError]]]:
    return lambda items: ask(node_id, items)
