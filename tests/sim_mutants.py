"""Defects made on purpose, for the simulator: each is put into a copy of the sources, and some seed has to find it.

    make sim-mutants                         # all of them
    python tests/sim_mutants.py flush read   # those whose words have one of these

Each has SEEDS seeds of mixed workloads, ten simulated minutes each. What is printed: the seed, and which invariant.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SEEDS = 100

HUNT = """
import sys
from coterie.sim import Plan, simulate
for seed in range(int(sys.argv[1])):
    found = simulate(Plan.draw(seed, sys.argv[2] or None))
    if not found.held:
        print(f"seed {seed} ({found.plan.workload}), {found.broken}: {found.what.strip().splitlines()[-1]}")
        sys.exit(1)
"""


@dataclass(frozen=True)
class Mutant:
    what: str
    file: str
    old: str
    new: str
    workload: str = ""


MUTANTS = [
    Mutant("answers do not wait for the flush", "broker/flushing.py",
           "            waiters = self.waiting.setdefault(log, [])\n            if waiter is not None:\n                waiters.append(waiter)\n            return",
           "            self.waiting.setdefault(log, [])\n            if waiter is not None:\n                self.settled.append((log, waiter))\n            return"),
    Mutant("readers see what is not durable", "broker/flushing.py",
           "return log.durable_end if self.sync else log.log_end", "return log.log_end"),
    Mutant("a flush that failed counts", "broker/flushing.py",
           "ErrorCode.NONE if error is None else ErrorCode.KAFKA_STORAGE_ERROR", "ErrorCode.NONE"),
    Mutant("a log whose flush failed is not cut back", "broker/flushing.py",
           "                waiters += self.waiting.pop(log, [])\n                log.flush_failed(target)",
           "                log.flush_refused(target)"),
    Mutant("after a crash the log is believed", "log/directory.py", "clean=was_clean,", "clean=True,"),
    Mutant("a torn tail stays where it is", "log/recovery.py", "    segment.cut_tail()\n    yield", "    yield"),
    Mutant("names are not synced", "log/files.py", "    if sync:\n        files.sync_directory(parent_of(path))", "    if False:\n        files.sync_directory(parent_of(path))"),
    Mutant("new segments and logs have no durable names", "log/flushing.py",
           "directories = [self._path, parent_of(self._path)] if self._has_new_names else []", "directories: list[str] = []"),
    Mutant("a log that is closed empty syncs no names", "log/partition.py",
           "            self._flushing.seal()\n            self._flushing.sync_new_names()\n", "            self._flushing.seal()\n"),
    Mutant("the journal is not synced", "log/journal.py", "            file.append(content)\n            file.sync()", "            file.append(content)"),
    Mutant("the journal is not read after a crash", "log/directory.py", "{} if was_clean else read_journal(self._files)", "{}"),
    Mutant("a batch that was sent again is taken again", "log/partition.py", "if duplicate is not None:", "if False:"),
    Mutant("producers are forgotten in a crash", "log/recovery.py", "                loaded.note(found)\n        except", "                pass\n        except"),
    Mutant("the leader's sync is answered before the disk", "group/sync_group.py", "    return _write(group, request)",
           "    effects = _write(group, request)\n    return [*effects, *answer_parked_syncs(group, ErrorCode.NONE, 0)]"),
    Mutant("the generation is not looked at after the write", "group/sync_group.py",
           "if group.state is not COMPLETING or group.generation_id != event.generation_id:\n        return []  # a round",
           "if group.state is not COMPLETING:\n        return []  # a round"),
    Mutant("a session's alarm is not set again", "group/session.py",
           "        return group.set_alarm(member, member.deadline_ms)", "        return []"),
    Mutant("heartbeats move nothing", "group/heartbeat.py",
           "moved = group.expect_by(member, now_ms + member.session_timeout_ms)", "moved: Effects = []"),
    Mutant("alarms of members that went ring on", "group/group.py",
           "            effects.append(Disarm(self.session_key(member.member_id)))\n            del self.members", "            del self.members"),
    Mutant("a join phase is not looked at when somebody joins", "group/join_phase.py",
           "    if group.state is PREPARING and not group.in_initial_delay and group.everybody_joined():\n        return complete(group, now_ms)\n    return []",
           "    return []"),
    Mutant("an expiry wakes nobody", "group/session.py",
           "    if group.state is PREPARING and group.everybody_joined():\n        return complete(group, now_ms)\n    return []", "    return []"),
    Mutant("waiting syncs stay when a round begins", "group/join_phase.py",
           "effects += answer_parked_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)", "pass"),
    Mutant("nobody has to sync", "group/sync_group.py", "if member.awaits_sync]", "if False]"),
    Mutant("the old id is not fenced", "group/group.py", "return ErrorCode.FENCED_INSTANCE_ID", "return ErrorCode.NONE"),
    Mutant("old generations commit", "group/offset_commit.py",
           "                return ErrorCode.ILLEGAL_GENERATION", "                return ErrorCode.NONE"),
    Mutant("parked syncs are forgotten when the coordinator moves", "group/lifecycle.py",
           "if member.parked_sync is not None:", "if False:"),
    Mutant("members load as Empty", "group/lifecycle.py", "STABLE if group.members else EMPTY", "EMPTY"),
    Mutant("no session after loading", "group/lifecycle.py",
           "effects += group.expect_by(member, now_ms + member.session_timeout_ms)", "pass"),
    Mutant("an append of an earlier life is taken", "coordinator/shard.py", "if event.ticket != self._ticket:", "if False:"),
    Mutant("tombstones of offsets are not read", "coordinator/replay.py",
           "        if record.value is None:\n            self._forget(group_id, topic, partition)\n            return",
           "        if record.value is None:\n            return"),
    Mutant("a commit that failed counts", "group/offset_commit.py", "    if event.error:\n        return _fail(group, event, now_ms)", "    if False:\n        return _fail(group, event, now_ms)"),
    Mutant("offsets of a subscribed topic expire", "group/offset_expiry.py", "if not group.subscribes_to(topic)", "if True"),
    Mutant("a second group of a name beside one that is deleted", "coordinator/shard.py",
           "            if self._held and kind is not Heartbeat and event.group_id in self._held:", "            if False:"),
    Mutant("a revoked partition is still read", "client/fetching.py", "        self._places = places\n", "        self._places = {**before, **places}\n"),
    Mutant("what is handed over counts as processed", "client/fetching.py",
           "            one: OffsetAndMetadata(place.done, place.done_epoch)\n            for one, place in self._places.items()\n            if place.done is not None",
           "            one: OffsetAndMetadata(place.position, place.epoch)\n            for one, place in self._places.items()\n            if place.position is not None"),
    Mutant("an answer to an older fetch is taken", "client/places.py",
           "return self.need is Need.NOTHING and self.next_fetch == offset", "return self.need is Need.NOTHING"),
    Mutant("committed offsets are not asked for", "client/fetching.py",
           "                place.stand_at(found.offset, found.leader_epoch)", "                place.stand_at(found.offset + 1, found.leader_epoch)"),
    Mutant("any answer to a join counts", "client/member/joining.py", "if event is not member.waiting_for:", "if False:"),
    Mutant("any answer to a heartbeat counts", "client/member/heartbeat.py",
           "if event is not member.heartbeat_in_flight:", "if False:"),
    Mutant("commits cross generations", "client/member/sending.py",
           "errand.generation_id != NO_GENERATION and not _is_current(member, errand)", "False"),
    Mutant("a cooperative member gives everything up", "client/member/preparing.py",
           "    if member.settings.is_cooperative:\n        gone", "    if False:\n        gone"),
    Mutant("a cooperative member stops reading before it joins", "client/member/preparing.py",
           "    if not member.settings.is_cooperative:\n        # Else", "    if True:\n        # Else"),
    Mutant("everything is told as new", "client/member/syncing.py", "added = member.given - member.assigned", "added = member.given"),
    Mutant("no second round", "client/member/listening.py",
           'member.rejoin_reason = "need to revoke partitions and re-join"', "pass"),
    Mutant("the leader does not see new partitions", "client/member/subscribing.py", "member.is_stale = ", "_ = "),
    Mutant("a silent coordinator is believed", "client/member/heartbeat.py",
           "if now_ms >= member.session_deadline_ms:", "if False:"),
    Mutant("a retry that is due is forgotten", "client/member/membership.py", "        member.is_backing_off = False", "        pass"),
    Mutant("the producer's place is not taken anew after a refusal", "client/batching.py",
           "            if queue.may_move():", "            if False:"),
    Mutant("a coordinator that a group was taken from goes on", "broker/leadership.py",
           "nodes[was].follow(nodes[was].coordinator.lose(number, now_ms), now_ms)", "pass", "moving-coordinators"),
    Mutant("groups that move are not read", "broker/group_loads.py",
           "if load.offset < load.log.log_end:", "if False:", "moving-coordinators"),
    Mutant("a group that moved on is loaded all the same", "broker/group_loads.py",
           "if not node.coordinator.is_loading(load.partition, load.replay):", "if False:", "moving-coordinators"),
    Mutant("compaction takes the last record of a key", "log/survivors.py",
           "latest.get(name_of(record.key), -1) <= record.offset", "latest.get(name_of(record.key), -1) < record.offset"),
    Mutant("compacted segments are not synced", "log/compacting.py",
           "        segment.write_indexes()\n        segment.later().run()", "        segment.write_indexes()"),
]  # fmt: skip


def mutate(source: Path, mutant: Mutant) -> None:
    path = source / "coterie" / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.file}: {mutant.old!r} stands there {text.count(mutant.old)} times, not once")
    path.write_text(text.replace(mutant.old, mutant.new))


def caught_by(mutant: Mutant, seeds: int) -> str | None:
    """The first seed that notices, and what; None if none does."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        mutate(source, mutant)
        command = [sys.executable, "-c", HUNT, str(seeds), mutant.workload]
        env = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
        run = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=1_800)
    if run.returncode == 0:
        return None
    return (run.stdout or run.stderr).strip().splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only mutants that are described by one of these words")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--from", dest="first", type=int, default=1, help="begin with this one")
    given = parser.parse_args()
    chosen = [one for one in MUTANTS if not given.words or any(word in one.what for word in given.words)]
    survivors = 0
    for number, mutant in list(enumerate(chosen, 1))[given.first - 1 :]:
        caught = caught_by(mutant, given.seeds)
        survivors += caught is None
        verdict = f"caught by {caught}" if caught else f"SURVIVED {given.seeds} seeds"
        print(f"[{number}/{len(chosen)}] {mutant.what}: {verdict}", flush=True)
    print(f"{len(chosen) - survivors} passed, {survivors} failed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
