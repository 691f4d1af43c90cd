-- The members of each group on each host, and how many partitions they have: as the last generation of the group shows.
CREATE OR REPLACE VIEW members_by_host AS
WITH last AS (
    SELECT group_id, arg_max(tombstone, log_ms) AS is_deleted, arg_max(members, log_ms) AS members
    FROM read_parquet('groups/generations/*/*/*.parquet')
    GROUP BY group_id
),
each AS (SELECT group_id, unnest(members) AS member FROM last WHERE NOT is_deleted)
SELECT
    member.client_host AS host,
    group_id,
    count(*) AS members,
    sum(coalesce(len(member.assignment), 0)) AS partitions,
    list(DISTINCT member.client_id ORDER BY member.client_id) AS client_ids
FROM each
GROUP BY host, group_id
ORDER BY host, group_id;
