-- The lag of each group in each hour, and how many records it read and how many were written.
-- If a group's offsets were reset, or partitions were added, read and written include the jump.
CREATE OR REPLACE TEMPORARY VIEW lag_by_group_and_hour AS
SELECT
    date_trunc('hour', timestamp_millis(at_ms)) AS hour,
    group_id,
    max(records_behind) AS records_behind_max,
    round(avg(records_behind), 1) AS records_behind_avg,
    max(seconds_behind) AS seconds_behind_max,
    max_by(committed, at_ms) - min_by(committed, at_ms) AS records_read,
    max_by(log_end, at_ms) - min_by(log_end, at_ms) AS records_written,
    count(*) AS measurements
FROM group_lag
GROUP BY ALL
ORDER BY hour, group_id;
