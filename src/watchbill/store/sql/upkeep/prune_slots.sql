-- Drops the slots of months that ended longer ago than `keep`, unless a job of the month has not
-- ended. Adds the dropped slots to pruned_slot_counts. Locks slots IN ACCESS EXCLUSIVE MODE.
CREATE OR REPLACE FUNCTION prune_slots(
  keep interval DEFAULT '90 days',
  now timestamptz DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '2s'
AS $$
DECLARE
  -- The first month whose slots are kept.
  first_month timestamp := date_trunc('month', (_clock(now) - keep) AT TIME ZONE 'UTC');
  add_counts text := $q$
    INSERT INTO pruned_slot_counts AS y (
      schedule_id, failures, unsuccessful, skips, missed, failed_attempts)
    SELECT
      schedule_id,
      count(*) FILTER (WHERE outcome IN ('failed', 'timed_out', 'lost')),
      count(*) FILTER (WHERE job_id IS NOT NULL AND outcome <> 'succeeded'),
      count(*) FILTER (WHERE outcome = 'skipped'),
      coalesce(sum(count) FILTER (WHERE outcome = 'missed'), 0),
      coalesce(sum(failed_attempts), 0)
    FROM %I pruned
    WHERE (outcome <> 'succeeded' OR failed_attempts > 0)
      AND schedule_id IN (SELECT id FROM schedules)
    GROUP BY 1
    ON CONFLICT (schedule_id) DO UPDATE
    SET failures = y.failures + EXCLUDED.failures,
      unsuccessful = y.unsuccessful + EXCLUDED.unsuccessful,
      skips = y.skips + EXCLUDED.skips,
      missed = y.missed + EXCLUDED.missed,
      failed_attempts = y.failed_attempts + EXCLUDED.failed_attempts$q$;
  has_open_jobs text :=
    'SELECT EXISTS (SELECT FROM %I WHERE outcome IS NULL AND job_id IS NOT NULL)';
  name text;
  open boolean;
  dropped int := 0;
BEGIN
  PERFORM _check_shared_change('prune_slots');
  PERFORM _take_lock(_lock_class_partitions(), 'slots'::regclass::oid::int);
  EXECUTE 'WITH pruned AS (
      DELETE FROM slots_default
      WHERE coalesce(until, slot) < $1
        AND (outcome IS NOT NULL OR job_id IS NULL)
      RETURNING *) '
      || format(add_counts, 'pruned')
    USING first_month AT TIME ZONE 'UTC';
  FOR name IN
    SELECT c.relname
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'slots'::regclass
      AND c.relname ~ '^slots_[0-9]{6}$'
      AND c.relname COLLATE "C" < to_char(first_month, '"slots_"YYYYMM') COLLATE "C"
    ORDER BY 1
  LOOP
    EXECUTE format(has_open_jobs, name) INTO open;
    CONTINUE WHEN open;
    BEGIN
      -- Locks slots before the partition, as every writer does. The other order could cause a
      -- deadlock.
      LOCK TABLE ONLY slots IN ACCESS EXCLUSIVE MODE;
    -- The lock is held by another session. The next call tries again.
    EXCEPTION WHEN lock_not_available THEN RETURN dropped;
    END;
    EXECUTE format(has_open_jobs, name) INTO open;
    CONTINUE WHEN open;
    EXECUTE format(add_counts, name);
    EXECUTE format('DROP TABLE %I', name);
    dropped := dropped + 1;
  END LOOP;
  RETURN dropped;
END $$;
