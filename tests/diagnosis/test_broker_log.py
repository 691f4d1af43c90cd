"""The log of Apache Kafka: what a 4.3.1 wrote, and the wordings and layouts of other releases."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone

import pytest

from coterie.diagnosis import Departure, ExplainedRebalance, GroupHistory, Happening
from coterie.diagnosis.broker_log import MAX_LINE, BrokerLog, cause_of, members_in
from coterie.facts import Cause
from coterie.ledger.derived import DerivedCause
from diagnosis.test_merge import recorded_log

ID = "0a4ee2b0-1b70-4bd2-a8b0-5d3c6a7a1f22"


def explained(
    *lines: str, layout: str = "[{time}] INFO {line} (kafka.coordinator.group.GroupCoordinator)"
) -> GroupHistory:
    log = BrokerLog()
    for number, line in enumerate(lines, 1):
        log.add(layout.format(time=f"2024-05-01 10:00:{number:02},250", line=line), f"server.log:{number}")
    (history,) = log.histories().values()
    return history


def told(one: ExplainedRebalance) -> tuple[str | None, str | None, str | None]:
    return one.cause.value, one.member.value, one.reason.value


def test_every_rebalance_in_a_log_of_kafka_4_has_its_cause_and_member() -> None:
    classic, consumer = recorded_log()["g-classic"], recorded_log()["g-consumer"]
    assert [(one.number, one.cause.value) for one in classic.rebalances] == [
        *((number, Cause.NEW_MEMBER) for number in (1, 2, 3)),
        (4, Cause.SESSION_EXPIRED),
        (5, Cause.MEMBER_LEFT),
        (6, Cause.NEW_MEMBER),
        (7, Cause.SESSION_EXPIRED),
        (8, Cause.NEW_MEMBER),
        (9, Cause.MEMBER_LEFT),
        (10, Cause.NEW_MEMBER),
        (11, Cause.MEMBER_LEFT),
        (12, Cause.SESSION_EXPIRED),
    ]
    assert classic.rebalances[10].reason.value == "the consumer is being closed"
    assert classic.name_of(classic.rebalances[4].member.value or "") == "g-classic-kafka-python-1"
    assert [one.what for one in classic.events if one.member_id] == [Happening.INSTANCE_ID_FENCED]
    assert [one.cause.value for one in consumer.rebalances] == [
        *(Cause.NEW_MEMBER,) * 3,
        Cause.SESSION_EXPIRED,
        Cause.MEMBER_LEFT,
        Cause.NEW_MEMBER,
        Cause.SESSION_EXPIRED,
        Cause.NEW_MEMBER,
    ]
    assert all(one.ended_ms.value is None and one.outcome.value is None for one in consumer.rebalances)


def test_the_scala_coordinator_of_3_x_is_understood() -> None:
    history = explained(
        f"[GroupCoordinator 1]: Dynamic member with unknown member id joins group my group in Empty state. Created a "
        f"new member id app-1-{ID} and request the member to rejoin with this id.",
        f"[GroupCoordinator 1]: Pending dynamic member with id app-1-{ID} joins group my group in Empty state. Adding "
        "to the group now.",
        "[GroupCoordinator 1]: Preparing to rebalance group my group in state PreparingRebalance with old generation 0 "
        f"(__consumer_offsets-12) (reason: Adding new member app-1-{ID} with group instance id None; client reason: "
        "not provided)",
        "[GroupCoordinator 1]: Stabilized group my group generation 1 (__consumer_offsets-12) with 1 members",
        f"[GroupCoordinator 1]: Assignment received from leader app-1-{ID} for group my group for generation 1. The "
        "group has 1 members, 0 of which are static.",
        "[GroupCoordinator 1]: Preparing to rebalance group my group in state PreparingRebalance with old generation 1 "
        f"(__consumer_offsets-12) (reason: Removing member app-1-{ID} on LeaveGroup; client reason: consumer poll "
        "timeout has expired.)",
        f"[GroupCoordinator 1]: Member MemberMetadata(memberId=app-1-{ID}, groupInstanceId=None, clientId=app-1, "
        "clientHost=/10.0.0.1, sessionTimeoutMs=45000, rebalanceTimeoutMs=300000, supportedProtocols=List(range)) has "
        "left group my group through explicit `LeaveGroup`; client reason: consumer poll timeout has expired.",
        "[GroupCoordinator 1]: Group my group with generation 2 is now empty (__consumer_offsets-12)",
    )
    first, second = history.rebalances
    assert history.group_id == "my group"
    assert told(first) == (Cause.NEW_MEMBER, f"app-1-{ID}", None)
    assert told(second) == (Cause.MEMBER_LEFT, f"app-1-{ID}", "consumer poll timeout has expired.")
    assert first.members.value == 1 and first.took[0] == 2_000 and first.join_took[0] == 1_000
    member = history.members[f"app-1-{ID}"]
    assert member.departure.value == Departure.POLL_TIMEOUT
    assert (member.session_timeout_ms.value, member.rebalance_timeout_ms.value) == (45_000, 300_000)


def test_a_log_of_kafka_2_2_is_understood() -> None:
    history = explained(
        f"[GroupCoordinator 0]: Member app-{ID} in group g has failed, removing it from the group",
        "[GroupCoordinator 0]: Preparing to rebalance group g in state PreparingRebalance with old generation 7 "
        f"(__consumer_offsets-3) (reason: removing member app-{ID} on heartbeat expiration)",
        "[GroupCoordinator 0]: Stabilized group g generation 8 (__consumer_offsets-3)",
        "[GroupCoordinator 0]: Assignment received from leader for group g for generation 8",
    )
    (one,) = history.rebalances
    assert told(one) == (Cause.SESSION_EXPIRED, f"app-{ID}", None) and one.took[0] == 2_000
    assert one.members.value is None
    assert one.dropped.value == ((f"app-{ID}", Departure.SESSION_EXPIRED),)


def test_a_log_of_kafka_1_0_has_no_reasons_so_the_cause_is_unknown() -> None:
    history = explained(
        "[GroupCoordinator 0]: Preparing to rebalance group g with old generation 7 (__consumer_offsets-3)",
        "[GroupCoordinator 0]: Stabilized group g generation 8 (__consumer_offsets-3)",
    )
    (one,) = history.rebalances
    assert told(one) == (None, None, None)
    assert one.to_json()["cause"]["value"] == "unknown"


@pytest.mark.parametrize(
    "layout",
    [
        "[{time}] INFO {line} (kafka.coordinator.group.GroupCoordinator)",
        (
            "{time} INFO [GroupCoordinator id=1 topic=__consumer_offsets partition=7] {line} "
            "(org.apache.kafka.coordinator.group.GroupMetadataManager) [group-coordinator-event-processor-1]"
        ),
        "2024-05-01T10:00:09.9Z stdout F [{time}] INFO {line} (org.apache.kafka.coordinator.group.Any)",
        '{{"time": "{time}", "message": "{line}',
    ],
)
def test_the_layout_of_the_log_does_not_matter(layout: str) -> None:
    lines = (
        (
            "Preparing to rebalance group g in state PreparingRebalance with old generation 1 (reason: Adding new "
            f"member app-{ID} with group instance id null; client reason: (see (here)))."
        ),
        "Stabilized group g generation 2 with 3 members.",
    )
    (one,) = explained(*lines, layout=layout).rebalances
    assert told(one) == (Cause.NEW_MEMBER, f"app-{ID}", "(see (here))")
    assert one.members.value == 3


def test_times_without_a_zone_are_in_the_zone_that_is_given() -> None:
    line = "[2024-05-01 10:00:00,250] INFO Group g with generation 3 is now empty. (kafka.X)"
    start = "[2024-05-01 10:00:00,250] INFO Preparing to rebalance group g with old generation 2 (reason: x) (kafka.X)"
    found = []
    for zone in (UTC, timezone(timedelta(hours=2))):
        log = BrokerLog(zone)
        log.add(start, "a:1")
        log.add(line, "a:2")
        found.append(log.histories()["g"].rebalances[0].ended_ms.value or 0)
    assert found[0] - found[1] == 2 * 3_600_000 and found[0] % 1_000 == 250


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no time: Preparing to rebalance group g with old generation 2",
        "[2024-13-45 99:99:99,1] INFO Stabilized group g generation 8 with 3 members.",
        "[2024-05-01 10:00:00,250] INFO [GroupCoordinator 0]: Startup complete.",
        "[2024-05-01 10:00:00,250] INFO Group group group members",
        "\x00\x01 roup \ud800",
        "[2024-05-01 10:00:00] Stabilized group " + "g" * MAX_LINE + " generation 1",
    ],
)
def test_other_lines_and_damaged_ones_are_skipped(line: str) -> None:
    log = BrokerLog()
    log.add(line, "a:1")
    assert not [one for history in log.histories().values() for one in history.rebalances]


@pytest.mark.parametrize(
    ("reason", "cause", "members"),
    [
        (f"explicit `LeaveGroup` request for (a-{ID}) members.", Cause.MEMBER_LEFT, [f"a-{ID}"]),
        (f"explicit `LeaveGroup` request for (a-{ID}, b-{ID}) members.", Cause.MEMBER_LEFT, [f"a-{ID}", f"b-{ID}"]),
        (f"Leader a-{ID} re-joining group during Stable; client reason: x", Cause.LEADER_REJOINED, [f"a-{ID}"]),
        (f"Updating metadata for member a-{ID} during Stable; client reason: x", Cause.PROTOCOLS_CHANGED, [f"a-{ID}"]),
        (
            f"Updating metadata for static member a-{ID} with instance id i; client reason: x",
            Cause.STATIC_MEMBER_REPLACED,
            [f"a-{ID}"],
        ),
        (
            (
                f"Group's selectedProtocol will change because static member a-{ID} with instance id i joined with "
                "change of protocol; client reason: x"
            ),
            Cause.STATIC_MEMBER_CHANGED_VOTE,
            [f"a-{ID}"],
        ),
        (f"Removing HashSet(a-{ID}) on pending sync request expiration", Cause.SYNC_TIMEOUT, [f"a-{ID}"]),
        ("Freshly-loaded group g (size 9) is over capacity 5. Rebalancing in order", Cause.OVER_SIZE_AT_LOAD, []),
        ("a wording of the future", DerivedCause.UNKNOWN, []),
    ],
)
def test_the_wordings_of_reasons(reason: str, cause: str, members: list[str]) -> None:
    found, who, said = cause_of(reason)
    assert (found, who) == (cause, members)
    assert said == ("x" if "client reason" in reason else None)


@pytest.mark.parametrize("text", ["Set(a, b)", "HashSet(a, b)", "[a, b]", "a, b", "List(a, b)."])
def test_members_in_collections(text: str) -> None:
    assert members_in(text) == ["a", "b"]


def test_a_member_of_a_consumer_group_that_left_before_kafka_4_2_begins_the_next_epoch() -> None:
    """Older coordinators log no new epoch when a member leaves."""
    history = explained(
        "[GroupId g] Member m1 joins the consumer group using the consumer protocol.",
        "[GroupId g] Bumped group epoch to 1.",
        "[GroupId g] Member m1 fenced from the group because the member session expired.",
        "[GroupId g] Member m2 joins the consumer group using the consumer protocol.",
        "[GroupId g] Bumped group epoch to 3.",
        "[GroupId g] Member m2 fenced from the group because it failed to transition from epoch 3 within 5000ms.",
    )
    assert [(one.number, one.cause.value, one.member.value) for one in history.rebalances] == [
        (1, Cause.NEW_MEMBER, "m1"),
        (2, Cause.SESSION_EXPIRED, "m1"),
        (3, Cause.NEW_MEMBER, "m2"),
        (4, Cause.REVOCATION_TIMEOUT, "m2"),
    ]


def test_an_epoch_with_two_possible_causes_has_none() -> None:
    history = explained(
        "[GroupId g] Bumped group epoch to 1.",
        "[GroupId g] Member m1 joins the consumer group using the consumer protocol.",
        "[GroupId g] Member m2 updated its subscribed topics to: [a].",
        "[GroupId g] Bumped group epoch to 2.",
        "[GroupId g] Member m3 joins the consumer group using the consumer protocol.",
        "[GroupId g] Bumped group epoch to 5.",
    )
    assert [told(one)[:2] for one in history.rebalances[1:]] == [(None, None), (None, None)]


def test_the_holder_of_an_instance_id_is_named_without_the_end_of_the_sentence() -> None:
    history = explained(
        "[GroupId g] Static member m.1 with instance id i joins the consumer group using the consumer protocol.",
        "[GroupId g] Static member m2 with instance id i cannot join the group because the instance id is owned by "
        "member m.1.",
        "[GroupId g] Static member m2 with instance id i is fenced by existing member m.1",
    )
    assert [(one.what, one.member_id, one.holder_id) for one in history.events] == [
        (Happening.INSTANCE_ID_NOT_RELEASED, "m2", "m.1"),
        (Happening.INSTANCE_ID_FENCED, "m2", "m.1"),
    ]
