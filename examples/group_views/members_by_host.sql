-- The members of each group on each host, and how many partitions they have: as the last generation of the group shows.
CREATE OR REPLACE TEMPORARY VIEW members_by_host AS
WITH last AS (
    SELECT group_id, max_by(tombstone, log_ms) AS is_deleted, max_by(members, log_ms) AS members
    FROM generations
    GROUP BY group_id
),
each AS (SELECT group_id, explode(members) AS member FROM last WHERE NOT is_deleted)
SELECT
    member.client_host AS host,
    group_id,
    count(*) AS members,
    sum(coalesce(array_size(member.assignment), 0)) AS partitions,
    array_sort(array_agg(DISTINCT member.client_id)) AS client_ids
FROM each
GROUP BY member.client_host, group_id
ORDER BY host, group_id;
