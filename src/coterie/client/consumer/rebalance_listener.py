"""The rebalance listener: an object with methods, or functions; and how it is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from inspect import iscoroutinefunction
from typing import Any

from coterie.client.member.effects import Listened
from coterie.client.types import TopicPartition
from coterie.errors import IllegalArgumentError

RebalanceCallback = Callable[[list[TopicPartition]], Any]

_METHODS = {
    Listened.ASSIGNED: "on_partitions_assigned",
    Listened.REVOKED: "on_partitions_revoked",
    Listened.LOST: "on_partitions_lost",
}


class ConsumerRebalanceListener:
    """A listener of rebalances. Write a subclass with the methods you need, and give an instance to `subscribe`.

    The methods run inside `poll`, `unsubscribe` or `close`, in the caller's thread, and may use the consumer. With
    `AsyncConsumer` they may be coroutine functions. An exception in a method is raised from that call as
    `ListenerError`; the assignment is not affected. Any object with methods of these names works too.
    """

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Awaitable[object] | None:
        """Called after every rebalance with the new partitions, before their records are read.

        Args:
            partitions: The partitions that are new; those that this consumer keeps are not among them.
        """

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Awaitable[object] | None:
        """Called before partitions are given up; offsets can still be committed here.

        Args:
            partitions: The partitions that will go to other members.
        """

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Awaitable[object] | None:
        """Called when partitions are lost without warning, for example after a session timeout.

        Other members may own them already, so offsets cannot be committed. As in Java, this calls
        `on_partitions_revoked` unless it is overridden.

        Args:
            partitions: The partitions that are not this consumer's any more.
        """
        return self.on_partitions_revoked(partitions)


class RebalanceCallbacks:
    """The functions to call: for assigned, revoked and lost partitions; each is optional."""

    def __init__(self, callbacks: dict[Listened, RebalanceCallback]) -> None:
        self._callbacks = callbacks

    def hears(self, kind: Listened) -> bool:
        return kind in self._callbacks

    def call(self, kind: Listened, partitions: Collection[TopicPartition]) -> Any:
        """Call it and return its result, which is awaitable if the listener is asynchronous."""
        return self._callbacks[kind](sorted(partitions))

    def refuse_coroutines(self) -> None:
        for callback in self._callbacks.values():
            if iscoroutinefunction(callback):
                raise IllegalArgumentError(
                    f"{getattr(callback, '__qualname__', callback)} is a coroutine function, which a Consumer cannot "
                    "await: use AsyncConsumer, or a plain function"
                )


def listener_of(
    listener: object | None,
    on_assigned: RebalanceCallback | None = None,
    on_revoked: RebalanceCallback | None = None,
    on_lost: RebalanceCallback | None = None,
) -> RebalanceCallbacks:
    """`listener` has some of the methods on_partitions_assigned, on_partitions_revoked and on_partitions_lost.

    As in Java, without on_lost, on_revoked is called for lost partitions too.
    """
    if listener is not None and (on_assigned or on_revoked or on_lost):
        raise IllegalArgumentError("give a listener or functions (on_assigned, on_revoked, on_lost), not both")
    callbacks: dict[Listened, RebalanceCallback | None] = {
        Listened.ASSIGNED: on_assigned,
        Listened.REVOKED: on_revoked,
        Listened.LOST: on_lost,
    }
    if listener is not None:
        callbacks = {kind: getattr(listener, name, None) for kind, name in _METHODS.items()}
        if not any(callbacks.values()):
            raise IllegalArgumentError(
                f"a listener has on_partitions_assigned, on_partitions_revoked or on_partitions_lost; "
                f"{type(listener).__name__} has none of them"
            )
    for name, function in zip(_METHODS.values(), callbacks.values(), strict=True):
        if function is not None and not callable(function):
            raise IllegalArgumentError(f"{name} of the listener is {function!r}, which cannot be called")
    if callbacks[Listened.LOST] is None:
        callbacks[Listened.LOST] = callbacks[Listened.REVOKED]
    return RebalanceCallbacks({kind: function for kind, function in callbacks.items() if function is not None})
