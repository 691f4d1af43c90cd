"""What would it cost? A rolling deploy of groups of three and of eight, simulated with the shipped broker and members.

Five minutes of a group take a second or two. The same seed gives the same run; take many for a figure to rely on.

    python examples/what_if.py
"""

from __future__ import annotations

from coterie.facts import Fact
from coterie.ledger import Rebalance, fold
from coterie.sim import Plan, simulate
from coterie.sim.world import Observer


def rebalances_of_a_deploy(members: int, seed: int = 1) -> list[Rebalance]:
    """Every member is stopped and started, one after the other, twice; nothing goes wrong besides."""
    told: list[Fact] = []

    class Notes(Observer):
        name = "notes"

        def on_fact(self, machine: object, fact: Fact) -> None:
            told.append(fact)

    outcome = simulate(
        Plan.draw(seed, "rolling-deploy", members=members, hours=1 / 12, faults=0, nodes=1), watch=[Notes]
    )
    assert outcome.held, outcome.report()
    return fold(told)


def main() -> None:
    for members in (3, 8):
        rebalances = rebalances_of_a_deploy(members)
        moved = sum(len(one.moves) for one in rebalances)
        unassigned_s = sum(one.unassigned_ms or 0 for one in rebalances) / 1_000
        print(
            f"{members:2} members: {len(rebalances)} rebalances, {moved} moves, "
            f"{unassigned_s:.0f} unassigned partition-seconds"
        )


if __name__ == "__main__":
    main()
