"""Records Apache Kafka 4.3.1 again, and says where our broker answers differently. `make conformance` runs it.

python tests/conformance/record.py                    # everything, into a directory that is thrown away
python tests/conformance/record.py --keep             # into recorded/, which `make test` replays
python tests/conformance/record.py --only timers      # families whose name contains this
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from apache_kafka import ApacheKafka
from conformance.cases import FAMILIES
from conformance.cases.family import Family
from conformance.compare import agree, compare
from conformance.hearing import Heard
from conformance.kafka import QUICK, SLOW, STEADY, KafkaCase, Patience, RunningKafka
from conformance.ours import OurBroker
from conformance.profiles import PROFILES
from conformance.script import Case, parse
from conformance.transcript import RECORDED, Transcript, read, write


class Recorder:
    """All families of one profile, on one Kafka."""

    def __init__(self, running: RunningKafka, setups: dict[str, Transcript]) -> None:
        self._running = running
        self._setups = setups
        self._number = 0
        self.again = 0

    async def record(self, family: Family) -> list[Transcript]:
        """What did not go as expected is recorded once more, with more patience, and counts as it is then."""
        self._running.will_restart(sum(map(_restarts, family.cases)))
        at_once = self._running.profile.at_once
        first = await self._record(family.cases, QUICK, at_once)
        if family.name == "setups":
            self._setups.update(first)
        doubtful = [one.case for one in first.values() if not self._is_as_expected(one)]
        slow = await self._record(doubtful, SLOW, max(at_once // 4, 1))
        if family.name == "setups":
            self._setups.update(slow)
        self.again += len(slow)
        return [slow.get(name, one) for name, one in first.items()]

    async def _record(self, cases: Sequence[Case], patience: Patience, at_once: int) -> dict[str, Transcript]:
        gate = asyncio.Semaphore(at_once)

        async def gated(case: Case) -> Transcript:
            async with gate:
                return await self._play(case, STEADY if _restarts(case) else patience)

        async with asyncio.TaskGroup() as tasks:
            played = [tasks.create_task(gated(case)) for case in cases]
        return {task.result().case.name: task.result() for task in played}

    def _is_as_expected(self, transcript: Transcript) -> bool:
        """One that restarts the broker cannot be played again by itself, and was played slowly to begin with."""
        if _restarts(transcript.case):
            return True
        found = compare(self._running.ours, transcript, self._setups) if transcript.heard else [(None, None)]
        return not any(row is None for _, row in found)

    async def _play(self, case: Case, patience: Patience) -> Transcript:
        before = self._setups[case.after] if case.after else None
        texts = (*before.case.steps, *case.steps) if before else case.steps
        self._number += 1
        playing = KafkaCase(self._running, f"conf{self._number}", [parse(text) for text in texts], patience)
        heard: list[Heard] = [one async for one in playing.play()]
        if before:
            setup, heard = heard[: len(before.heard)], heard[len(before.heard) :]
            if not agree(setup, before.heard):
                if patience is SLOW:
                    raise RuntimeError(f"{case.name}: its setup {case.after!r} did not go as recorded: {setup}")
                heard = []  # to be recorded once more
        return Transcript(case, heard, playing.ears.made)


def _restarts(case: Case) -> bool:
    return "restart" in case.steps


async def record_profile(
    profile: str, families: Sequence[Family], into: Path, setups: dict[str, Transcript]
) -> list[Transcript]:
    began = time.monotonic()
    settings = PROFILES[profile]
    transcripts: list[Transcript] = []
    with ApacheKafka(settings.settings) as kafka:
        running = RunningKafka(kafka, settings)
        recorder = Recorder(running, setups)
        await running.prepare()
        for family in families:
            recorded = await recorder.record(family)
            write(into / family.file, profile, recorded)
            transcripts += recorded
            print(f"  {profile}, {family.name}: {len(recorded)} cases recorded", flush=True)
    took = time.monotonic() - began
    print(f"{profile}: {len(transcripts)} cases in {took:.0f} s, {recorder.again} of them recorded twice", flush=True)
    return transcripts


def report(profile: str, transcripts: Sequence[Transcript], setups: Mapping[str, Transcript]) -> Counter[str]:
    counts: Counter[str] = Counter()
    broker = OurBroker(PROFILES[profile])
    for one in transcripts:
        counts["cases"] += 1
        counts["steps"] += len(one.case.steps) + (len(setups[one.case.after].case.steps) if one.case.after else 0)
        for found, row in compare(broker, one, setups):
            counts["explained" if row else "unexplained"] += 1
            if row is None:
                print(found, flush=True)
    return counts


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--keep", action="store_true", help="replace what is in recorded/")
    arguments.add_argument("--only", nargs="*", default=[""], help="families whose name contains one of these")
    chosen = arguments.parse_args()
    families = [family for family in FAMILIES if any(word in family.name for word in chosen.only)]
    setups = {one.case.name: one for one in read(RECORDED / "setups.txt")[1]} if any(chosen.only) else {}
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="conformance-") as scratch:
        into = RECORDED if chosen.keep else Path(scratch)
        for profile in dict.fromkeys(family.profile for family in families):
            of_profile = [family for family in families if family.profile == profile]
            transcripts = asyncio.run(record_profile(profile, of_profile, into, setups))
            counts += report(profile, transcripts, setups)
    print(
        f"{counts['cases']} cases, {counts['steps']} steps: {counts['unexplained']} differences from Apache Kafka "
        f"4.3.1, and {counts['explained']} that are meant"
    )
    return 1 if counts["unexplained"] else 0


if __name__ == "__main__":
    sys.exit(main())
