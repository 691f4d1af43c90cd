"""Settings: Kafka's names, types, bounds and defaults; files, environment and --set; errors that help."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.kafka_record import OTHER_BOUNDS, OTHER_DEFAULTS, RECORD
from coterie.protocol.batch import TimestampType
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.config_def import Number, Ratio, Secret, SettingsError, Word, Words, text_of
from coterie.storage import LogConfig, offsets_log_config, offsets_topic_configs

KAFKA: dict[str, list[str | None]] = RECORD["definitions"]["broker"]
SETTINGS = BrokerSettings.rows()
CODES = {"BOOLEAN": 1, "STRING": 2, "INT": 3, "SHORT": 4, "LONG": 5, "DOUBLE": 6, "LIST": 7, "CLASS": 8, "PASSWORD": 9}
OURS_ALONE = {name for name in SETTINGS if name.startswith("coterie.")}
OF_THE_AUTHORIZER = {"super.users", "allow.everyone.if.no.acl.found"}
"""Kafka's StandardAuthorizer reads them; its table does not have them."""


# The table is Kafka's


@pytest.mark.parametrize("name", sorted(set(SETTINGS) - OURS_ALONE - OF_THE_AUTHORIZER))
def test_a_setting_has_the_type_default_and_bounds_of_kafka(name: str) -> None:
    row, (kafka_type, default, validator) = SETTINGS[name], KAFKA[name]
    assert row.kind.code == CODES[str(kafka_type)]
    assert (row.text(row.default) != default) == (name in OTHER_DEFAULTS)
    assert (_bounds(row.kind) != _kafka_bounds(str(kafka_type), validator)) == (name in OTHER_BOUNDS)


def _bounds(kind: Any) -> object:
    if isinstance(kind, Number):
        return (kind.least, kind.most, kind.also)
    if isinstance(kind, (Word, Words)):
        return set(kind.choices)
    return (0, 1) if isinstance(kind, Ratio) else None


def _kafka_bounds(kafka_type: str, validator: str | None) -> object:
    """Kafka prints `[1,...]`, `[1,...,9] or -1`, `[delete, compact]`; nothing is all there is."""
    text = validator or ""
    if kafka_type in {"INT", "LONG"}:
        bits = 31 if kafka_type == "INT" else 63
        match = re.fullmatch(r"\[(-?\d+),\.\.\.(?:,(-?\d+))?\](?: or (-?\d+))?", text)
        least, most, also = match.groups() if match else (None, None, None)
        return (
            int(least) if least else -(2**bits),
            int(most) if most else 2**bits - 1,
            (int(also),) if also else (),
        )
    if kafka_type == "DOUBLE":
        return (0, 1) if text == "[0,...,1]" else None
    if kafka_type in {"BOOLEAN", "PASSWORD"}:
        return None
    in_any_case = text.removeprefix("(case insensitive) ")
    if in_any_case != text:
        text = in_any_case.lower()
    return set(text.strip("[]").split(", ")) if text.startswith("[") else set()


def test_differences_from_kafka_are_all_about_settings_there_are() -> None:
    assert OTHER_DEFAULTS.keys() | OTHER_BOUNDS.keys() <= SETTINGS.keys()


def test_every_setting_of_kafka_is_taken_or_ignored_for_a_reason() -> None:
    """A file made for Kafka 4.3.1 starts us, whatever is in it."""
    known = SETTINGS.keys() | {name for row in SETTINGS.values() for name in row.also}
    ignored = {name for name in [*KAFKA, *known] if any(row.has(name) for row in BrokerSettings.unsupported)}
    assert not KAFKA.keys() - known - ignored
    assert not known & ignored, "taken or ignored, not both"


def test_every_name_that_is_ignored_is_kafkas_or_was() -> None:
    (gone,) = (row.names for row in BrokerSettings.unsupported if row.why == "Kafka 4 does not have it any more")
    not_kafkas = {"confluent.*", "auto.include.jmx.reporter", *gone}
    not_kafkas |= {"rlmm.config.*", "rsm.config.*", "config.providers.*"}
    for row in BrokerSettings.unsupported:
        for pattern in row.names:
            is_kafkas = any(name == pattern or (pattern[-1] == "*" and name.startswith(pattern[:-1])) for name in KAFKA)
            assert is_kafkas != (pattern in not_kafkas), pattern


def test_ours_have_a_prefix_and_the_others_are_kafkas() -> None:
    assert SETTINGS.keys() - KAFKA.keys() == OURS_ALONE | OF_THE_AUTHORIZER


def test_a_log_has_the_defaults_of_the_table() -> None:
    assert LogConfig() == LogConfig.of({}, BrokerSettings())


# Where they come from


def test_the_later_source_counts() -> None:
    """Defaults, file, KAFKA_, COTERIE_, --set, keywords."""
    text, name = "num.partitions=2\n", "num.partitions"
    kafka, coterie = {"KAFKA_NUM_PARTITIONS": "3"}, {"COTERIE_NUM_PARTITIONS": "4"}
    assert BrokerSettings.load().num_partitions == 1
    assert BrokerSettings.load(text).num_partitions == 2
    assert BrokerSettings.load(text, kafka).num_partitions == 3
    assert BrokerSettings.load(text, coterie | kafka).num_partitions == 4
    assert BrokerSettings.load(text, coterie | kafka, [f"{name}=5"]).num_partitions == 5
    assert BrokerSettings.load(text, coterie | kafka, [f"{name}=5", f"{name}=6"]).num_partitions == 6
    assert BrokerSettings.load(text, coterie | kafka, [f"{name}=5"], num_partitions=7)[name] == 7
    assert BrokerSettings.load(text, kafka).given == {"num.partitions": "KAFKA_NUM_PARTITIONS"}
    assert BrokerSettings.load(text).given == {"num.partitions": "properties file, line 1"}


def test_python_may_give_names_with_dots_or_underscores_and_values_of_any_type() -> None:
    settings = BrokerSettings.of(
        {
            "group.initial.rebalance.delay.ms": 0,
            "num_partitions": 4,
            "auto_create_topics_enable": False,
            "log.cleanup.policy": ["compact", "delete"],
            "log.cleaner.min.cleanable.ratio": 0.25,
            "message.max.bytes": "2000",
        }
    )
    assert (settings.group_initial_rebalance_delay_ms, settings.num_partitions) == (0, 4)
    assert settings.auto_create_topics_enable is False
    assert settings.log_cleanup_policy == ("compact", "delete")
    assert (settings.log_cleaner_min_cleanable_ratio, settings.message_max_bytes) == (0.25, 2000)


def test_variables_are_named_as_kafkas_image_names_them() -> None:
    """One underscore is a dot, two are an underscore, three a dash."""
    settings = BrokerSettings.load(environ={"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0", "KAFKA_SSL_A__B___C": "x"})
    assert settings.group_initial_rebalance_delay_ms == 0
    assert [each.name for each in settings.ignored] == ["ssl.a.b-c"]


def test_our_own_settings_need_their_prefix_only_once_in_the_environment() -> None:
    assert BrokerSettings.load(environ={"COTERIE_FLUSH": "os"}).coterie_flush == "os"
    assert BrokerSettings.load(environ={"KAFKA_COTERIE_FLUSH": "os"}).coterie_flush == "os"


@pytest.mark.parametrize(
    "variable",
    [
        *("KAFKA_OPTS", "KAFKA_HEAP_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS", "KAFKA_JMX_PORT"),
        *("KAFKA_LOG4J_OPTS", "KAFKA_LOG4J_ROOT_LOGLEVEL", "KAFKA_TOOLS_LOG4J_LOGLEVEL", "KAFKA_JMX_HOSTNAME"),
        *("KAFKA_VERSION", "KAFKA_HOME", "CLUSTER_ID", "PATH", "COTERIE_KAFKA_LIBS"),
        *("COTERIE_BOOTSTRAP", "COTERIE_BOOTSTRAP_SERVERS", "COTERIE_CONTROLS_TOKEN", "COTERIE_SEED"),
        *("KAFKA_PORT", "KAFKA_PORT_9092_TCP_ADDR", "KAFKA_SERVICE_HOST", "KAFKA_SERVICE_PORT_CLIENTS"),
    ],
)
def test_variables_that_are_no_settings_are_left_alone(variable: str) -> None:
    """Those of Kafka's scripts and image, and of a Kubernetes service called kafka."""
    settings = BrokerSettings.load(environ={variable: "tcp://10.0.0.1:9092"})
    assert settings == BrokerSettings() and not settings.given


def test_a_variable_of_somebody_elses_is_named_and_one_that_is_nearly_ours_is_refused() -> None:
    settings = BrokerSettings.load(environ={"KAFKA_BOOTSTRAP_SERVERS": "kafka:9092", "KAFKA_TOPIC": "orders"})
    assert {each.name for each in settings.ignored} == {"bootstrap.servers", "topic"}
    with pytest.raises(SettingsError, match=r"num\.partition \(KAFKA_NUM_PARTITION\).*did you mean num\.partitions"):
        BrokerSettings.load(environ={"KAFKA_NUM_PARTITION": "3"})
    with pytest.raises(SettingsError, match=r"did you mean coterie\.flush\?"):
        BrokerSettings.load(environ={"COTERIE_FLUSHH": "os"})


def test_a_file_made_for_kafka_works_and_what_changes_nothing_is_named_with_the_reason() -> None:
    text = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
advertised.listeners=PLAINTEXT://localhost:9092
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.request.max.bytes=104857600
log.dirs=/data
offsets.topic.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.min.isr=1
log.retention.hours=24
log.preallocate=true
log.cleaner.delete.retention.ms=86400000
"""
    settings = BrokerSettings.load(text)
    assert LogConfig.of({}, settings).retention_ms == 24 * 60 * 60 * 1000
    assert (settings.log_dirs, settings.node_id) == (("/data",), 1)
    ignored = {each.name: each for each in settings.ignored}
    assert ignored.keys() == {
        *("process.roles", "controller.quorum.voters", "inter.broker.listener.name", "num.network.threads"),
        *("num.io.threads", "offsets.topic.replication.factor", "transaction.state.log.min.isr"),
        *("share.coordinator.state.topic.min.isr", "log.preallocate"),
    }
    assert str(ignored["process.roles"]) == (
        "process.roles (properties file, line 2) has no effect: the process is its own controller"
    )


def test_a_second_name_is_as_good_as_the_first_and_the_first_one_counts() -> None:
    assert BrokerSettings.of({"broker.id": 5, "log.dir": "/d"}).node_id == 5
    both = BrokerSettings.of({"node.id": 3, "broker.id": 5})
    assert both.node_id == 3 and [each.name for each in both.ignored] == ["broker.id"]


# What is refused


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"num.partitons": 3}, "did you mean num.partitions?"),
        ({"group_initial_rebalance_delay": 3}, "did you mean group.initial.rebalance.delay.ms?"),
        ({"xyz": 3}, "docs/settings.md"),
        ({"num.partitions": 0}, "num.partitions = '0' (settings): must be a whole number from 1 to 2147483647"),
        ({"num.partitions": True}, "must be a whole number"),
        ({"num.partitions": ""}, "must be a whole number"),
        ({"num.partitions": None}, "must be a whole number"),
        ({"num.partitions": "9" * 9000}, "must be a whole number"),
        ({"compression.type": "zip"}, "must be uncompressed or zstd or lz4 or snappy or gzip or producer"),
        ({"compression.gzip.level": 0}, "a whole number from 1 to 9 or -1"),
        ({"coterie.flush": "never"}, "must be sync or os"),
        ({"delete.topic.enable": "yes"}, "must be true or false"),
        ({"log.cleanup.policy": "zap"}, "a comma-separated list of compact, delete"),
        ({"default.replication.factor": 3}, "must be 1; there is one copy of each log"),
        ({"min.insync.replicas": 2}, "must be 1; there is one copy of each log"),
        ({"authorizer.class.name": "org.acme.Authorizer"}, "there is no JVM to load a class into"),
        ({"group.min.session.timeout.ms": 2_000_000}, "no member could join"),
        ({"log.retention.ms": 0}, "gone at once"),
        ({"log.retention.hours": 0}, "gone at once"),
        ({"log.cleaner.min.compaction.lag.ms": 5, "log.cleaner.max.compaction.lag.ms": 4}, "is above"),
        ({"log.dirs": "/a,/b"}, "only one is supported"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_is_wrong_is_refused_with_what_is_allowed(values: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(says)):
        BrokerSettings.of(values)


def test_all_that_is_wrong_is_said_at_once_with_where_it_came_from() -> None:
    with pytest.raises(SettingsError) as refused:
        BrokerSettings.load(
            "# ours\nnum.partitions=x\n", {"KAFKA_MESSAGE_MAX_BYTES": "-1"}, ["nonsense", "log.segment.bytes=1"]
        )
    assert str(refused.value).splitlines() == [
        "--set 'nonsense': must be name=value",
        "num.partitions = 'x' (properties file, line 2): must be a whole number from 1 to 2147483647",
        "message.max.bytes = '-1' (KAFKA_MESSAGE_MAX_BYTES): must be a whole number from 0 to 2147483647",
        "log.segment.bytes = '1' (--set): must be a whole number from 1048576 to 2147483647",
    ]


def test_a_broken_file_names_its_line() -> None:
    with pytest.raises(SettingsError, match="properties file, line 2"):
        BrokerSettings.load("a=1\nb=\\uXYZ")


def test_a_prefix_alone_is_no_variable() -> None:
    with pytest.raises(SettingsError, match="COTERIE_: no setting is named"):
        BrokerSettings.load(environ={"COTERIE_": "1"})


names = st.sampled_from(list(SETTINGS)) | st.text(max_size=10)
texts = st.text(max_size=10) | st.sampled_from(["1", "-1", "true", "PLAINTEXT://:1", "delete", "0.5", "A:B"])


@given(st.text(), st.dictionaries(names, texts, max_size=3), st.lists(st.text(), max_size=2))
def test_nothing_but_a_settings_error_ever_comes_out(text: str, values: dict[str, str], sets: list[str]) -> None:
    variables = {f"KAFKA_{name}".upper().replace(".", "_"): value for name, value in values.items()}
    with suppress(SettingsError):
        assert BrokerSettings.of(values).given.keys() <= SETTINGS.keys()
    with suppress(SettingsError):
        assert BrokerSettings.load(text, variables, sets).given.keys() <= SETTINGS.keys()


rows_and_texts = st.sampled_from(list(SETTINGS.values())).flatmap(
    lambda row: st.tuples(st.just(row), st.text(max_size=8) | st.integers().map(str) | st.just(text_of(row.default)))
)


@given(rows_and_texts)
def test_a_value_that_is_read_is_written_as_it_is_read_again(row_and_text: tuple[Any, str]) -> None:
    row, text = row_and_text
    try:
        value = row.kind.read(text)
    except ValueError:
        return
    if not isinstance(row.kind, Secret):  # that is written as [hidden]
        assert row.kind.read(row.kind.write(value)) == value


# Where they go


def test_a_log_gets_its_topics_configs_over_the_brokers_settings() -> None:
    settings = BrokerSettings.of(
        {
            "log.segment.bytes": 2_000_000,
            "log.roll.hours": 1,
            "log.index.size.max.bytes": 400,
            "log.index.interval.bytes": 5,
            "log.retention.minutes": 2,
            "log.retention.bytes": -9,
            "log.cleanup.policy": "compact,delete",
            "log.cleaner.min.cleanable.ratio": 0.25,
            "log.cleaner.min.compaction.lag.ms": 12,
            "log.cleaner.max.compaction.lag.ms": 13,
            "log.cleaner.delete.retention.ms": 14,
            "message.max.bytes": 77,
            "log.message.timestamp.type": "LogAppendTime",
            "log.message.timestamp.before.max.ms": 8,
            "log.message.timestamp.after.max.ms": 9,
            "producer.id.expiration.ms": 10,
            "coterie.max.producers": 11,
            "coterie.max.decompressed.bytes": 2_000_000,
        }
    )
    hour, append_time = 60 * 60 * 1000, TimestampType.LOG_APPEND_TIME
    brokers = LogConfig(
        2_000_000,
        hour,
        400,
        5,
        120_000,
        -1,
        True,
        True,
        0.25,
        12,
        13,
        14,
        -1,
        77,
        append_time,
        8,
        9,
        10,
        11,
        2_000_000,
    )
    assert LogConfig.of({}, settings) == brokers
    own = {"segment.ms": "6", "retention.ms": "-1", "cleanup.policy": "", "retention.bytes": "1"}
    topics = LogConfig.of(own, settings)
    assert (topics.segment_ms, topics.retention_ms, topics.retention_bytes) == (6, -1, 1)
    assert (topics.deletes, topics.compacts) == (False, False)
    assert topics.segment_bytes == 2_000_000


def test_retention_below_zero_is_for_ever_in_any_unit() -> None:
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        assert LogConfig.of({}, BrokerSettings.of({name: -3})).retention_ms == -1


def test_the_offsets_topic_takes_the_largest_record_of_a_group() -> None:
    settings = BrokerSettings()
    config = offsets_log_config(offsets_topic_configs(settings), settings)
    assert config.compacts and not config.deletes
    assert settings.coterie_max_record_bytes < config.max_message_bytes <= config.segment_bytes
    assert config.roll_dirty_bytes == 1_048_576, "it is read at every start, so it is compacted early"


def test_settings_do_not_change() -> None:
    with pytest.raises(AttributeError):
        BrokerSettings().num_partitions = 2  # type: ignore[misc]


def test_every_setting_has_a_sentence() -> None:
    for row in SETTINGS.values():
        assert row.doc.endswith(".") and row.doc[0].isupper(), row.name
