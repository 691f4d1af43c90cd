"""The log lines of consumers: a line for each event, from one table."""

from __future__ import annotations

from collections.abc import Mapping
from logging import DEBUG, INFO, WARNING

from coterie.client.consumer.fetch_requests import LogTruncated
from coterie.client.event_log import LINES, Line, listed
from coterie.client.member import facts
from coterie.errors import ErrorCode


def _assigned(fact: facts.AssignmentTaken) -> tuple[object, ...]:
    return listed(fact.partitions), _added(fact), fact.generation_id


def _added(fact: facts.AssignmentTaken | facts.AssignmentReconciled) -> str:
    return "" if len(fact.added) in {0, len(fact.partitions)} else f" (added {listed(fact.added)})"


_DROPPED = {
    ErrorCode.ILLEGAL_GENERATION: "the group has a newer generation, which this member is not in",
    ErrorCode.UNKNOWN_MEMBER_ID: "its session has expired (session.timeout.ms), or it was removed from the group",
    ErrorCode.FENCED_MEMBER_EPOCH: "the coordinator has another epoch for it",
}


def _dropped(fact: facts.IdentityDropped) -> tuple[object, ...]:
    why = _DROPPED.get(fact.code, "")
    return fact.why, f": {why}" if why else ""


def _left(fact: facts.GroupLeft) -> tuple[object, ...]:
    unsent = "; LeaveGroup could not be sent, and the coordinator will notice after session.timeout.ms"
    return fact.reason, "" if fact.leave_sent else unsent


_MISSING = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "does not exist: nothing is read of it until it is created",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "may not be read: the principal needs READ and DESCRIBE on it",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "cannot exist: its name is not a valid one",
}


def _missing(fact: facts.TopicMissing) -> tuple[object, ...]:
    return fact.topic, _MISSING.get(fact.error, "cannot be read"), fact.error.name


CONSUMER_LINES: Mapping[type, Line] = {
    facts.RebalanceBegan: Line(
        INFO, "joining the group: %s", lambda fact: (fact.reason or "subscribed",), "a rebalance begins, and why"
    ),
    facts.GroupJoined: Line(
        INFO,
        "joined generation %d as member %s (%s, assignor %s)",
        lambda fact: (
            fact.generation_id,
            fact.member_id,
            "leader" if fact.leads else "follower",
            fact.protocol_name,
        ),
        "the coordinator has answered the join",
    ),
    facts.AssignmentTaken: Line(INFO, "assigned %s%s in generation %d", _assigned, "partitions are assigned"),
    facts.GroupEntered: Line(
        INFO,
        "joined the group as member %s in epoch %d",
        lambda fact: (fact.member_id, fact.member_epoch),
        "the coordinator has answered the first heartbeat of a member (KIP-848)",
    ),
    facts.RebalanceNotEnforced: Line(
        WARNING,
        "enforce_rebalance() does nothing with group.protocol=consumer: the broker assigns the partitions",
        lambda _: (),
        "a rebalance was asked for in the protocol of KIP-848",
    ),
    facts.ReconciliationBegan: Line(
        DEBUG,
        "reconciling in epoch %d: adding %s, revoking %s",
        lambda fact: (fact.member_epoch, listed(fact.added), listed(fact.revoked)),
        "the member begins to take another assignment (KIP-848)",
    ),
    facts.AssignmentReconciled: Line(
        INFO,
        "assigned %s%s in epoch %d",
        lambda fact: (listed(fact.partitions), _added(fact), fact.member_epoch),
        "partitions are assigned (KIP-848)",
    ),
    facts.TopicIdsUnknown: Line(
        INFO,
        "assigned partitions of topics that the metadata does not have yet (ids %s); they are read when it has them",
        lambda fact: (", ".join(fact.topic_ids),),
        "partitions wait for metadata (KIP-848)",
    ),
    facts.PartitionsGivenUp: Line(
        INFO,
        "%s %s: %s",
        lambda fact: ("lost" if fact.lost else "revoked", listed(fact.partitions), fact.why),
        "partitions are revoked or lost, and why",
    ),
    facts.GroupLeft: Line(INFO, "left the group: %s%s", _left, "the member leaves, and why"),
    facts.CoordinatorFound: Line(INFO, "coordinator is %s", lambda fact: (fact.node,), "the coordinator was found"),
    facts.CoordinatorLost: Line(
        INFO,
        "coordinator %s was lost: %s",
        lambda fact: (fact.node, fact.cause),
        "the coordinator was lost, and why; it is looked up again",
    ),
    facts.CoordinatorUnreachable: Line(
        WARNING,
        "the coordinator has not answered for %.1f s%s; commits and rebalances wait for it, and a member that cannot "
        "send heartbeats loses its partitions after session.timeout.ms",
        lambda fact: (fact.waited_ms / 1000, f" ({fact.why})" if fact.why else ""),
        "the coordinator has not answered for 10 s; once, until it answers",
    ),
    facts.CoordinatorReached: Line(
        INFO,
        "the coordinator answers again, after %.1f s",
        lambda fact: (fact.after_ms / 1000,),
        "the coordinator answers again",
    ),
    facts.IdentityDropped: Line(
        lambda fact: WARNING if fact.code else DEBUG,
        "fenced: %s%s. The partitions are lost; the next poll joins again",
        _dropped,
        "the coordinator no longer knows the generation or the member",
    ),
    facts.Fenced: Line(
        WARNING,
        'fenced: another consumer has joined with group.instance.id "%s". Close this one, and give every consumer an '
        "instance id of its own",
        lambda fact: (fact.instance_id,),
        "another consumer has taken the `group.instance.id`",
    ),
    facts.PollIntervalExceeded: Line(
        WARNING, "%s", lambda fact: (fact,), "poll was not called for `max.poll.interval.ms`"
    ),
    facts.PollResumed: Line(
        INFO,
        "poll was called again, %.1f s after max.poll.interval.ms had passed",
        lambda fact: (fact.late_ms / 1000,),
        "poll is called again after that, and how much too late",
    ),
    facts.PreparationCutShort: Line(
        WARNING,
        "the commit before the join was not answered for %.1f s; joining without it",
        lambda fact: (fact.waited_ms / 1000,),
        "a rebalance goes on without its commit",
    ),
    facts.ListenerFailed: Line(
        WARNING,
        "the rebalance listener raised %s in the call for %s partitions",
        lambda fact: (fact.error, fact.kind),
        "a rebalance listener raised",
    ),
    facts.AutoCommitFailed: Line(
        WARNING, "auto-commit failed: %s", lambda fact: (fact.error,), "an automatic commit failed, and why"
    ),
    facts.CommitFailed: Line(
        WARNING, "commit failed: %s", lambda fact: (fact.error,), "a commit that was asked for failed, and why"
    ),
    facts.CommitLeftOut: Line(
        WARNING,
        "the offsets of %s are not committed: the topic was deleted",
        lambda fact: (listed(sorted(fact.partitions)),),
        "a commit is made without the partitions of a deleted topic",
    ),
    LogTruncated: Line(
        WARNING, "%s", lambda event: (event,), "a log was truncated before the position (KIP-320), and where it goes on"
    ),
    facts.TopicMissing: Line(
        WARNING, 'subscribed topic "%s" %s (%s)', _missing, "a subscribed topic does not exist; once a topic"
    ),
    facts.TopicFound: Line(
        INFO, 'subscribed topic "%s" is there now', lambda fact: (fact.topic,), "such a topic was created"
    ),
    **LINES,
}
"""The level, the text and the fields of each event of consumers."""
