"""The limits on connections: how many there may be, and how many bytes the broker holds for all of them together.

The broker holds the frame that is still arriving, the requests that wait behind another, and the answers that the
client does not read. Each is bounded for one connection; this module bounds the sum. The connection for which the
broker has held something for the longest time is closed first: an ordinary client is done in a moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from coterie.broker.calls import Connection
from coterie.settings.broker_settings import BrokerSettings

__all__ = ["ConnectionLimits", "files_of_logs", "silence_of"]

SPARE_FILES = 64
"""File descriptors for anything but connections and logs: sealed segments that are read, files that are rewritten."""
MUCH = 16 << 20
"""After so many bytes were held, the system gets back what the process does not need any more."""
LITTLE = 64 * 1024
"""A connection that holds less is closed only if none holds more: it would not help."""
ROOM = 16
"""If too much is held, a sixteenth of all is freed at once, so that not every new connection closes another one."""
SHARE = 8
"""A fetch gets at most an eighth of the memory that is left, so that some is always left."""


def files_of_logs(allowed_files: int) -> int:
    """Return how many files the logs may have open. Connections need the rest of `allowed_files`."""
    return max(allowed_files // 2, 16)


def silence_of(connection: Connection, silent_ms: int, arriving_ms: int, idle_ms: int) -> str | None:
    """Return why a connection is closed as idle, or as too slow to send its request; None if it stays."""
    if connection.call is None and silent_ms > idle_ms:
        return f"nothing was heard for {idle_ms} ms (connections.max.idle.ms)"
    if arriving_ms > idle_ms:
        return f"one request took more than {idle_ms} ms (connections.max.idle.ms)"
    return None


class ConnectionLimits:
    def __init__(
        self,
        settings: BrokerSettings,
        allowed_files: int,
        held_by: Callable[[Connection], int],
        drop: Callable[[Connection, str], None],
    ) -> None:
        """`allowed_files`: how many files the process may open. `held_by`: returns the bytes held for a connection."""
        self._settings = settings
        self._allowed_files = allowed_files
        self._held_by = held_by
        self._drop = drop
        self._most = settings.most_held_bytes
        self._per_ip = settings.connections_of_ips
        self._count = 0
        self._hosts: Counter[str] = Counter()
        self._unauthenticated: dict[Connection, int] = {}  # since when; the oldest is the first
        self._held: dict[Connection, int] = {}  # who has held something for the longest time is the first
        self._total = 0
        self._peak = 0
        """The most that was held since memory was last returned to the system."""

    # --- connections --------------------------------------------------------------------------------------------------

    def refusal_of(self, host: str, logs: int) -> str | None:
        """Return why this host cannot connect now; None if it can. `logs` is their number: they have open files too."""
        settings = self._settings
        logs = min(logs, files_of_logs(self._allowed_files))
        if self._count >= settings.max_connections:
            return f"there are {self._count} connections, as many as max.connections allows"
        most = self._per_ip.get(host, settings.max_connections_per_ip)
        if self._hosts[host] >= most:
            return f"there are {self._hosts[host]} connections from {host}, as many as max.connections.per.ip allows"
        if self._count + logs + SPARE_FILES >= self._allowed_files:
            return (
                f"there are {self._count} connections and {logs} logs, and the system lets us open "
                f"{self._allowed_files} files (ulimit -n)"
            )
        return None

    def came(self, connection: Connection) -> None:
        self._count += 1
        self._hosts[connection.host] += 1

    def went(self, connection: Connection) -> None:
        """Forget a connection that has closed."""
        self._unauthenticated.pop(connection, None)
        self._count -= 1
        self._hosts[connection.host] -= 1
        if not self._hosts[connection.host]:
            del self._hosts[connection.host]
        self._total -= self._held.pop(connection, 0)

    # --- authentication -----------------------------------------------------------------------------------------------

    def must_authenticate(self, connection: Connection, now_ms: int) -> None:
        """Count a connection that must authenticate. If there are too many of them, close the oldest."""
        self._unauthenticated[connection] = now_ms
        most = self._settings.coterie_max_unauthenticated_connections
        if len(self._unauthenticated) > most:
            oldest = next(iter(self._unauthenticated))
            del self._unauthenticated[oldest]
            self._drop(
                oldest,
                f"more than {most} connections are not authenticated (coterie.max.unauthenticated.connections), and "
                "this one has taken the longest",
            )

    def authenticated(self, connection: Connection) -> None:
        self._unauthenticated.pop(connection, None)

    def unauthenticated_since(self, at_ms: int) -> list[Connection]:
        """Return the connections that have not authenticated and were opened before a time."""
        return [connection for connection, since_ms in self._unauthenticated.items() if since_ms < at_ms]

    # --- memory -------------------------------------------------------------------------------------------------------

    def weigh(self, connection: Connection) -> bool:
        """Count the bytes that are held for a connection again; return whether there are any."""
        size = 0 if connection.is_closed else self._held_by(connection)
        self._total += size - self._held.get(connection, 0)
        if size:
            self._held[connection] = size
        else:
            self._held.pop(connection, None)
        self._peak = max(self._peak, self._total)
        if self._total > self._most:
            self._make_room()
        return connection in self._held

    def has_let_go(self) -> bool:
        """Return whether most of a large amount is no longer held, once for each such peak."""
        if self._peak < MUCH or self._total > self._peak // 4:
            return False
        self._peak = self._total
        return True

    def room(self) -> int:
        """Return how many bytes an answer may have now."""
        return max(self._most - self._total, 0) // SHARE

    def _make_room(self) -> None:
        for connection in list(self._held):  # what waited may have been answered since
            self._note(connection)
        if self._total <= self._most:
            return
        much = [one for one, size in self._held.items() if size >= LITTLE]
        little = [one for one, size in self._held.items() if size < LITTLE]
        for victim in (*much, *little):
            size = self._held.pop(victim)
            self._total -= size
            self._drop(
                victim,
                f"it made us hold {size} bytes for the longest time, and all connections together more than "
                f"{self._most} (queued.max.request.bytes)",
            )
            if self._total <= self._most - self._most // ROOM:
                return

    def _note(self, connection: Connection) -> None:
        size = self._held_by(connection)
        self._total += size - self._held[connection]
        self._held[connection] = size
        if not size:
            del self._held[connection]
