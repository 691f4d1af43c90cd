"""TLS of a listener: its context, which is made again when files change, and the stream of one connection.

The stream is OpenSSL between two buffers. So a connection is counted from its first byte, not only when the handshake
is over; an alert reaches the client before the connection is closed; and each connection takes the context that is
newest when it begins.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from coterie.broker.io.key_stores import load_authorities, load_key_and_chain
from coterie.settings.broker_settings import BrokerSettings

_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_RECORD = 1 << 14
"""The largest TLS record. The buffer of a read has this size, however much arrives."""
SMALL = 4096
"""The largest read, in bytes, that may wait for the end of a turn (`TlsTurn` in `sockets.py`)."""


def server_context(settings: BrokerSettings) -> ssl.SSLContext:
    """Make the context that the settings of a listener describe.

    Raises:
        CoterieError: A file cannot be read, or is not what it should be. The message has no secret.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    enabled = [_VERSIONS[name] for name in settings.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(enabled), max(enabled)
    context.options |= ssl.OP_NO_RENEGOTIATION
    load_key_and_chain(context, settings)
    context.verify_mode = _VERIFY[settings.ssl_client_auth]
    if settings.ssl_client_auth != "none":
        load_authorities(context, settings)
    return context


class ListenerTls:
    """The context of a listener for new connections."""

    def __init__(self, settings: BrokerSettings) -> None:
        """`settings` are those of the listener."""
        self._settings = settings
        self._files = [
            Path(name) for name in (settings.ssl_keystore_location, settings.ssl_truststore_location) if name
        ]
        self._stamps = self._look()
        self.context = server_context(settings)

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in self._files]

    def has_changed(self) -> bool:
        """Return whether a file has changed. A file that is missing counts as unchanged."""
        stamps = self._look()
        if stamps == self._stamps or None in stamps:
            return False
        self._stamps = stamps
        return True

    def reload(self) -> None:
        """Take the files as they are now for new connections. If they cannot be used, nothing changes."""
        self.context = server_context(self._settings)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class GatheredWrites:
    """Transports that have something to encrypt and send, while it is gathered."""

    __slots__ = ("are_gathered", "transports")

    def __init__(self) -> None:
        self.are_gathered = False
        self.transports: list[TlsTransport] = []

    def send(self) -> None:
        """Encrypt what was gathered, and then send it."""
        self.are_gathered = False
        transports, self.transports = self.transports, []
        for each in transports:
            each.encrypt_gathered()
        for each in transports:
            each.flush()


class TlsTransport:
    """The TLS stream of one connection: a transport for its `Link`, on top of the socket's.

    The socket's transport pauses reading and has the only write buffer: its methods for that are attributes here.
    `__getattr__` would find them too, but makes every attribute of a class slow to read.
    """

    __slots__ = (
        "_gathered",
        "_gathered_writes",
        "_incoming",
        "_outgoing",
        "_ssl",
        "_transport",
        "abort",
        "get_extra_info",
        "get_write_buffer_size",
        "has_ended",
        "is_closing",
        "is_established",
        "pause_reading",
        "resume_reading",
        "set_write_buffer_limits",
    )

    def __init__(self, transport: asyncio.Transport, context: ssl.SSLContext, gathered_writes: GatheredWrites) -> None:
        self._transport = transport
        self._gathered_writes = gathered_writes
        self._gathered = b""
        """The data that is not encrypted yet."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_established = False
        self.has_ended = False
        """The client has said that it will send nothing more."""
        self.abort = transport.abort
        self.get_extra_info = transport.get_extra_info
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.set_write_buffer_limits = transport.set_write_buffer_limits

    def shake_hands(self, data: bytes) -> bytes:
        """Take bytes of the socket until `is_established`; return what was encrypted behind the handshake.

        Raises:
            ssl.SSLError: It is not TLS, or not acceptable. The alert is sent already.
        """
        self._incoming.write(data)
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return b""
        finally:
            self.flush()
        self.is_established = True
        return self.received(b"")

    def received(self, data: bytes) -> bytes:
        """Return what was encrypted in bytes of the socket, after the handshake.

        Raises:
            ssl.SSLError: It is not acceptable. The alert is sent already.
        """
        incoming, size = self._incoming, len(data)
        incoming.write(data)
        try:
            content = self._ssl.read(size if 0 < size < _RECORD else _RECORD)
            # Most often it is one whole record: OpenSSL need not say that it wants more.
            is_all = content and len(content) < size and not incoming.pending
            return content if is_all else self._read_on(content)
        except ssl.SSLWantReadError:
            return b""
        finally:
            if self._outgoing.pending:
                self.flush()

    def _read_on(self, content: bytes) -> bytes:
        """Read until nothing is left."""
        parts = [content]
        try:
            while parts[-1]:
                parts.append(self._ssl.read(_RECORD))
            self.has_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.has_ended = True
        return b"".join(parts)

    @property
    def certificate(self) -> bytes | None:
        """The client's certificate, which was verified, in DER."""
        return self._ssl.getpeercert(binary_form=True)

    def write(self, data: bytes | memoryview) -> None:
        gathered_writes = self._gathered_writes
        if gathered_writes.are_gathered and len(data) <= SMALL:
            if not self._gathered:
                gathered_writes.transports.append(self)
            self._gathered += data
        else:
            self.writelines((data,))

    def writelines(self, parts: Iterable[bytes | memoryview]) -> None:
        if self._gathered:
            self.encrypt_gathered()
        if not self._transport.is_closing():
            for part in parts:
                self._encrypt(part)
            self.flush()

    def encrypt_gathered(self) -> None:
        data, self._gathered = self._gathered, b""
        if data and not self._transport.is_closing():
            self._encrypt(data)

    def _encrypt(self, data: bytes | memoryview) -> None:
        try:
            written = self._ssl.write(data)
            while written < len(data):  # it takes a record at a time
                written += self._ssl.write(memoryview(data)[written:])
        except ssl.SSLError:  # the stream is broken already
            self._transport.abort()

    def flush(self) -> None:
        """Send what is encrypted."""
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def close(self) -> None:
        """Say that nothing more follows, and close when all is sent."""
        self.encrypt_gathered()
        if self.is_established and not self._transport.is_closing():
            with suppress(ssl.SSLError):  # it would wait for the client to say the same
                self._ssl.unwrap()
            self.flush()
        self._transport.close()


def why_refused(error: ssl.SSLError) -> str:
    """Return what went wrong in a handshake, in a few words, for the log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")
