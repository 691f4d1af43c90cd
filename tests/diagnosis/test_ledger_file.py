"""The ledger on disk: what it stores, how it continues, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from coterie.diagnosis import GroupSample, PartitionLag
from coterie.diagnosis.ledger_file import FILE, LedgerFile, RecordRow
from coterie.diagnosis.samples import SampledMember
from coterie.errors import CoterieError
from coterie.facts import Cause, MemberJoined, RebalanceStarted
from coterie.ledger import write_fact
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from diagnosis.test_merge import RECORDED, recorded_records


def rows() -> list[RecordRow]:
    found = json.loads((RECORDED / "kafka-4.3.1-records.json").read_text())["records"]
    return [
        (partition, offset, at_ms, "g", bytes.fromhex(key), None if value is None else bytes.fromhex(value))
        for partition, offset, at_ms, key, value in found
    ]


def topics() -> dict[UUID, str]:
    return {
        UUID(id_): name
        for id_, name in json.loads((RECORDED / "kafka-4.3.1-records.json").read_text())["topics"].items()
    }


def test_a_ledger_gives_back_the_histories_that_were_stored(tmp_path: Path) -> None:
    with LedgerFile(tmp_path / "ledger", create=True) as ledger:
        ledger.add_topics(topics())
        ledger.add_records(rows(), [], {(OFFSETS_TOPIC, 0): 1_000})
    with LedgerFile(tmp_path / "ledger") as ledger:
        assert ledger.positions() == {(OFFSETS_TOPIC, 0): 1_000}
        found, expected = ledger.histories(), recorded_records().histories()
    assert set(found) == set(expected)
    for group, history in found.items():
        assert [one.to_json()["cause"] for one in history.rebalances] == [
            one.to_json()["cause"] for one in expected[group].rebalances
        ]


def test_records_that_are_stored_twice_are_there_once(tmp_path: Path) -> None:
    """As after a crash between reading and storing, in which the same records are read again."""
    with LedgerFile(tmp_path, create=True) as ledger:
        for _ in range(2):
            ledger.add_records(rows(), [], {(OFFSETS_TOPIC, 0): 1_000})
        assert list(ledger.records()) == sorted(rows())


def test_the_last_commit_of_a_partition_is_stored_with_the_number_of_commits(tmp_path: Path) -> None:
    with LedgerFile(tmp_path, create=True) as ledger:
        ledger.add_records([], [], {}, [("g", "t", 0, 5, 1_000, 2), ("g", "t", 1, 7, 1_000, 1)])
    with LedgerFile(tmp_path, create=True) as ledger:
        ledger.add_records([], [], {}, [("g", "t", 0, 9, 2_000, 3), ("g", "t", 1, None, 2_000, 1)])
        assert list(ledger.commits("g")) == [("g", "t", 0, 9, 2_000, 5), ("g", "t", 1, None, 2_000, 2)]
        ledger.prune(before_ms=1 << 60)
        assert [one[:3] for one in ledger.commits()] == [("g", "t", 0)], "that of a deleted offset is not needed"


def test_facts_samples_and_lines_are_merged_into_the_history(tmp_path: Path) -> None:
    start = RebalanceStarted(5_000, "g", Cause.NEW_MEMBER, "m", None, 0, [])
    joined = MemberJoined(4_900, "g", "m", None, "app", "/h")
    sample = GroupSample(6_000, "Stable", 3, ("m",), "h:1 (1)", (PartitionLag("t", 0, 5, None, "m"),))
    with LedgerFile(tmp_path, create=True) as ledger:
        ledger.add_records([], [(at, one.at_ms, "g", write_fact(one)) for at, one in enumerate((joined, start))], {})
        ledger.add_samples([("g", "consumer", sample)], [("g", SampledMember("m", "app", "/h", None, ("t",)))])
        ledger.add_lines(
            [("server.log:1 (x)", 1, "[1970-01-01 00:00:09,000] INFO Group g with generation 2 is now empty")]
        )
        (history,) = ledger.histories("g").values()
        assert ledger.histories("another") == {}
    assert history.grades == {"observed", "sampled", "logged"}
    assert history.rebalances[0].cause.value == Cause.NEW_MEMBER and history.name_of("m") == "app"
    assert history.samples == [sample]


def test_pruning_keeps_what_the_state_of_a_group_is_known_from(tmp_path: Path) -> None:
    with LedgerFile(tmp_path, create=True) as ledger:
        ledger.add_records(rows(), [], {})
        ledger.prune(before_ms=1 << 60)
        left = list(ledger.records())
    assert 0 < len(left) < len(rows())
    assert {row[4] for row in left} == {row[4] for row in rows()}


def test_a_directory_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CoterieError, match="is not a ledger"):
        LedgerFile(tmp_path / "nothing")


def test_a_file_that_is_not_sqlite_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"this is no database, it only has its name" * 100)
    with pytest.raises(CoterieError, match="cannot be used"):
        LedgerFile(tmp_path)


def test_a_ledger_of_another_cluster_or_a_later_release_is_refused(tmp_path: Path) -> None:
    with LedgerFile(tmp_path, create=True) as ledger:
        ledger.check_cluster("one")
        ledger.check_cluster("one")
        with pytest.raises(CoterieError, match="is the ledger of cluster one, not of two"):
            ledger.check_cluster("two")
        ledger.set_about("version", "99")
    with pytest.raises(CoterieError, match="later release"):
        LedgerFile(tmp_path)
