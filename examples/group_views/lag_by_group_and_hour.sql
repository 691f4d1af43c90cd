-- The lag of each group in each hour, and how many records it read and how many were written.
-- If a group's offsets were reset, or partitions were added, read and written include the jump.
CREATE OR REPLACE VIEW lag_by_group_and_hour AS
SELECT
    date_trunc('hour', epoch_ms(at_ms)) AS hour,
    group_id,
    max(records_behind) AS records_behind_max,
    round(avg(records_behind), 1) AS records_behind_avg,
    max(seconds_behind) AS seconds_behind_max,
    arg_max(committed, at_ms) - arg_min(committed, at_ms) AS records_read,
    arg_max(log_end, at_ms) - arg_min(log_end, at_ms) AS records_written,
    count(*) AS measurements
FROM read_parquet('groups/group_lag/*/*/*.parquet')
GROUP BY hour, group_id
ORDER BY hour, group_id;
