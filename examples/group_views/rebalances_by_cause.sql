-- How often each group rebalanced, why, and what it cost. Of a rebalance that Coterie's broker has recorded, the row that
-- was derived from the log is left out: the same generation, ended within a minute.
CREATE OR REPLACE TEMPORARY VIEW rebalances_once AS
SELECT r.* FROM rebalances AS r
WHERE r.evidence <> 'derived' OR NOT EXISTS (
    SELECT 1 FROM rebalances AS o
    WHERE o.evidence = 'observed' AND o.group_id = r.group_id AND o.generation = r.generation
        AND abs(o.ended_ms - r.ended_ms) <= 60000
);

CREATE OR REPLACE TEMPORARY VIEW rebalances_by_cause AS
SELECT
    group_id,
    cause,
    count(*) AS rebalances,
    max(duration_ms) AS longest_ms,
    sum(coalesce(array_size(moved), 0)) AS partitions_moved,
    sum(unassigned_ms) / 1e3 AS unassigned_partition_seconds,
    timestamp_millis(max(ended_ms)) AS last
FROM rebalances_once
GROUP BY group_id, cause
ORDER BY rebalances DESC, group_id, cause;
