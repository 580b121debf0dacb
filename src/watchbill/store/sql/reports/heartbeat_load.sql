-- Returns how many jobs of each tenant run, and how many heartbeats a minute these would need if
-- each job sent its own: running * 60 / heartbeat_interval. Without an interval, uses that of each
-- job's node, a third of its lease. The row whose tenant is NULL is the sum of all tenants. Jobs of
-- nodes that have sent no beat for five minutes do not count. In fact a node sends one beat for all
-- its jobs; nodes_per_minute is the number of these.
CREATE OR REPLACE FUNCTION heartbeat_load(
  heartbeat_interval interval DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (tenant text, running bigint, expected_per_minute numeric, nodes_per_minute numeric)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  t timestamptz := _clock(now);
BEGIN
  IF heartbeat_interval <= interval '0' THEN
    RAISE EXCEPTION 'heartbeat_interval % is invalid', heartbeat_interval
      USING ERRCODE = 'WB003', HINT = 'give the time between two heartbeats, such as 30 s';
  END IF;
  RETURN QUERY
    WITH job AS MATERIALIZED (
      SELECT
        j.tenant,
        n.epoch,
        60 / extract(epoch FROM coalesce(heartbeat_interval, n.lease / 3)) AS beats,
        180 / extract(epoch FROM n.lease) AS node_beats
      FROM claims c
      JOIN nodes n ON n.epoch = c.epoch
      JOIN beats b ON b.epoch = c.epoch AND b.at > t - interval '5 minutes'
      CROSS JOIN LATERAL unnest(c.job_ids) i(id)
      JOIN jobs j ON j.id = i.id AND j.fence = c.fence)
    SELECT
      x.tenant, x.running, round(x.beats, 2),
      round(
        (
          SELECT coalesce(sum(y.node_beats), 0)
          FROM (
            SELECT DISTINCT z.epoch, z.node_beats
            FROM job z
            WHERE x.is_total = 1 OR z.tenant = x.tenant) y),
        2)
    FROM (
      SELECT
        j.tenant, count(*) AS running, coalesce(sum(j.beats), 0) AS beats,
        GROUPING(j.tenant) AS is_total
      FROM job j
      GROUP BY GROUPING SETS ((j.tenant), ())) x
    ORDER BY x.is_total, x.beats DESC, x.tenant;
END $$;
