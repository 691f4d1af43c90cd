"""Rows of tables in the words of the second reading."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["generations", "intervals", "rebalances"]


def intervals(rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("group_id", "topic", "partition", "member_id", "began_ms", "ended_ms")
    return sorted((tuple(row[name] for name in names) for row in rows), key=repr)


def rebalances(rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            row["group_id"],
            row["from_generation"],
            row["generation"],
            row["log_offset"],
            sorted(row["came"]),
            sorted(row["left"]),
            [(move["topic"], move["partition"], move["old_owner"], move["new_owner"]) for move in row["moved"]],
        )
        for row in rows
    )


def generations(rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            (
                row["group_id"],
                row.get("generation"),
                row["log_offset"],
                [member["member_id"] for member in row.get("members", [])],
                sorted(
                    ((each["topic"], each["partition"]), member["member_id"])
                    for member in row.get("members", [])
                    for each in member["assignment"]
                ),
            )
            for row in rows
        ),
        key=repr,
    )
