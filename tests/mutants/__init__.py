"""Defects made on purpose: each is put into a copy of the sources, and one of our defences has to notice.

`rules.py`, `consumer_groups.py`, `transactions.py`, `rights.py` and `logins.py` break rules one by one, for tests
(stories, properties, examples) to see; `worlds.py` has what goes wrong between disk, network, clock and members, for the simulator.
`__main__.py` is `make mutants`. The lists are data.
"""

from __future__ import annotations

from mutants.consumer_groups import CONSUMER_GROUPS
from mutants.logins import LOGINS
from mutants.mutant import ROOT, SIM, Mutant
from mutants.rights import RIGHTS
from mutants.rules import RULES
from mutants.transactions import TRANSACTIONS
from mutants.worlds import WORLDS

__all__ = ["MUTANTS", "ROOT", "SIM", "Mutant"]

MUTANTS = [*WORLDS, *RULES, *CONSUMER_GROUPS, *TRANSACTIONS, *RIGHTS, *LOGINS]
