"""Test consumers against a real broker: waits with names, a clock that you move, faults that you script.

Read `kafka_broker.py` first: a broker in a thread, with `group`, `topic`, `clock` and `faults`. `plugin.py` has the
fixtures of pytest, `unittest.py` the test cases of unittest. `controlled_server.py` is between the broker and all this:
it sees each request before the broker does, and each answer before the client does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.testing.broker_faults import Faults
    from coterie.testing.chaos_runs import chaos
    from coterie.testing.clock import BrokerClock
    from coterie.testing.faults import Fault, FaultNotFiredError
    from coterie.testing.groups import Group, GroupSnapshot, Member
    from coterie.testing.kafka_broker import KafkaBroker
    from coterie.testing.request_faults import FaultBuilder, RequestFault
    from coterie.testing.requests import Request
    from coterie.testing.topics import Topic
    from coterie.testing.waits import WaitTimeoutError

__all__ = [
    "BrokerClock",
    "Fault",
    "FaultBuilder",
    "FaultNotFiredError",
    "Faults",
    "Group",
    "GroupSnapshot",
    "KafkaBroker",
    "Member",
    "Request",
    "RequestFault",
    "Topic",
    "WaitTimeoutError",
    "chaos",
]

_NAMES_BY_MODULE = {
    "broker_faults": "Faults",
    "chaos_runs": "chaos",
    "clock": "BrokerClock",
    "faults": "Fault FaultNotFiredError",
    "groups": "Group GroupSnapshot Member",
    "kafka_broker": "KafkaBroker",
    "request_faults": "FaultBuilder RequestFault",
    "requests": "Request",
    "topics": "Topic",
    "waits": "WaitTimeoutError",
}
_HOMES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used: pytest imports this package in every run, for its plugin."""
    if name in _HOMES:
        return getattr(import_module(f"coterie.testing.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'coterie.testing' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, also those that are not loaded yet."""
    return sorted(__all__)
