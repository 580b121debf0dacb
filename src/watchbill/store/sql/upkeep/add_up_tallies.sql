-- Adds what nodes have reported to the figures of its minute, ten minutes and hour, and deletes it.
-- Leaves an hour alone that was counted from history. Returns the seconds until the next step.
CREATE OR REPLACE FUNCTION _add_up_tallies()
RETURNS float8
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  most int := 2000;
  added int;
BEGIN
  WITH d AS (
      DELETE FROM node_counts
      WHERE ctid = ANY (ARRAY(SELECT c.ctid FROM node_counts c LIMIT most))
      RETURNING *),
    kept AS (
      INSERT INTO rollups AS r (
        grain, dimension, at, name, tenant, succeeded, skipped, failed, timed_out, lost, snoozed,
        dead, canceled, run_seconds, wait_seconds)
      SELECT
        x.grain, x.dimension, date_bin(x.width, d.at, _figures_origin()), x.name,
        CASE WHEN x.dimension = 'tenant' THEN x.name END, sum(d.succeeded), sum(d.skipped),
        sum(d.failed), sum(d.timed_out), 0, sum(d.snoozed), sum(d.dead), sum(d.canceled),
        sum(d.run_seconds), sum(d.wait_seconds)
      FROM d
      CROSS JOIN LATERAL (
        VALUES
          ('minute', interval '1 minute', 'all', ''),
          ('minute', interval '1 minute', 'queue', d.queue),
          ('ten_minutes', interval '10 minutes', 'type', d.type),
          ('ten_minutes', interval '10 minutes', 'tenant', d.tenant),
          ('hour', interval '1 hour', 'all', ''),
          ('hour', interval '1 hour', 'queue', d.queue),
          ('hour', interval '1 hour', 'type', d.type),
          ('hour', interval '1 hour', 'tenant', d.tenant)) x(grain, width, dimension, name)
      GROUP BY 1, 2, 3, 4
      ON CONFLICT (grain, dimension, at, name) DO UPDATE
      SET succeeded = r.succeeded + EXCLUDED.succeeded,
        skipped = r.skipped + EXCLUDED.skipped,
        failed = r.failed + EXCLUDED.failed,
        timed_out = r.timed_out + EXCLUDED.timed_out,
        snoozed = r.snoozed + EXCLUDED.snoozed,
        dead = r.dead + EXCLUDED.dead,
        canceled = r.canceled + EXCLUDED.canceled,
        run_seconds = r.run_seconds + EXCLUDED.run_seconds,
        wait_seconds = r.wait_seconds + EXCLUDED.wait_seconds
      WHERE NOT r.is_counted)
  SELECT count(*) INTO added FROM d;
  RETURN CASE WHEN added = most THEN 0 ELSE 10 END;
END $$;
