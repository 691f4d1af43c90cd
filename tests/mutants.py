"""Defects made on purpose: each breaks one rule in a copy of the sources, and a test has to notice.

    make mutants                    # all of them; ends with 'N passed, M failed'
    make mutants ONLY="10 11"       # those of these rules

A mutant that survives is a rule nobody tests. The list is data: what is broken, where, and how.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = ["tests/group", "tests/coordinator/test_coordinator.py", "tests/ledger/test_rounds.py", "tests/stories"]
MEMBER_TESTS = ["tests/client/member"]


@dataclass(frozen=True)
class Mutant:
    rule: str
    what: str
    file: str
    old: str
    new: str


MUTANTS = [
    Mutant("C1", "mask the sign away", "coordinator/coordinator.py",
           "(0 if value == -(1 << 31) else abs(value))", "(value & 0x7FFFFFFF)"),
    Mutant("C2", "serve other kinds of key", "coordinator/coordinator.py", "if key_type != _GROUP_KEY:", "if key_type < 0:"),
    Mutant("C3", "refuse heartbeats while loading", "coordinator/coordinator.py",
           "return ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error", "return error"),
    Mutant("C3", "list what is there while loading", "coordinator/coordinator.py", "if self._loading:", "if False:"),
    Mutant("C4", "forget parked syncs when unloading", "group/lifecycle.py", "if member.parked_sync is not None:", "if False:"),
    Mutant("C4", "load members as Empty", "group/lifecycle.py", "STABLE if group.members else EMPTY", "EMPTY"),
    Mutant("C4", "no session after loading", "group/lifecycle.py",
           "effects += group.expect_by(member, now_ms + member.session_timeout_ms)", "pass"),
    Mutant("C4", "over the limit at load: nothing", "group/lifecycle.py",
           "if len(group.members) > group.settings.group_max_size:", "if False:"),
    Mutant("C4", "take an append of an earlier life", "coordinator/shard.py", "if event.ticket != self._ticket:", "if False:"),
    Mutant("1", "session bounds exclude their ends", "group/join_group.py",
           "shortest <= request.session_timeout_ms <= longest", "shortest < request.session_timeout_ms < longest"),
    Mutant("1", "the group takes one too many", "group/join_group.py", "len(group.members) >= limit", "len(group.members) > limit"),
    Mutant("1", "a known member turned away stays", "group/join_group.py", "effects += group.remove([member])", "pass"),
    Mutant("2", "a disjoint list is taken", "group/group.py", "self.support.get(name, 0) == len(self.members)",
           "self.support.get(name, 0) >= 0"),
    Mutant("2", "names may repeat", "group/group.py", "if len(names) != len(protocols):", "if False:"),
    Mutant("3", "unknown ids are adopted", "group/join_group.py",
           "    if request.member_id in group.pending:\n        if request.instance_id is not None:",
           "    if request.member_id not in group.members:\n        if request.instance_id is not None:"),
    Mutant("3", "no id first", "group/join_group.py", "if request.needs_member_id and request.instance_id is None:", "if False:"),
    Mutant("4", "pending ids do not count", "group/group.py",
           "return self.parked_joins == len(self.members) and not self.pending", "return self.parked_joins == len(self.members)"),
    Mutant("4", "the smallest timeout counts", "group/group.py",
           "return max((member.rebalance_timeout_ms", "return min((member.rebalance_timeout_ms"),
    Mutant("5", "no initial delay", "group/join_phase.py", "if group.in_initial_delay:  # rule 5", "if False:  # rule 5"),
    Mutant("5", "a leave ends the initial delay", "group/join_phase.py",
           "if group.state is PREPARING and not group.in_initial_delay and group.everybody_joined():",
           "if group.state is PREPARING and group.everybody_joined():"),
    Mutant("5", "newcomers do not prolong it", "group/join_phase.py", "if event.rest_ms and group.newcomers:", "if False:"),
    Mutant("6", "late static members are dropped", "group/join_phase.py",
           "if m.parked_join is None and m.instance_id is None]", "if m.parked_join is None]"),
    Mutant("6", "the generation stays when the group empties", "group/join_phase.py",
           "    group.generation_id += 1\n    group.protocol_name = None", "    group.protocol_name = None"),
    Mutant("7", "members in order of arrival", "group/group.py",
           "return sorted(self.members.values(), key=lambda member: member.spread & mask)",
           "return list(self.members.values()) if mask else []"),
    Mutant("7", "the map never grows", "group/group.py",
           "self.buckets = capacity_for(len(self.members), self.buckets)", "pass"),
    Mutant("8", "ties go to who voted first", "group/group.py", "for name in map_order(list(votes))", "for name in list(votes)"),
    Mutant("9", "who waits expires", "group/session.py", "if waits and not member.is_new:", "if False:"),
    Mutant("9", "a newcomer waits for ever", "group/session.py", "if waits and not member.is_new:", "if waits:"),
    Mutant("10", "a second join counts twice", "group/group.py", "if member.parked_join is None:\n            self.parked_joins += 1",
           "self.parked_joins += 1"),
    Mutant("11", "answer before the disk", "group/sync_group.py", "    return _write(group, request)",
           "    effects = _write(group, request)\n    return [*effects, *answer_parked_syncs(group, ErrorCode.NONE, 0)]"),
    Mutant("11", "the generation is not looked at after the write", "group/sync_group.py",
           "if group.state is not COMPLETING or group.generation_id != event.generation_id:\n        return []  # a round",
           "if group.state is not COMPLETING and group.state is not COMPLETING:\n        return []  # a round"),
    Mutant("11", "errors are not mapped", "group/write_errors.py", "return _TOLD.get(error, error)", "return error"),
    Mutant("12", "nobody has to sync", "group/sync_group.py", "if member.awaits_sync]", "if False]"),
    Mutant("13", "waiting syncs stay when a round begins", "group/join_phase.py",
           "effects += answer_parked_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)", "pass"),
    Mutant("13", "assignments survive a round from Completing", "group/join_phase.py",
           '            member.assignment = b""', "            pass"),
    Mutant("14", "heartbeats move nothing", "group/heartbeat.py",
           "moved = group.expect_by(member, now_ms + member.session_timeout_ms)", "moved: Effects = []"),
    Mutant("14", "commits are no sign of life", "group/offset_commit.py",
           "if member is not None and request.producer_id is None:", "if False:"),
    Mutant("14", "sessions never end", "group/session.py", "if member.deadline_ms > now_ms:", "if True:"),
    Mutant("15", "a round is not announced", "group/states.py",
           "PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,  # how a member hears", "PREPARING: ErrorCode.NONE,  # how a member hears"),
    Mutant("16", "the last to leave is named for the round", "group/leave_group.py", "effects += start_round(group, now_ms, *gone[0])",
           "effects += start_round(group, now_ms, *gone[-1])"),
    Mutant("17", "no leave by instance", "group/leave_group.py", "return (holder, ErrorCode.NONE) if holder else",
           "return (holder, ErrorCode.NONE) if False else"),
    Mutant("18", "the old id is not fenced", "group/group.py", "return ErrorCode.FENCED_INSTANCE_ID", "return ErrorCode.NONE"),
    Mutant("19", "a returning static member starts a round", "group/states.py", "STABLE: Do.REPLACE,", "STABLE: Do.START_ROUND,"),
    Mutant("19", "an old leader is told that it leads", "group/join_group.py", "    answer.leader_id = event.old_leader_id", "    pass"),
    Mutant("21", "unknown topics reach the group", "group/offset_commit.py",
           "if type(request.partitions) is not CommitRows and all(partition.error for partition in request.partitions):",
           "if False:"),
    Mutant("21", "metadata is counted in bytes", "group/offset_commit.py",
           'len(metadata.encode("utf-16-le", "surrogatepass")) // 2', "len(metadata.encode())"),
    Mutant("21", "commits while Completing", "group/states.py",
           "    COMPLETING: ErrorCode.REBALANCE_IN_PROGRESS,\n    STABLE: Do.TAKE,", "    COMPLETING: Do.TAKE,\n    STABLE: Do.TAKE,"),
    Mutant("22", "transactions are visible at once", "group/offset_commit.py", "        if pending is None:",
           "        if True:"),
    Mutant("22", "an older transaction wins", "group/offset_commit.py", "offset.position > stored.position", "True"),
    Mutant("22", "commits wait for ever", "coordinator/shard.py", "if item.asked_ms + timeout_ms > now_ms:", "if True:"),
    Mutant("23", "subscribed topics expire", "group/offset_expiry.py", "if not group.subscribes_to(topic)", "if True"),
    Mutant("23", "an Empty group counts from the commit", "group/offset_expiry.py", "        was_in_use = group.state_timestamp_ms",
           "        pass"),
    Mutant("23", "expiry overtakes a commit", "group/offset_expiry.py", "if group.unwritten_commits:", "if False:"),
    Mutant("24", "unreadable subscriptions are no subscriptions", "group/group.py",
           "return self.protocol_type == CONSUMER  # unknown", "return False  # unknown"),
    Mutant("24", "a commit on its way survives the tombstone", "group/group.py",
           "for commit in self.unwritten_commits.values():", "for commit in ():"),
    Mutant("25", "metadata shows while preparing", "group/describe_group.py", "stable = group.state is STABLE", "stable = True"),
    Mutant("25", "filters mind the case", "group/describe_group.py", "{state.lower() for state in states}", "set(states)"),
    Mutant("20", "the ledger takes every join for an eager one", "ledger/ownership.py",
           "owned = read_subscription(metadata).owned", "owned = {}"),
    Mutant("M2", "the coordinator is looked up without need", "client/member/finding.py", "    return (\n        member.has_generation",
           "    return (\n        True or member.has_generation"),
    Mutant("M3", "no commit before the join", "client/member/preparing.py",
           "if not (member.settings.enable_auto_commit and member.is_settled and member.assigned):", "if True:"),
    Mutant("M3", "lost is called revoked", "client/member/preparing.py",
           "return (Listened.LOST, member.assigned) if member.assigned else None",
           "return (Listened.REVOKED, member.assigned) if member.assigned else None"),
    Mutant("M3", "a cooperative member gives everything up", "client/member/preparing.py", "    if member.settings.is_cooperative:\n        gone",
           "    if False:\n        gone"),
    Mutant("M3", "heartbeats during the join", "client/member/member.py",
           "return self.has_generation and self.stage is not Stage.JOINING", "return self.has_generation"),
    Mutant("M4", "any answer to a join counts", "client/member/joining.py", "if event is not member.waiting_for:", "if False:"),
    Mutant("M4", "ILLEGAL_GENERATION drops the id", "client/member/identity.py",
           "keeps_id=what is Do.DROP_GENERATION", "keeps_id=False"),
    Mutant("M4", "a join has no more time than others", "client/member/joining.py",
           "timeout_ms = max(settings.request_timeout_ms, settings.max_poll_interval_ms + JOIN_TIMEOUT_LAPSE_MS)",
           "timeout_ms = settings.request_timeout_ms"),
    Mutant("M5", "the leader watches its own topics alone", "client/member/subscribing.py",
           "member.topics | member.group_topics", "member.topics"),
    Mutant("M5", "nonsense is handed out", "client/member/leading.py", "    if what:\n", "    if False:\n"),
    Mutant("M5", "a returning leader assigns", "client/member/leading.py", "if member.skips_assignment:", "if False:"),
    Mutant("M6", "any assignment is taken", "client/member/syncing.py", "    if foreign:\n", "    if False:\n"),
    Mutant("M6", "no second round", "client/member/listening.py",
           'member.rejoin_reason = "need to revoke partitions and re-join"', "pass"),
    Mutant("M6", "everything is told as new", "client/member/syncing.py", "added = member.given - member.assigned",
           "added = member.given"),
    Mutant("M7", "an older generation's refusal resets", "client/member/committing.py",
           "if member.stage in IN_A_ROUND or not is_current:", "if False:"),
    Mutant("M7", "a repeated commit goes back", "client/member/sending.py",
           "if not errand.failures or newest.get(partition) == errand.number", "if newest is not None"),
    Mutant("M7", "commits cross generations", "client/member/sending.py",
           "errand.generation_id != NO_GENERATION and not _is_current(member, errand)", "False"),
    Mutant("M8", "a late poll is nobody's business", "client/member/heartbeat.py",
           "if now_ms >= member.poll_deadline_ms and _poll_counts(member):", "if False:"),
    Mutant("M8", "a static member leaves, too", "client/member/heartbeat.py",
           "leaves = settings.group_instance_id is None", "leaves = True"),
    Mutant("M8", "a silent coordinator is believed", "client/member/heartbeat.py",
           "if now_ms >= member.session_deadline_ms:", "if False:"),
    Mutant("M8", "any answer to a heartbeat counts", "client/member/heartbeat.py",
           "if event is not member.heartbeat_in_flight:", "if False:"),
    Mutant("M9", "static members leave on close", "client/member/leaving.py",
           "leaves = member.settings.group_instance_id is None", "leaves = True"),
    Mutant("M10", "prepared anew for every join", "client/member/rounds.py", "    member.stalled = True\n    return [Fail",
           "    member.stalled, member.is_prepared = True, False\n    return [Fail"),
    Mutant("M11", "a leave waits behind the join", "client/member/leaving.py", "LEAVING_LANE if is_parked else COORDINATOR_LANE",
           "COORDINATOR_LANE"),
    Mutant("M12", "any protocol type will do", "client/member/joining.py", "if reply.protocol_type not in {None, CONSUMER}:", "if False:"),
    Mutant("M13", "a commit is overtaken by the leave", "client/member/leaving.py",
           "and not (member.is_closing and member.errands)", ""),
    Mutant("M14", "a listener's error ends the round", "client/member/listening.py",
           "        effects += _failed(member, event, event.error, now_ms)", "        return _failed(member, event, event.error, now_ms)"),
]  # fmt: skip


def mutate(source: Path, mutant: Mutant) -> None:
    path = source / "coterie" / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.file}: {mutant.old!r} stands there {text.count(mutant.old)} times, not once")
    path.write_text(text.replace(mutant.old, mutant.new))


def caught_by(mutant: Mutant) -> str | None:
    """The first test that fails with the mutant in place; None if all pass."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        mutate(source, mutant)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
        command += [
            "--timeout",
            "20",
            "--timeout-method",
            "signal",
            *(MEMBER_TESTS if mutant.rule.startswith("M") else TESTS),
        ]  # some mutants never end
        env = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
        run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
    return failed[1] if failed else run.stdout.strip().splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rules", nargs="*", help="only mutants of these rules")
    wanted = parser.parse_args().rules
    survivors = 0
    chosen = [mutant for mutant in MUTANTS if not wanted or mutant.rule in wanted]
    for number, mutant in enumerate(chosen, 1):
        caught = caught_by(mutant)
        survivors += caught is None
        verdict = f"caught by {caught}" if caught else "SURVIVED"
        print(f"[{number}/{len(chosen)}] rule {mutant.rule}, {mutant.what}: {verdict}", flush=True)
    print(f"{len(chosen) - survivors} passed, {survivors} failed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
