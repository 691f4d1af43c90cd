"""Whole lives of groups in Apache Kafka 4.3.1, as record_groups.py has recorded them."""

from __future__ import annotations

import json
from pathlib import Path

from spark.second_reading import LogRecord

__all__ = ["LIVED", "NAMES"]

NAMES, *_LINES = map(json.loads, (Path(__file__).parent / "data" / "groups.jsonl").read_text().splitlines())
LIVED = [
    LogRecord(0, line["offset"], line["ms"], bytes.fromhex(line["key"]), value)
    for line in _LINES
    for value in [None if line["value"] is None else bytes.fromhex(line["value"])]
]
