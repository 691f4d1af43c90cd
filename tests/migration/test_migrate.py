"""`coterie migrate` from one broker to another: killed in the middle, it loses nothing and doubles nothing."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random  # noqa: TID251

import pytest

from broker.peer import Serving
from coterie import (
    AccessControlEntry,
    AclBinding,
    AclResourceType,
    Admin,
    AlterConfigOp,
    Broker,
    ConfigChange,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    ResourcePattern,
    TopicPartition,
    checked,
)
from coterie.migration.clusters import Side
from coterie.migration.copier import CopySession, MigrationOptions, copy_until
from coterie.migration.progress import Entry
from coterie.settings.producer_settings import ProducerSettings
from soak.migrate import (
    ORDERS,
    READERS,
    SETTINGS,
    TOPICS,
    Traffic,
    contents,
    kill_in_the_middle,
    offset_differences,
    record_differences,
    run,
    start,
    status_of,
    wait_until,
)


@pytest.mark.real_time
def test_a_copy_that_is_killed_in_the_middle_goes_on_without_loss_or_repetition() -> None:
    """`make migrate-soak` does it with Apache Kafka as the target, and moves a group of three libraries."""
    with Broker(settings=SETTINGS) as source, Broker(settings=SETTINGS) as target:
        here, there = source.bootstrap_servers, target.bootstrap_servers
        with Admin(bootstrap_servers=here) as admin:
            checked(admin.create_topics(TOPICS))
        traffic = Traffic(here, Random(1), pause_s=0.005)
        traffic.start()
        wait_until(lambda: traffic.turns > 20, "records are written")
        ends = [kill_in_the_middle(here, there, wait_s) for wait_s in (0.0, 0.7)]
        assert 0 < ends[0] < ends[1]
        traffic.end()
        done = run(here, there, "--once")
        assert done.returncode == 0, done.stderr
        ours, copies = contents(here), contents(there)
        assert len([one for some in ours.values() for one in some]) > 2_000
        assert not record_differences(ours, copies)
        compared, differences = offset_differences(here, there, READERS, ours, copies)
        assert compared == 2 * sum(topic.partitions for topic in TOPICS) and not differences
        own = run(here, there, "verify")
        assert own.returncode == 0 and own.stdout.count(" equal\n") == compared // 2, own.stdout + own.stderr
        assert {row["next"] for row in status_of(here, there).values()} == {"-", "start it on the target"}
        _what_retention_deletes_is_no_difference(here, there)
        _a_second_migration_is_refused(here, there)


def _what_retention_deletes_is_no_difference(here: str, there: str) -> None:
    place = TopicPartition(ORDERS, 0)
    with Admin(bootstrap_servers=there) as admin:
        records = contents(there)[place]
        checked(admin.delete_records({place: records[-10].offset}))
    told = run(here, there, "verify", "--topic", ORDERS, "-o", "json")
    assert told.returncode == 0, told.stderr
    assert [row["records"] for row in json.loads(told.stdout) if row["partition"] == 0] == [10]


def _a_second_migration_is_refused(here: str, there: str) -> None:
    refused = run(here, there, "status", "--spark")
    assert refused.returncode and "--spark is for copy and verify, not for status" in refused.stderr
    refused = run(here, there, "--name", "another")
    assert refused.returncode == 1 and "orders is in the target already and has records" in refused.stderr
    with Admin(bootstrap_servers=there) as admin:
        assert "another" not in {one.name for one in admin.list_topics()}, "nothing is created if it cannot go on"


def own_configs(admin: Admin, topic: str) -> dict[str, str | None]:
    (found,) = checked(admin.describe_configs([ConfigResource.topic(topic)])).values()
    return {one.name: one.value for one in found.values() if one.source is ConfigSource.DYNAMIC_TOPIC}


def test_topics_are_created_as_they_are_and_followed_when_they_change() -> None:
    """All but a config that would give records another time: the status says when to set it."""
    configs = {"retention.ms": "864000000", "message.timestamp.type": "LogAppendTime"}
    with Broker(settings={"log.retention.bytes": "123456789"}) as source, Broker() as target:
        here, there = source.bootstrap_servers, target.bootstrap_servers
        with (
            Admin(bootstrap_servers=here) as admin,
            Admin(bootstrap_servers=there) as other,
            Producer(bootstrap_servers=here) as producer,
        ):
            checked(admin.create_topics([NewTopic("teas", 2, configs=configs), NewTopic("left-out", 1)]))
            producer.send("teas", "green", partition=0).result()
            assert run(here, there, "--once", "--exclude", "left.*").returncode == 0
            brokers_own = {"retention.bytes": "123456789"}  # or the target would delete by its own default
            assert own_configs(other, "teas") == {"retention.ms": "864000000", **brokers_own}
            assert [one.name for one in other.list_topics()] == ["coterie-migrate", "teas"]

            checked(admin.create_partitions({"teas": 3}))
            changes = [ConfigChange("retention.ms", None, AlterConfigOp.DELETE), ConfigChange("segment.ms", "60000")]
            checked(admin.alter_configs({ConfigResource.topic("teas"): changes}))
            producer.send("teas", "black", partition=2, headers={"from": "Assam"}).result()
            assert run(here, there, "--once", "--topic", "teas").returncode == 0
            assert own_configs(other, "teas") == {"segment.ms": "60000", **brokers_own}

            teas = [NewTopic("teas", 3)]
            assert not record_differences(contents(here, teas), contents(there, teas))
            assert "topics alter teas --topic-config message.timestamp.type=LogAppendTime" in (
                run(here, there, "status").stdout
            )
            _a_wrong_copy_is_found(here, there, other)


def _a_wrong_copy_is_found(here: str, there: str, admin: Admin) -> None:
    """A topic of the same name has another record at the offset of the copy."""
    checked(admin.delete_topics(["teas"]))
    checked(admin.create_topics([NewTopic("teas", 3)]))
    with Producer(bootstrap_servers=there) as producer:
        producer.send("teas", "coffee", partition=0).result()
    told = run(here, there, "verify")
    assert told.returncode == 1
    assert "teas-0: offset 0, 0 in the target: another timestamp, value" in told.stderr
    assert "teas-2: offset 0: not in the target" in told.stderr


def test_acls_are_copied_if_both_clusters_have_an_authorizer() -> None:
    authorizer = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:ANONYMOUS"}
    acl = AclBinding(ResourcePattern(AclResourceType.TOPIC, "teas"), AccessControlEntry("User:bob"))
    with Broker(settings=authorizer) as source, Broker(settings=authorizer) as target, Broker() as open_one:
        with Admin(bootstrap_servers=source.bootstrap_servers) as admin:
            checked(admin.create_acls([acl]))
        told = run(source.bootstrap_servers, target.bootstrap_servers, "--once")
        assert told.returncode == 0 and "1 ACLs copied" in told.stderr
        with Admin(bootstrap_servers=target.bootstrap_servers) as admin:
            assert admin.describe_acls() == [acl]
        told = run(source.bootstrap_servers, open_one.bootstrap_servers, "--once")
        assert told.returncode == 0 and "the target has no authorizer" in told.stderr


@pytest.mark.real_time
def test_each_side_has_its_own_client_settings(tmp_path: Path) -> None:
    """The source is secured by TLS and a password, and the target is not."""
    secure, out = tmp_path / "secure", tmp_path / "log"
    with Serving(None, "--secure", str(secure), log=out) as source, Broker() as target:
        here, there, config = source.ready(), target.bootstrap_servers, secure / "java.properties"
        settings = ProducerSettings.load(config.read_text())
        with Producer(settings) as producer:
            producer.send("teas", "green").result()
        told = run(here, there, "--once", "--from-config", str(config))
        assert told.returncode == 0 and "1 records copied" in told.stderr, told.stderr
        assert [one.value for one in contents(there, [NewTopic("teas", 1)])[TopicPartition("teas", 0)]] == [b"green"]


@pytest.mark.real_time
def test_a_second_copy_of_the_same_name_ends_the_first() -> None:
    """Two that write would double records. The one that was started later goes on; Ctrl-C ends it in order."""
    with Broker() as source, Broker() as target:
        here, there = source.bootstrap_servers, target.bootstrap_servers
        with Producer(bootstrap_servers=here) as producer:
            producer.send("teas", "green").result()
            with ended(start(here, there, stderr=subprocess.PIPE)) as first:
                wait_until(lambda: _copies(there) == [b"green"], "the first copies")
                with ended(start(here, there)) as second:
                    wait_until(lambda: _ends(producer, first), "the first ends when it copies the next record")
                    second.send_signal(signal.SIGTERM)
                    _, said = first.communicate()
                    assert (first.returncode, second.wait(30)) == (1, 0), said
            assert b"Another coterie migrate with --name coterie-migrate was started" in said
        assert run(here, there, "--once").returncode == 0
        teas = [NewTopic("teas", 1)]
        assert not record_differences(contents(here, teas), contents(there, teas))


def test_progress_is_not_stored_where_retention_deletes_it() -> None:
    """Somebody has made the topic before, since the copy's user may not."""
    with Broker() as source, Broker() as target:
        here, there = source.bootstrap_servers, target.bootstrap_servers
        with Producer(bootstrap_servers=here) as producer, Admin(bootstrap_servers=there) as admin:
            producer.send("teas", "green").result()
            checked(admin.create_topics([NewTopic("coterie-migrate", 1)]))
            told = run(here, there, "--once")
            assert told.returncode == 1 and "coterie-migrate in the target has cleanup.policy=delete" in told.stderr
            assert _copies(there) == []
            compact = [ConfigChange("cleanup.policy", "compact")]
            checked(admin.alter_configs({ConfigResource.topic("coterie-migrate"): compact}))
            assert run(here, there, "--once").returncode == 0
            assert _copies(there) == [b"green"]


def test_a_copy_does_not_go_on_in_a_topic_that_was_made_anew_in_the_target() -> None:
    """It has none of the records that were copied before, and the copy would not copy them again."""
    with Broker() as source, Broker() as target:
        here, there = source.bootstrap_servers, target.bootstrap_servers
        with Producer(bootstrap_servers=here) as producer, Admin(bootstrap_servers=there) as admin:
            producer.send("teas", "green").result()
            assert run(here, there, "--once").returncode == 0
            checked(admin.delete_topics(["teas"]))
            checked(admin.create_topics([NewTopic("teas", 1)]))
            producer.send("teas", "black").result()
        told = run(here, there, "--once")
        assert "teas was deleted in the target after the copy had begun" in told.stderr
        assert _copies(there) == []


def test_a_group_that_reads_in_the_target_while_others_are_looked_at_is_not_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has come, committed and gone between the look at it and the moment when its offsets are set."""
    place = TopicPartition("teas", 0)
    with Broker() as source, Broker() as target:
        here, there = source.bootstrap_servers, target.bootstrap_servers
        with Admin(bootstrap_servers=here) as admin, Producer(bootstrap_servers=here) as producer:
            for one in range(10):
                producer.send("teas", str(one)).result()
            checked(admin.alter_group_offsets("billing", {place: OffsetAndMetadata(2)}))
        write = CopySession._write

        def write_slowly(session: CopySession, entries: Collection[Entry]) -> None:
            write(session, entries)
            if any(b"billing" in key for key, _ in entries):
                checked(target_admin.alter_group_offsets("billing", {place: OffsetAndMetadata(7)}))

        monkeypatch.setattr(CopySession, "_write", write_slowly)
        options = MigrationOptions(Side(here), Side(there), once=True, with_acls=False)
        with Admin(bootstrap_servers=there) as target_admin:
            status = copy_until(options, lambda: False, print, lambda _: None)
            there_now = checked(target_admin.list_group_offsets("billing"))[place]
            assert there_now is not None and there_now.offset == 7
        assert status.records == 10 and [one.has_moved for one in status.groups] == [True]


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Leave no process behind."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def _ends(producer: Producer, process: subprocess.Popen[bytes]) -> bool:
    producer.send("teas", "black").result()
    return process.poll() is not None


def _copies(there: str) -> list[bytes | None]:
    with Admin(bootstrap_servers=there) as admin:
        if "teas" not in {one.name for one in admin.list_topics()}:
            return []
    return [one.value for one in contents(there, [NewTopic("teas", 1)])[TopicPartition("teas", 0)]]
