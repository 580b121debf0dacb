-- Records the attempts that have failed since the last step, and the jobs that have died, in their
-- groups. A step reads at most 30 seconds of history. After a longer time without nodes it begins
-- ten minutes ago.
-- Leaves out what a transaction commits more than a second after its end, so these counts are close
-- and not exact. Returns the seconds until the next step.
CREATE OR REPLACE FUNCTION _record_failures(t timestamptz)
RETURNS float8
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  since timestamptz := (
    SELECT greatest(coalesce(m.until, t - interval '10 seconds'), t - interval '10 minutes')
    FROM chore_marks m
    WHERE m.chore = 'failures');
  until timestamptz := least(t - interval '1 second', since + interval '30 seconds');
BEGIN
  WITH ends AS (
      SELECT a.failure, a.tenant, a.type, a.error, a.job_id, a.ended_at AS at, 1 AS tries, 0 AS dead
      FROM attempts a
      WHERE a.ended_at > since
        AND a.ended_at <= until
        AND a.failure IS NOT NULL
      UNION ALL
      SELECT f.failure, f.tenant, f.type, f.error, f.id, f.finished_at, 0, 1
      FROM finished_jobs f
      WHERE f.state = 'dead'
        AND f.finished_at > since
        AND f.finished_at <= until
        AND f.failure IS NOT NULL)
  INSERT INTO failure_groups AS g (
    failure, tenant, type, exception, message, example, first, last, attempts, dead)
  SELECT
    x.failure, x.tenant, x.type, x.error->>'type', left(coalesce(x.error->>'message', ''), 500),
    x.example, x.first, x.last, x.tries, x.dead
  FROM (
    SELECT
      e.failure, e.tenant, min(e.type) AS type,
      (array_agg(e.error ORDER BY e.at DESC))[1] AS error,
      (array_agg(e.job_id ORDER BY e.at DESC))[1] AS example,
      min(e.at) AS first, max(e.at) AS last, sum(e.tries) AS tries, sum(e.dead) AS dead
    FROM ends e
    GROUP BY 1, 2) x
  ON CONFLICT (failure, tenant) DO UPDATE
  SET message = EXCLUDED.message,
    example = EXCLUDED.example,
    last = EXCLUDED.last,
    attempts = g.attempts + EXCLUDED.attempts,
    dead = g.dead + EXCLUDED.dead;
  UPDATE chore_marks m SET until = until WHERE m.chore = 'failures';
  RETURN CASE WHEN until < t - interval '1 second' THEN 0 ELSE _figures_pause() END;
END $$;
