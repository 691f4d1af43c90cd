-- Groups without members: how long they have not committed, and how much waits for them. The first ones can be deleted.
CREATE OR REPLACE TEMPORARY VIEW groups_nobody_reads AS
SELECT
    group_id,
    protocol,
    timestamp_millis(last_commit_ms) AS last_commit,
    round((at_ms - last_commit_ms) / 86400000e0, 1) AS days_without_commit,
    partitions,
    records_behind
FROM health
WHERE members = 0
ORDER BY days_without_commit DESC NULLS FIRST, group_id;
