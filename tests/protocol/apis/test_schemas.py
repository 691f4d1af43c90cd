"""Every message of every API in every version, held against kio's schemas of Apache Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from random import Random  # noqa: TID251  (hypothesis throws the rng)
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from coterie.errors import ErrorCode
from coterie.protocol.apis import APIS, Api
from coterie.protocol.codec.fields import MessageField, is_records, members, number_format
from coterie.structs import is_data
from protocol.apis.oracle import (
    DIRECTIONS,
    KioField,
    every_message,
    kio_bytes,
    kio_fields,
    kio_message,
    our_codec,
    our_message,
    plain,
    random_message,
    served,
)

OURS = {
    # kio's name, ours. Times are written `..._ms` here; everything else is called the same.
    "error_code": {"error"},
    "error_message": {"message"},
    "batch_index_error_message": {"message"},
    "partition_index": {"partition"},
    "index": {"partition"},
    "partition_indexes": {"partitions"},
    "partition_data": {"partitions"},
    "partition_responses": {"partitions"},
    "partition_max_bytes": {"max_bytes"},
    "partition_size": {"size"},
    "topic_data": {"topics"},
    "forgotten_topics_data": {"forgotten_topics"},
    "group_instance_id": {"instance_id"},
    "generation_id_or_member_epoch": {"generation_id"},
    "committed_offset": {"offset"},
    "committed_leader_epoch": {"leader_epoch"},
    "committed_metadata": {"metadata"},
    "leader": {"leader_id"},
    "replica_nodes": {"replicas"},
    "isr_nodes": {"isr"},
    "topic_authorized_operations": {"authorized_operations"},
    "cluster_authorized_operations": {"cluster_authorized_operations", "authorized_operations"},
    "include_cluster_authorized_operations": {"include_cluster_authorized_operations", "include_authorized_operations"},
    "coordinator_keys": {"keys"},
    "group_state": {"state"},
    "protocol_data": {"protocol_name"},
    "member_metadata": {"metadata"},
    "member_assignment": {"assignment"},
    "states_filter": {"states"},
    "types_filter": {"types"},
    "groups_names": {"groups"},
    "topic_config_error_code": {"topic_config_error"},
    "config_operation": {"operation"},
    "log_dir": {"path"},
    "is_future_key": {"is_future"},
    "broker_id": {"node_id"},
    "topic_name": {"topic"},
    "timeout": {"timeout_ms"},
    "throttle_time": {"throttle_time_ms"},
    "max_wait": {"max_wait_ms"},
    "push_interval": {"push_interval_ms"},
    "heartbeat_interval": {"heartbeat_interval_ms"},
    "session_timeout": {"session_timeout_ms"},
    "rebalance_timeout": {"rebalance_timeout_ms"},
    "transaction_timeout": {"transaction_timeout_ms"},
    "log_append_time": {"log_append_time_ms"},
    "retention_time": {"retention_ms"},
    "transaction_start_time": {"transaction_start_time_ms"},
    "session_lifetime": {"session_lifetime_ms"},
    "replica_election_results": {"results"},
    "partition_result": {"partitions"},
    "partition_id": {"partition"},
    "v3_and_below_transactional_id": {"transactional_id"},
    "v3_and_below_producer_id": {"producer_id"},
    "v3_and_below_producer_epoch": {"producer_epoch"},
    "v3_and_below_topics": {"topics"},
    "results_by_transaction": {"transactions"},
    "results_by_topic_v3_and_below": {"topics"},
    "topic_results": {"topics"},
    "results_by_partition": {"partitions"},
    "partition_error_code": {"error"},
}
READER: Any = entity_reader
KINDS = {"b": "int8", "h": "int16", "i": "int32", "q": "int64", "H": "uint16", "d": "float64", "?": "bool"}
TIMES = {"timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}


def kind_of(hint: Any) -> str:
    if hint is ErrorCode:
        return "error_code"
    if is_records(hint):
        return "records"
    code = number_format(hint)
    return KINDS[code] if code else {str: "string", bytes: "bytes", UUID: "uuid"}[hint]


def assert_same_shape(ours: Any, theirs: Any, version: int, where: str) -> None:
    mine = [member for member in members(ours) if member.wire.since <= version <= member.wire.until]
    assert len(mine) == len(kio_fields(theirs)), f"{where}: {[m.name for m in mine]}"
    for member, field in zip(mine, kio_fields(theirs), strict=True):
        assert_same_field(member, field, version, f"{where}.{field.name}")


def assert_same_field(member: MessageField, field: KioField, version: int, where: str) -> None:
    assert member.name in OURS.get(field.name, {field.name}), where
    assert member.wire.tag == field.tag, where
    array = get_origin(member.type) is Sequence
    assert array is field.array, where
    element = get_args(member.type)[0] if array else member.type
    if field.message is not None:
        assert is_data(element), where
        assert_same_shape(element, field.message, version, where)
    else:
        assert kind_of(element) == TIMES.get(field.kafka_type, field.kafka_type), where
    if field.tag is None and element is not UUID and field.kafka_type != "datetime_i64":
        assert member.may_be_null(version) is field.optional, f"{where}: null in version {version}"


@pytest.mark.parametrize(("api", "version", "direction"), list(every_message()))
def test_a_message_has_kafkas_fields_in_kafkas_order(api: Api, version: int, direction: str) -> None:
    theirs = kio_message(api, version, direction)
    assert theirs.__flexible__ is (version >= api.flexible)
    assert_same_shape(our_message(api, direction), theirs, version, f"{api.name}{direction} {version}")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
@settings(max_examples=8, deadline=None)
@given(rng=st.randoms(use_true_random=True))
def test_what_kio_writes_we_read_and_write_back_to_the_byte(api: Api, direction: str, rng: Random) -> None:
    read, write = our_codec(api, direction)
    for version in served(api):
        schema: Any = kio_message(api, version, direction)
        theirs = random_message(schema, rng)
        data = kio_bytes(theirs)
        ours = read(b"header" + data + b"rest", 6, version)
        assert write(ours, version) == data, f"version {version}: {theirs}"
        again, size = READER(schema)(data, 0)  # our bytes, read by kio: they are the same
        assert again == theirs and size == len(data)
        assert_same_values(ours, theirs, version)


def assert_same_values(ours: Any, theirs: Any, version: int) -> None:
    if is_dataclass(theirs):
        kind: Any = type(ours)
        names = [member.name for member in members(kind) if member.wire.since <= version <= member.wire.until]
        for name, field in zip(names, fields(theirs), strict=True):  # the order of fields was compared above
            value, expected = getattr(ours, name), getattr(theirs, field.name)
            if value is None and is_dataclass(expected):
                assert expected == field.default  # a tagged message that is not there
            elif field.metadata.get("kafka_type") == "datetime_i64" and expected is None:
                assert value == -1
            else:
                assert_same_values(value, expected, version)
    elif isinstance(theirs, tuple):
        for value, expected in zip(ours, theirs, strict=True):
            assert_same_values(value, expected, version)
    else:
        assert plain(ours) == plain(theirs)
