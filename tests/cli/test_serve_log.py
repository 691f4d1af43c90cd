"""What `coterie serve` writes at its start and its end, as a process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.peer import Serving
from coterie import Consumer, Producer


@pytest.mark.real_time
def test_it_says_where_data_is_how_it_flushes_what_listens_and_that_it_stopped(tmp_path: Path) -> None:
    with Serving(tmp_path / "my data", "--set", "group.initial.rebalance.delay.ms=0") as broker:
        where = broker.ready()
        with Producer(bootstrap_servers=where) as producer:
            producer.send("orders", "tea")
        consumer = Consumer(bootstrap_servers=where, group_id="bar", auto_offset_reset="earliest")
        with consumer:
            consumer.subscribe(["orders"])
            assert next(consumer).value == b"tea"
        broker.signal()
        code, said = broker.ended()
    assert code == 0
    lines = said.splitlines()
    assert all(line.startswith("time=2") and " level=info " in line for line in lines), said
    start, data, listening = lines[:3]
    assert ' msg="Coterie ' in start and start.endswith(" nodes=1")
    assert f'msg="a write is acknowledged when it is on disk" data="{tmp_path}/my data" flush=sync' in data
    assert f"msg=listening address={where} listener=PLAINTEXT node=1" in listening
    assert any(" assignments=" in line and "orders[0]" in line for line in lines), said
    assert "bytes" not in said and "GroupDied" not in said
    assert " msg=stopped" in lines[-1]


@pytest.mark.real_time
def test_every_line_is_json_if_that_is_asked_for() -> None:
    with Serving(None, "--log-format", "json") as broker:
        broker.ready()
        broker.signal()
        code, said = broker.ended()
    lines = [json.loads(line) for line in said.splitlines()]
    assert code == 0 and all({"time", "level"} <= line.keys() for line in lines)
    assert [line.get("data") for line in lines if "data" in line] == ["memory"]
    assert lines[-1]["note"] == "stopped"
