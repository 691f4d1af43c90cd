"""The controls of `coterie.testing` over HTTP, for tests in other languages: `coterie serve --test-controls`.

Read `operations.py` first: one table, from which requests are routed and `/openapi.json` is made. Most of its rows are
methods of the Python API, whose parameters and docstrings are taken as they are.
"""

from __future__ import annotations

from coterie.testing.http_controls.http_server import ControlServer
from coterie.testing.http_controls.served_broker import ServedBroker, TestControls

__all__ = ["ControlServer", "ServedBroker", "TestControls"]
