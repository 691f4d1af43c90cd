"""Move topics, records, ACLs and committed offsets from one cluster to another, while clients go on.

`translation.py`, `migration_plan.py`, `progress.py`, `groups.py` and `compare.py` are rules without I/O.
`clusters.py` has the clients of both sides, `copier.py` copies, and `inspection.py` reads what was copied: the
status, and a comparison.
"""
