"""The detectors: each is a function from what is known about a group to findings.

Those about many members come first: what a deployment explains is not called a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coterie.diagnosis.context import Context
from coterie.diagnosis.detectors import assignments, deployments, members, rebalances
from coterie.diagnosis.model import Finding, GroupHistory, worst_first

Detector = Callable[[Context], list[Finding]]

DETECTORS: Mapping[str, Detector] = {
    "rolling-deployment": deployments.rolling_deployment,
    "autoscaler-storm": deployments.autoscaler_storm,
    "crash": members.crash,
    "heartbeat-lost": members.heartbeat_lost,
    "slow-processing": members.slow_processing,
    "unexplained-absence": members.unexplained_absence,
    "flapping-member": members.flapping,
    "duplicate-instance-id": members.duplicate_instance_ids,
    "session-timeout": members.session_timeouts,
    "rebalance-loop": rebalances.rebalance_loop,
    "slow-joiner": rebalances.slow_joiner,
    "coordinator-moved": rebalances.coordinator_moved,
    "skewed-assignment": assignments.skewed_assignment,
    "idle-members": assignments.idle_members,
    "different-subscriptions": assignments.different_subscriptions,
    "unread-topic": assignments.unread_topic,
    "lag-without-members": assignments.lag_without_members,
}


def findings_of(history: GroupHistory) -> list[Finding]:
    """Return what is wrong with a group, the worst first."""
    context = Context(history)
    found = [finding for detect in DETECTORS.values() for finding in detect(context)]
    return sorted(found, key=worst_first)


def all_findings(histories: Mapping[str, GroupHistory]) -> list[Finding]:
    """Return what is wrong with all groups, the worst first."""
    return sorted((one for history in histories.values() for one in findings_of(history)), key=worst_first)
