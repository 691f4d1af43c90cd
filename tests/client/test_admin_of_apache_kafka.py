"""The same stories, told to Apache Kafka 4.3.1: what our admin says of a Coterie broker it says of Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from apache_kafka import ApacheKafka, needs_apache_kafka
from client.admin_stories import STORIES
from coterie.client.admin import Admin

pytestmark = [pytest.mark.real_time, needs_apache_kafka]


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka() as running:
        yield running


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_apache_kafka_is_administered(kafka: ApacheKafka, story: Callable[[Admin, str], None]) -> None:
    with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        story(admin, kafka.bootstrap)
