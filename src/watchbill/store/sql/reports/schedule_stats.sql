-- Counts schedules. `late` counts those that are due for longer than a minute, perhaps because no
-- scheduler runs. `overdue` counts slots whose deadline has passed. Counts `schedules` and `due` up
-- to `cap`; `capped` is true if there are more.
CREATE OR REPLACE FUNCTION schedule_stats(
  cap int DEFAULT 100000,
  now timestamptz DEFAULT NULL,
  OUT schedules bigint,
  OUT due bigint,
  OUT late bigint,
  OUT orphaned bigint,
  OUT overdue bigint,
  OUT next_run timestamptz,
  OUT capped boolean
)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  t timestamptz := _clock(now);
BEGIN
  schedules := (
    SELECT count(*) FROM (SELECT FROM schedules LIMIT cap + 1) x);
  SELECT count(*), count(*) FILTER (WHERE x.next_run < t - interval '1 minute')
  INTO due, late
  FROM (
    SELECT y.next_run
    FROM timers y
    WHERE y.next_run <= t
    ORDER BY y.next_run
    LIMIT cap + 1) x;
  orphaned := cardinality(_find_orphans(ARRAY(
    SELECT s.id FROM schedules s WHERE s.owner IS NOT NULL AND s.enabled)));
  overdue := (SELECT count(*) FROM overdue);
  next_run := (
    SELECT y.next_run FROM timers y WHERE y.next_run > t ORDER BY y.next_run LIMIT 1);
  capped := greatest(schedules, due) > cap;
END $$;
