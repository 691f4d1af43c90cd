"""Apache Kafka 4.3.1 with an authorizer, asked by users that authenticate with SASL/PLAIN."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from conformance.acls.asking import Broker
from conformance.acls.cells import PRINCIPALS
from raw_kafka import RawConnection
from secured_kafka import AUTHORIZER, SecuredKafka

_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_PATIENCE_SECONDS = 60


def secured_kafka() -> SecuredKafka:
    """Return a Kafka, not started yet, that knows all users; the password of each is its name."""
    users = " ".join(f'user_{user}="{user}"' for user in PRINCIPALS)
    jaas = f'{_LOGIN} required username="admin" password="admin" {users};'
    properties = {
        **AUTHORIZER,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "offsets.topic.num.partitions": "3",
        "log.retention.ms": "-1",  # its records are old
    }
    return SecuredKafka(properties)


class KafkaBroker(Broker):
    host = "127.0.0.1"

    def __init__(self, kafka: SecuredKafka) -> None:
        super().__init__()
        self._address = kafka.address_of("SASL_PLAINTEXT")
        self._connections: dict[str, RawConnection] = {}

    def ask(self, user: str, api: str, version: int, values: Mapping[str, Any]) -> Any:
        if user not in self._connections:
            self._connections[user] = self._connected(user)
        try:
            return self._connections[user].ask(api, version, **values)
        except ConnectionError:
            self._connections.pop(user).__exit__(None, None, None)
            raise

    def _connected(self, user: str) -> RawConnection:
        connection = RawConnection(self._address)
        assert not connection.ask("sasl_handshake", 1, mechanism="PLAIN").error_code
        answer = connection.ask("sasl_authenticate", 2, auth_bytes=f"\0{user}\0{user}".encode())
        assert not answer.error_code, answer
        return connection

    def prepare(self) -> None:
        super().prepare()
        self.wait("a producer id", lambda: self._init(None))

    def wait(self, what: str, is_there: Callable[[], bool]) -> None:
        """A broker hears a little later of what its controller has done."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while not is_there():
            assert time.monotonic() < until, f"no {what} after {_PATIENCE_SECONDS} s"
            time.sleep(0.005)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.__exit__(None, None, None)
