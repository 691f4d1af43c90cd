-- Rebalances of a group that follow each other within five minutes, as in a rolling deploy, and what they cost together.
-- The lag is the most from their beginning to five minutes after their end; null if it was not measured then.
-- rebalances_by_cause.sql has the view rebalances_once.
CREATE OR REPLACE TEMPORARY VIEW what_a_deploy_cost AS
WITH numbered AS (
    SELECT
        *,
        coalesce(ended_ms - lag(ended_ms) OVER (PARTITION BY group_id ORDER BY ended_ms) > 300000, true) AS is_first
    FROM rebalances_once
),
deploys AS (
    SELECT *, sum(is_first::INT) OVER (PARTITION BY group_id ORDER BY ended_ms, is_first DESC) AS deploy FROM numbered
),
costs AS (
    SELECT
        group_id,
        min(coalesce(began_ms, ended_ms)) AS began_ms,
        max(ended_ms) AS ended_ms,
        count(*) AS rebalances,
        sum(coalesce(array_size(came), 0)) AS members_joined,
        sum(coalesce(array_size(deploys.left), 0)) AS members_left,
        sum(coalesce(array_size(moved), 0)) AS partitions_moved,
        sum(unassigned_ms) / 1e3 AS unassigned_partition_seconds
    FROM deploys
    GROUP BY group_id, deploy
)
SELECT
    costs.group_id,
    timestamp_millis(costs.began_ms) AS began,
    timestamp_millis(costs.ended_ms) AS ended,
    rebalances,
    members_joined,
    members_left,
    partitions_moved,
    unassigned_partition_seconds,
    max(l.records_behind) AS records_behind_max
FROM costs
LEFT JOIN group_lag AS l
    ON l.group_id = costs.group_id AND l.at_ms BETWEEN costs.began_ms AND costs.ended_ms + 300000
GROUP BY ALL
ORDER BY began, costs.group_id;
