"""The table of APIs."""

from __future__ import annotations

import pytest

from coterie.errors import ErrorCode
from coterie.protocol.apis import APIS, FIRST_FLEXIBLE, Api, api_versions, by_key
from protocol.apis.oracle import served

KAFKA_4_3_1 = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9), 12: (0, 4),
    13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1), 18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2),
    22: (0, 5), 23: (2, 4), 24: (0, 5), 25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 5), 29: (1, 3), 30: (1, 3),
    31: (1, 3), 32: (1, 4), 33: (0, 2), 34: (1, 2), 35: (1, 5), 36: (0, 2), 37: (0, 3), 38: (1, 3), 39: (1, 2),
    40: (1, 2), 41: (1, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1), 46: (0, 0), 47: (0, 0), 48: (0, 1),
    49: (0, 1), 50: (0, 0), 51: (0, 0), 55: (0, 2), 57: (0, 2), 60: (0, 2), 61: (0, 0), 64: (0, 0), 65: (0, 0),
    66: (0, 2), 68: (0, 1), 69: (0, 1), 71: (0, 0), 72: (0, 0), 74: (0, 1), 75: (0, 0), 76: (1, 1),
    77: (1, 1), 78: (1, 2), 79: (1, 2),
    80: (0, 1), 81: (0, 0), 83: (0, 0), 84: (0, 0), 85: (0, 1), 86: (0, 0), 87: (0, 1), 88: (0, 0), 89: (0, 0),
    90: (0, 1), 91: (0, 0), 92: (0, 0),
}  # fmt: skip
"""What Apache Kafka 4.3.1 answers to ApiVersions: the first and the last version of each key.

It has 71 and 72 only with a plugin that receives the metrics of clients (KIP-714).
"""


@pytest.mark.parametrize("row", APIS, ids=lambda row: row.name)
def test_the_versions_are_those_of_kafka(row: Api) -> None:
    assert (row.versions[0], row.versions[-1]) == KAFKA_4_3_1[row.key]


@pytest.mark.parametrize("row", APIS, ids=lambda row: row.name)
def test_every_api_has_a_file_with_four_functions(row: Api) -> None:
    assert row.module.API is row
    for function in ("read_request", "write_response", "write_request", "read_response"):
        assert callable(getattr(row.module, function))
        assert function in row.module.__all__


def test_keys_are_in_order_and_told_once() -> None:
    keys = [row.key for row in APIS]
    assert keys == sorted(set(keys)) == list(by_key) == list(FIRST_FLEXIBLE)


def test_produce_is_advertised_from_0_and_served_from_3() -> None:
    """Librdkafka compresses only if 0 to 2 are there; Kafka 4 closes the connection of whoever uses them."""
    produce = by_key[0]
    assert served(produce) == list(range(3, 14))
    assert not produce.serves(2) and not produce.serves(14) and not produce.serves(-1)


def test_api_versions_is_answered_with_the_oldest_header_and_others_are_not() -> None:
    """KIP-511."""
    assert not by_key[18].has_flexible_response_header(4)
    assert by_key[12].has_flexible_response_header(4) and not by_key[12].has_flexible_response_header(3)


def test_api_versions_tells_what_is_advertised() -> None:
    told = {row.api_key: (row.min_version, row.max_version) for row in api_versions.ADVERTISED}
    assert told == {row.key: KAFKA_4_3_1[row.key] for row in APIS if row.advertised}
    with_telemetry = {row.api_key: row for row in api_versions.ADVERTISED_WITH_TELEMETRY}
    assert set(with_telemetry) - set(told) == {71, 72}


def test_an_unknown_version_of_api_versions_is_answered_in_the_form_of_version_0() -> None:
    """Rule C5: the error, and the versions of ApiVersions alone."""
    body = api_versions.refuse_version()
    assert body == bytes.fromhex("0023 00000001 0012 0000 0004")
    assert api_versions.read_response(body, 0, 0) == api_versions.Response(
        error=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[api_versions.ApiVersion(api_key=18, min_version=0, max_version=4)],
    )


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("apache-kafka-java", True),
        ("4.3.1", True),
        ("a", True),
        ("", False),
        ("-a", False),
        ("a-", False),
        ("a b", False),
    ],
)
def test_from_version_3_on_a_client_says_what_it_is(name: str, good: bool) -> None:
    """Rule C7."""
    request = api_versions.Request(client_software_name=name, client_software_version="1.0")
    assert api_versions.names_its_client(request, 3) is good
    assert api_versions.names_its_client(request, 2)


def test_a_feature_of_level_0_is_kept_from_clients_that_stumble_over_it() -> None:
    """KAFKA-17011."""
    features = [
        api_versions.SupportedFeature(name="group.version", min_version=0, max_version=1),
        api_versions.SupportedFeature(name="metadata.version", min_version=7, max_version=30),
    ]
    response = api_versions.Response(supported_features=features)
    for version, told in ((3, features[1:]), (4, features)):
        body = api_versions.write_response(response, version)
        assert api_versions.read_response(body, 0, version).supported_features == told
