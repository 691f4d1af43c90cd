"""Which version a client and a broker speak."""

from __future__ import annotations

import pytest

from coterie.client.network.in_flight_requests import Versions, version_after_refusal
from coterie.errors import UnsupportedVersionError
from coterie.protocol.apis import api_versions, heartbeat, metadata, produce
from coterie.protocol.apis.api_versions import ApiVersion, Response


def told(**ranges: tuple[int, int]) -> Response:
    keys = {"heartbeat": heartbeat.API.key, "metadata": metadata.API.key, "versions": api_versions.API.key}
    return Response(
        api_keys=[
            ApiVersion(api_key=keys[name], min_version=first, max_version=last)
            for name, (first, last) in ranges.items()
        ]
    )


def test_the_highest_that_both_know_is_spoken_and_none_above_a_limit() -> None:
    versions = Versions("h:1", told(heartbeat=(0, 2)))
    assert [versions.of(heartbeat), versions.of(heartbeat, at_most=1), versions.of(heartbeat)] == [2, 1, 2]
    assert Versions("h:1", told(heartbeat=(3, 99))).of(heartbeat) == heartbeat.API.versions[-1]


def test_where_there_is_none_it_is_said_who_speaks_what() -> None:
    versions = Versions("h:1", told(metadata=(20, 30), heartbeat=(3, 4)))
    with pytest.raises(UnsupportedVersionError, match="h:1 speaks Metadata in versions 20 to 30, we in 0 to 13"):
        versions.of(metadata)
    with pytest.raises(UnsupportedVersionError, match="speaks Heartbeat in versions 3 to 4, we in 0 to 2"):
        versions.of(heartbeat, at_most=2)
    with pytest.raises(UnsupportedVersionError, match="h:1 does not speak Produce at all"):
        versions.of(produce)


def test_an_older_broker_is_asked_in_its_own_version_and_one_that_says_nothing_in_the_first() -> None:
    """KIP-511."""
    assert version_after_refusal(told(versions=(0, 2))) == 2
    assert version_after_refusal(told(versions=(0, 99))) == api_versions.API.versions[-1]
    assert version_after_refusal(Response()) == 0
