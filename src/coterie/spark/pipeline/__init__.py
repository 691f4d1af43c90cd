"""The pipeline `coterie pipeline groups`: the logs of the groups, `__consumer_offsets` first, to tables in Parquet.

Read `schemas.py` first: every table and its columns. `decoding.py` reads records into rows. `group_state.py` rebuilds a
group from its records, with `consumer_group.py` and `partition_owners.py`; none of these imports Spark. `tables.py`
makes the tables of a batch, and `groups_pipeline.py` runs it all and stores each batch whole and once. `submit.py` is
the program for spark-submit.
"""

from __future__ import annotations

__all__: list[str] = []
