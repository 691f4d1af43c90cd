"""Fixtures: a shop whose orders are billed by members of each client library, and a gate that holds a member up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from billing.services import LIBRARIES
from coterie.testing import KafkaBroker
from shop import Gate, Shop


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shop(kafka_broker: KafkaBroker, library: str) -> Iterator[Shop]:
    kafka_broker.clock.freeze()  # on a busy machine, too, members expire when a test says so, and not before
    shop = Shop(kafka_broker, library)
    yield shop
    shop.close()


@pytest.fixture
def gate(shop: Shop) -> Iterator[Gate]:  # noqa: ARG001  it is opened before the shop is closed
    gate = Gate()
    yield gate
    gate.open()
