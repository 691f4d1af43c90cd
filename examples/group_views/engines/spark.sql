-- What the views need in Spark: the tables of groups/.
CREATE OR REPLACE TEMPORARY VIEW generations USING parquet OPTIONS (path 'groups/generations');
CREATE OR REPLACE TEMPORARY VIEW group_lag USING parquet OPTIONS (path 'groups/group_lag');
CREATE OR REPLACE TEMPORARY VIEW health USING parquet OPTIONS (path 'groups/health');
CREATE OR REPLACE TEMPORARY VIEW rebalances USING parquet OPTIONS (path 'groups/rebalances');
