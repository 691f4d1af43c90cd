from __future__ import annotations

from uuid import UUID

from coterie.broker.broker_effects import Send, Starting
from coterie.broker.broker_facts import TransactionRefused
from coterie.broker.calls import Connection
from coterie.broker.cluster import Cluster
from coterie.errors import ErrorCode
from coterie.facts import Emit
from coterie.protocol.apis import find_coordinator
from coterie.protocol.frames import read_response_header, request_frame
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import MemoryFiles

LENGTH = 4
VERSION = 6


def test_a_transactional_producer_is_refused_and_the_log_says_why() -> None:
    """Most clients show the code alone, and "authorization failed" would send its reader looking for access rights."""
    cluster = Cluster(MemoryFiles(), BrokerSettings.of({}), 0, fresh_id=lambda: UUID(int=7), sync=False)
    cluster.handle(Starting(), 0)
    api = find_coordinator.API
    asked = find_coordinator.Request(keys=["orders-tx"], key_type=find_coordinator.TRANSACTION)
    frame = request_frame(api.key, VERSION, 1, "shop", find_coordinator.write_request(asked, VERSION), flexible=True)
    effects = cluster.nodes[1].received(Connection("127.0.0.1"), frame[LENGTH:], 5)

    (told,) = [effect.fact for effect in effects if isinstance(effect, Emit)]
    assert isinstance(told, TransactionRefused)
    assert (told.client_id, told.transactional_id) == ("shop", "orders-tx")
    assert "does not do transactions" in told.why
    (sent,) = [effect for effect in effects if isinstance(effect, Send)]
    assert isinstance(sent.data, bytes)
    answer = sent.data[LENGTH:]
    _, at = read_response_header(answer, flexible=api.has_flexible_response_header(VERSION))
    (coordinator,) = find_coordinator.read_response(answer, at, VERSION).coordinators
    assert coordinator.error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert coordinator.message == told.why
