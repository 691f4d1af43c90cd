"""What clients that never log in do to a broker's secured listeners: a table of attacks for `unauthenticated.py`.

An attack is a generator that yields how many of its attempts have ended. Its conversations are generators too: each
yields bytes to send, or nothing (`HEAR`) to be resumed with what the broker says.
"""

from __future__ import annotations

import random
import resource
import selectors
import socket
import ssl
import struct
import time
from base64 import b64encode
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from broker.sasl_dialogues import plain
from coterie.protocol.apis import sasl_authenticate, sasl_handshake
from coterie.protocol.frames import request_frame

__all__ = ["ATTACKS", "EVERYTHING", "GUESS", "SOURCES", "USER", "StrangersAttack", "Target"]

USER = "alice"
GUESS = "guessed-password"
"""How each wrong password begins."""
SOURCES = [f"127.0.0.{number}" for number in range(2, 10)]
"""Addresses that the attackers come from. One would run out of ports."""
AT_ONCE = 400
HOLD_S = 3.0
"""How long a thousand connections are held, or more; fewer for less."""
HEAR = b""
MAX_RECEIVE = 524_288
"""sasl.server.max.receive.size"""
_BIND_ADDRESS_NO_PORT = 24
_MECHANISM = "SCRAM-SHA-256"

Conversation = Generator[bytes, bytes, None]


@dataclass(frozen=True, slots=True)
class Target:
    tls_port: int
    plain_port: int
    """The port of SASL_PLAINTEXT."""


@dataclass(frozen=True, slots=True)
class StrangersAttack:
    run: Callable[[Target, int], Iterator[int]]
    attempts: int


def _connect(number: int, port: int) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
    connection.bind((SOURCES[number % len(SOURCES)], 0))
    connection.setblocking(False)
    connection.connect_ex(("127.0.0.1", port))
    return connection


def _converse(port: int, count: int, talk: Callable[[int], Conversation]) -> Iterator[int]:
    """Hold so many conversations, some at a time. Each ends when the broker closes it."""
    selector = selectors.DefaultSelector()
    begun = ended = 0
    with ExitStack() as stack:
        stack.callback(lambda: [key.fileobj.close() for key in list(selector.get_map().values())])  # type: ignore[union-attr]
        while ended < count:
            while begun < count and begun - ended < AT_ONCE:
                selector.register(_connect(begun, port), selectors.EVENT_WRITE, (talk(begun), b""))
                begun += 1
            some = sum(_has_ended(selector, key, events) for key, events in selector.select(1))
            ended += some
            yield some


def _has_ended(selector: selectors.BaseSelector, key: selectors.SelectorKey, events: int) -> bool:
    connection: Any = key.fileobj
    talk, unsent = key.data
    heard = b""
    try:
        if events & selectors.EVENT_READ:
            heard = connection.recv(4096)
            if not heard:
                raise ConnectionResetError
        if not unsent:
            unsent = talk.send(heard or None)
        unsent, is_sending = unsent[connection.send(unsent) :] if unsent else b"", bool(unsent)
    except StopIteration:
        is_sending = False
    except OSError:
        selector.unregister(connection)
        connection.close()
        return True
    selector.modify(connection, selectors.EVENT_WRITE if is_sending else selectors.EVENT_READ, (talk, unsent))
    return False


def _request(module: ModuleType, version: int, request: Any) -> bytes:
    body = module.write_request(request, version)
    return request_frame(module.API.key, version, 1, "stranger", body, flexible=version >= module.API.flexible)


def _token(token: bytes) -> bytes:
    return _request(sasl_authenticate, 2, sasl_authenticate.Request(auth_bytes=token))


_HANDSHAKES = {
    name: _request(sasl_handshake, 1, sasl_handshake.Request(mechanism=name)) for name in ("PLAIN", _MECHANISM)
}


# --- TLS --------------------------------------------------------------------------------------------------------------


def _client_hello() -> bytes:
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def _garbage(hello: bytes, number: int) -> Conversation:
    """Bytes that are no TLS, records with nonsense in them, and a ClientHello with some bytes changed."""
    chance = random.Random(number)
    record = chance.randbytes(300)
    broken = bytearray(hello)
    for _ in range(3):
        broken[chance.randrange(11, 60)] ^= chance.randrange(1, 256)
    ends = struct.pack(">BHH", 23, 0x0303, len(record)) + record  # data before the handshake is over
    yield (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" + record,
        struct.pack(">BHH", 22, 0x0301, len(record)) + record,
        bytes(broken) + ends,
    )[number % 4]
    yield ends


def garbage(target: Target, count: int) -> Iterator[int]:
    return _converse(target.tls_port, count, partial(_garbage, _client_hello()))


def crowd(target: Target, count: int) -> Iterator[int]:
    """Open all of them, and hold them: a third says nothing, a third a ClientHello, a third all but SASL."""
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    hello = _client_hello()
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with ExitStack() as stack:
        for number in range(count):
            connection = stack.enter_context(_connect(number, target.tls_port))
            connection.settimeout(30)
            with suppress(OSError):  # the broker may have closed it to make room for others
                if number % 3 == 1:
                    connection.send(hello)
                elif number % 3 == 2:
                    stack.enter_context(context.wrap_socket(connection))
            yield 1
        until = time.monotonic() + HOLD_S * min(count / 1_000, 1)
        while time.monotonic() < until:
            time.sleep(0.01)
            yield 0


# --- SASL -------------------------------------------------------------------------------------------------------------


def _large(number: int) -> Conversation:
    """A size that is too large, or the largest there may be with nothing but zeros."""
    if number % 2:
        yield struct.pack(">i", MAX_RECEIVE + 1 + number) + bytes(1_000)
        return
    yield struct.pack(">i", MAX_RECEIVE)
    part = bytes(1 << 15)
    for _ in range(0, MAX_RECEIVE, len(part)):
        yield part


def large_frames(target: Target, count: int) -> Iterator[int]:
    return _converse(target.plain_port, count, _large)


def _bytewise(number: int) -> Conversation:
    said = _HANDSHAKES["PLAIN"] + _token(plain(USER, f"{GUESS}-{number}"))
    for at in range(len(said)):
        yield said[at : at + 1]


def byte_at_a_time(target: Target, count: int) -> Iterator[int]:
    return _converse(target.plain_port, count, _bytewise)


def _wrong_password(number: int) -> Conversation:
    yield _HANDSHAKES["PLAIN"] + _token(plain(USER, f"{GUESS}-{number}"))


def wrong_passwords(target: Target, count: int) -> Iterator[int]:
    return _converse(target.plain_port, count, _wrong_password)


def _wrong_proof(number: int) -> Conversation:
    """SCRAM with a proof that was made up."""
    yield _HANDSHAKES[_MECHANISM] + _token(f"n,,n={USER},r=own{number}".encode())
    heard = b""
    while b",i=" not in heard:
        heard += (yield HEAR) or b""
    start = heard.index(b"r=own")
    nonce = heard[start : heard.index(b",", start)].decode()
    proof = b64encode(random.Random(number).randbytes(32)).decode()
    yield _token(f"c={b64encode(b'n,,').decode()},{nonce},p={proof}".encode())


def wrong_proofs(target: Target, count: int) -> Iterator[int]:
    return _converse(target.plain_port, count, _wrong_proof)


ATTACKS: Mapping[str, StrangersAttack] = {
    "TLS garbage": StrangersAttack(garbage, 10_000),
    "silent, half handshakes, no SASL: at once": StrangersAttack(crowd, 10_000),
    "SASL frames that are too large": StrangersAttack(large_frames, 4_000),
    "SASL frames, a byte at a time": StrangersAttack(byte_at_a_time, 1_000),
    "wrong passwords of PLAIN": StrangersAttack(wrong_passwords, 100_000),
    "wrong proofs of SCRAM": StrangersAttack(wrong_proofs, 10_000),
}


def _everything(target: Target, count: int) -> Iterator[int]:
    total = sum(each.attempts for each in ATTACKS.values())
    for attack in ATTACKS.values():
        yield from attack.run(target, max(count * attack.attempts // total, len(SOURCES)))


EVERYTHING = StrangersAttack(_everything, 300)
"""A little of each, in one process."""
