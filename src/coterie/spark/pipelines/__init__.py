"""Pipelines: what is read, transformed and written where. They wire and decide nothing else.

`groups.py` is the one there is: the log of the groups to tables. `store.py` is how a batch gets into the tables whole
and once, `asking.py` what is asked of the cluster besides. Also a module with a main, for spark-submit.
"""

from __future__ import annotations

__all__: list[str] = []
