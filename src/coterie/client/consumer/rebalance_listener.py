"""Who is told of rebalances: an object with methods, or functions; and how it is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from inspect import iscoroutinefunction
from typing import Any

from coterie.client.member.effects import Listened
from coterie.client.types import TopicPartition
from coterie.errors import IllegalArgumentError

__all__ = ["ConsumerRebalanceListener", "Listener", "Told", "listener_of"]

Told = Callable[[list[TopicPartition]], Any]

_METHODS = {
    Listened.ASSIGNED: "on_partitions_assigned",
    Listened.REVOKED: "on_partitions_revoked",
    Listened.LOST: "on_partitions_lost",
}


class ConsumerRebalanceListener:
    """Hear of rebalances: subclass it, override what you need, and give an instance to `subscribe`.

    The methods run inside `poll`, `unsubscribe` or `close`, in the caller's thread, and may use the consumer. With
    `AsyncConsumer` they may be coroutine functions. What a method raises comes out of that call as `ListenerError`;
    the assignment is not affected. An object with methods of these names does as well.
    """

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Awaitable[object] | None:
        """Hear which partitions came; called after every rebalance, before their records are read.

        Args:
            partitions: The partitions that are new; those that this consumer keeps are not among them.
        """

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Awaitable[object] | None:
        """Hear which partitions this consumer is about to give up; offsets can still be committed here.

        Args:
            partitions: The partitions that will go to other members.
        """

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Awaitable[object] | None:
        """Hear which partitions are lost without warning, after a session timeout for example.

        Other members may own them already, so offsets cannot be committed. As in Java, this calls
        `on_partitions_revoked` unless it is overridden.

        Args:
            partitions: The partitions that are not this consumer's any more.
        """
        return self.on_partitions_revoked(partitions)


class Listener:
    """What to call for each kind of news; nothing for some, perhaps for all."""

    def __init__(self, told: dict[Listened, Told]) -> None:
        self._told = told

    def hears(self, kind: Listened) -> bool:
        return kind in self._told

    def call(self, kind: Listened, partitions: Collection[TopicPartition]) -> Any:
        """What the listener returns: of an asynchronous one, something to be awaited."""
        return self._told[kind](sorted(partitions))

    def refuse_coroutines(self) -> None:
        for told in self._told.values():
            if iscoroutinefunction(told):
                raise IllegalArgumentError(
                    f"{getattr(told, '__qualname__', told)} is a coroutine function, which a Consumer cannot await: "
                    "use AsyncConsumer, or a plain function"
                )


def listener_of(
    listener: object | None,
    on_assigned: Told | None = None,
    on_revoked: Told | None = None,
    on_lost: Told | None = None,
) -> Listener:
    """`listener` has some of the methods on_partitions_assigned, on_partitions_revoked and on_partitions_lost.

    As in Java, who does not tell lost from revoked hears of both as revoked.
    """
    if listener is not None and (on_assigned or on_revoked or on_lost):
        raise IllegalArgumentError("give a listener or functions (on_assigned, on_revoked, on_lost), not both")
    told: dict[Listened, Told | None] = {
        Listened.ASSIGNED: on_assigned,
        Listened.REVOKED: on_revoked,
        Listened.LOST: on_lost,
    }
    if listener is not None:
        told = {kind: getattr(listener, name, None) for kind, name in _METHODS.items()}
        if not any(told.values()):
            raise IllegalArgumentError(
                f"a listener has on_partitions_assigned, on_partitions_revoked or on_partitions_lost; "
                f"{type(listener).__name__} has none of them"
            )
    for name, function in zip(_METHODS.values(), told.values(), strict=True):
        if function is not None and not callable(function):
            raise IllegalArgumentError(f"{name} of the listener is {function!r}, which cannot be called")
    if told[Listened.LOST] is None:
        told[Listened.LOST] = told[Listened.REVOKED]
    return Listener({kind: function for kind, function in told.items() if function is not None})
