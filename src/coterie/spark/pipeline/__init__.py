"""The pipelines: `coterie pipeline groups`, the logs of the groups to tables, and `coterie pipeline topics`, any topic.

Both keep tables in `parquet_tables.py` (days, compaction, retention; a batch whole and once), on files of
`hadoop_files.py`; topics may use `delta_tables.py` or `iceberg_tables.py` instead.

Of the groups, read `schemas.py` first: every table and its columns. `decoding.py` reads records into rows.
`group_state.py` rebuilds a group from its records, with `consumer_group.py` and `partition_owners.py`; none of these
imports Spark. `tables.py` makes the tables of a batch, `state_store.py` keeps what the next batch needs,
`earlier_tables.py` reads what earlier releases have written, and `groups_pipeline.py` runs it all.

Of topics, `value_formats.py` reads values by a schema, `group_samples.py` compares descriptions of the group, and
`topics_pipeline.py` runs it all. `cluster.py` has what both ask the cluster. `submit.py` is the program for
spark-submit.
"""

from __future__ import annotations

__all__: list[str] = []
