"""Brokers for tests of unittest: a mixin for any test case, and the two usual test cases with it.

class TestBilling(KafkaTestCase):
    kafka = {"topics": {"orders": 3}}

    def test_one_member(self) -> None:
        start_consumer(self.kafka_broker.bootstrap_servers)
        self.kafka_broker.group("billing").wait_stable(members=1)
"""

from __future__ import annotations

import unittest
from collections.abc import Mapping
from typing import Any, ClassVar

from coterie.testing.environment import bootstrap_in_environment
from coterie.testing.kafka_broker import KafkaBroker

__all__ = ["AsyncKafkaTestCase", "KafkaTestCase", "KafkaTestMixin"]


class KafkaTestMixin:
    """Gives each test a broker with fresh state, `self.kafka_broker`; put it before the class of the test case.

    While a test runs, COTERIE_BOOTSTRAP_SERVERS in the environment is the address of its broker. A fault that is still
    in force at the end of a test is ended, and fails the test if it never fired.
    """

    kafka: ClassVar[Mapping[str, Any]] = {}
    """The arguments of `KafkaBroker`, for all tests of the class."""
    kafka_broker: KafkaBroker
    """The broker of the test that runs."""

    def setUp(self) -> None:
        """Start the broker of a test."""
        super().setUp()  # type: ignore[misc]
        case: Any = self
        self.kafka_broker = case.enterContext(KafkaBroker(**self.kafka))
        case.enterContext(bootstrap_in_environment(self.kafka_broker.bootstrap_servers))
        case.addCleanup(self.kafka_broker.end_faults)


class KafkaTestCase(KafkaTestMixin, unittest.TestCase):
    """A test case whose tests have a broker each."""


class AsyncKafkaTestCase(KafkaTestMixin, unittest.IsolatedAsyncioTestCase):
    """A test case with asyncio whose tests have a broker each."""
