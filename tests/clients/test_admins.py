"""Admin clients of each library: topics, records and groups."""

from __future__ import annotations

import pytest

from clients.admins import ADMINS, Admin
from clients.harness import BrokerProcess, Crew
from clients.producers import PRODUCERS, ProducerOptions, Record
from clients.producing import Topics

pytestmark = pytest.mark.real_time


@pytest.fixture(params=list(ADMINS))
def admin(request: pytest.FixtureRequest, broker: BrokerProcess) -> Admin:
    made: Admin = ADMINS[request.param](broker.bootstrap)
    return made


def test_a_topic_is_created_grown_and_deleted(admin: Admin, name: str) -> None:
    assert name not in admin.topics()
    admin.create(name, 3)
    assert admin.topics()[name] == 3
    with pytest.raises(Exception, match=r"(?i)already.?exists"):
        admin.create(name, 3)
    admin.grow(name, 5)
    assert admin.topics()[name] == 5
    with pytest.raises(Exception, match=r"(?i)partitions"):
        admin.grow(name, 4)
    admin.delete(name)
    assert name not in admin.topics()
    with pytest.raises(Exception, match=r"(?i)unknown.?topic"):
        admin.delete(name)


def test_records_before_an_offset_are_deleted(admin: Admin, topics: Topics, name: str) -> None:
    places = topics.create(name, 1)
    topics.fill(places, 10)
    assert admin.delete_records(name, 4) == 4
    assert admin.offset_for_time(name, 0) == 4, "the first record that is left is the first of all times"
    with pytest.raises(Exception, match=r"(?i)out.?of.?range"):
        admin.delete_records(name, 11)
    assert admin.delete_records(name, -1) == 10, "-1 is the end of the log"


def test_an_offset_is_found_by_time(admin: Admin, broker: BrokerProcess, topics: Topics, name: str) -> None:
    topics.create(name, 1)
    hour = 3_600_000
    start = 1_700_000_000_000
    sent = [Record(b"%d" % number, timestamp_ms=start + number * hour) for number in range(6)]
    PRODUCERS["confluent"](broker.bootstrap, name, sent, ProducerOptions())
    assert admin.offset_for_time(name, start) == 0
    assert admin.offset_for_time(name, start + 2 * hour) == 2
    assert admin.offset_for_time(name, start + 2 * hour + 1) == 3
    assert admin.offset_for_time(name, start + 5 * hour + 1) is None


def test_a_group_is_listed_and_described_with_what_its_members_own(
    admin: Admin, crew: Crew, topics: Topics, name: str
) -> None:
    places = topics.create(name, 4)
    topics.fill(places)
    members = [crew.start("confluent", assignor="roundrobin", topics=[name]) for _ in range(2)]
    crew.wait_until_settled(places)
    crew.wait_until_committed(topics.ends(places))
    assert name in admin.groups()
    described = admin.describe(name)
    assert (described.state, described.assignor) == ("Stable", "roundrobin")
    assert described.owned == {member.client_id: member.owned for member in members}
    assert admin.committed(name) == topics.ends(places)
    for member in members:
        member.leave()
    assert admin.describe(name).state == "Empty"
    try:
        admin.delete_group(name)
    except NotImplementedError:
        return  # aiokafka's admin client has no word for it
    assert name not in admin.groups()
    assert admin.describe(name).state == "Dead"
