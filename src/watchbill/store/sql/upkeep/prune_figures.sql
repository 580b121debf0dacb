-- Deletes old figures: samples of ten seconds after an hour, of minutes after two days; rollups of
-- minutes after two days, of ten minutes after a week. Hours are kept 90 days and then become days,
-- which are kept for ever. Groups of failures and samples of hours are kept 90 days. Deletes at
-- most 5,000 rows of a kind per step. Returns the seconds until the next step.
CREATE OR REPLACE FUNCTION _prune_figures(t timestamptz)
RETURNS float8
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  most int := 5000;
  counts int[] := '{}';
  number int;
BEGIN
  DELETE FROM samples
  WHERE ctid = ANY (ARRAY(
    SELECT s.ctid
    FROM (
      VALUES
        ('ten_seconds', t - interval '1 hour'),
        ('minute', t - interval '2 days'),
        ('hour', t - interval '90 days')) k(grain, oldest)
    JOIN samples s ON s.grain = k.grain AND s.at < k.oldest
    LIMIT most));
  GET DIAGNOSTICS number = ROW_COUNT;
  counts := counts || number;
  DELETE FROM rollups
  WHERE ctid = ANY (ARRAY(
    SELECT r.ctid
    FROM (
      VALUES
        ('minute', t - interval '2 days'),
        ('ten_minutes', t - interval '7 days')) k(grain, oldest)
    JOIN rollups r ON r.grain = k.grain AND r.at < k.oldest
    LIMIT most));
  GET DIAGNOSTICS number = ROW_COUNT;
  counts := counts || number;
  DELETE FROM failure_groups
  WHERE ctid = ANY (ARRAY(
    SELECT g.ctid FROM failure_groups g WHERE g.last < t - interval '90 days' LIMIT most));
  GET DIAGNOSTICS number = ROW_COUNT;
  counts := counts || number || _fold_hours_into_days(t - interval '90 days', most);
  RETURN CASE WHEN most = ANY (counts) THEN 0.01 ELSE 3600 END;
END $$;

-- Adds hours that began before `oldest` to their days, and deletes them. Returns how many.
CREATE OR REPLACE FUNCTION _fold_hours_into_days(oldest timestamptz, max int)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  folded int;
BEGIN
  WITH old AS (
      DELETE FROM rollups
      WHERE ctid = ANY (ARRAY(
        SELECT r.ctid FROM rollups r WHERE r.grain = 'hour' AND r.at < oldest LIMIT max))
      RETURNING *),
    kept AS (
      INSERT INTO rollups AS r (
        grain, dimension, at, name, tenant, succeeded, skipped, failed, timed_out, lost, snoozed,
        dead, canceled, run_seconds, wait_seconds, is_counted)
      SELECT
        'day', o.dimension, date_bin('1 day', o.at, _figures_origin()), o.name, o.tenant,
        sum(o.succeeded), sum(o.skipped), sum(o.failed), sum(o.timed_out), sum(o.lost),
        sum(o.snoozed), sum(o.dead), sum(o.canceled), sum(o.run_seconds), sum(o.wait_seconds),
        bool_and(o.is_counted)
      FROM old o
      GROUP BY 2, 3, 4, 5
      ON CONFLICT (grain, dimension, at, name) DO UPDATE
      SET succeeded = r.succeeded + EXCLUDED.succeeded,
        skipped = r.skipped + EXCLUDED.skipped,
        failed = r.failed + EXCLUDED.failed,
        timed_out = r.timed_out + EXCLUDED.timed_out,
        lost = r.lost + EXCLUDED.lost,
        snoozed = r.snoozed + EXCLUDED.snoozed,
        dead = r.dead + EXCLUDED.dead,
        canceled = r.canceled + EXCLUDED.canceled,
        run_seconds = r.run_seconds + EXCLUDED.run_seconds,
        wait_seconds = r.wait_seconds + EXCLUDED.wait_seconds,
        is_counted = r.is_counted AND EXCLUDED.is_counted)
  SELECT count(*) INTO folded FROM old;
  RETURN folded;
END $$;
