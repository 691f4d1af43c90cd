"""Warnings about sockets that kafka-python leaves to the garbage collector are ignored in these tests.

It does not close a socket whose connection fails or is cut off. In other tests, a socket that is not closed is a
defect: `consumers.py` collects what kafka-python left before a test ends.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_LEFT_OPEN = "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings(_LEFT_OPEN))
