"""A pytest plugin for the copy that has a defect: says which test noticed it, and of which kind that is."""

from __future__ import annotations

from collections.abc import Generator

import pytest

__all__ = ["pytest_runtest_makereport"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        print(f"\nCAUGHT {_kind(item)}: {item.nodeid}")
    return report


def _kind(item: pytest.Item) -> str:
    if item.get_closest_marker("hypothesis") is not None:
        return "property"
    module = getattr(item, "module", None)
    told = any(getattr(value, "__module__", "").startswith("coterie.stories") for value in vars(module).values())
    return "story" if told else "test"
