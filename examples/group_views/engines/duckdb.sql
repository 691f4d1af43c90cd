-- What the views need in DuckDB: the tables of groups/, and functions by the names that Spark has for them.
CREATE OR REPLACE TEMPORARY VIEW generations AS FROM read_parquet('groups/generations/*/*/*.parquet', union_by_name = true);
CREATE OR REPLACE TEMPORARY VIEW group_lag AS FROM read_parquet('groups/group_lag/*/*/*.parquet', union_by_name = true);
CREATE OR REPLACE TEMPORARY VIEW health AS FROM read_parquet('groups/health/*/*/*.parquet', union_by_name = true);
CREATE OR REPLACE TEMPORARY VIEW rebalances AS FROM read_parquet('groups/rebalances/*/*/*.parquet', union_by_name = true);

CREATE OR REPLACE MACRO timestamp_millis(ms) AS epoch_ms(ms);
CREATE OR REPLACE MACRO array_size(items) AS len(items);
CREATE OR REPLACE MACRO explode(items) AS unnest(items);
