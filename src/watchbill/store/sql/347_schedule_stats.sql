-- All schedules in a few numbers. Late: due for longer than a minute, so nobody fires it. Orphaned: its code declares it no more. Overdue: runs that should have ended.
-- `schedules` is counted up to `cap`, and what is due up to `cap` too; `capped` says that there are more.
CREATE OR REPLACE FUNCTION schedule_stats(cap int DEFAULT 100000, now timestamptz DEFAULT NULL,
  OUT schedules bigint, OUT due bigint, OUT late bigint, OUT orphaned bigint, OUT overdue bigint, OUT next_run timestamptz, OUT capped boolean)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET jit = off AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(schedule_stats.now, clock());
BEGIN
  schedules := (SELECT count(*) FROM (SELECT FROM schedules LIMIT schedule_stats.cap + 1) x);
  SELECT count(*), count(*) FILTER (WHERE x.next_run < t - interval '1 minute') INTO due, late
    FROM (SELECT y.next_run FROM timers y WHERE y.next_run <= t ORDER BY y.next_run LIMIT schedule_stats.cap + 1) x;
  orphaned := cardinality(orphans(ARRAY(SELECT s.id FROM schedules s WHERE s.owner IS NOT NULL AND s.enabled)));
  overdue := (SELECT count(*) FROM overdue);
  next_run := (SELECT y.next_run FROM timers y WHERE y.next_run > t ORDER BY y.next_run LIMIT 1);
  capped := greatest(schedules, due) > schedule_stats.cap;
END $$;
