-- The history of slots grows by the month. What retention drops is counted first, so that a schedule's counts stay.

CREATE OR REPLACE FUNCTION make_slot_partitions(months int DEFAULT 2, now timestamptz DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET lock_timeout = '2s' AS $$
DECLARE
  this date := date_trunc('month', coalesce(make_slot_partitions.now, clock()) AT TIME ZONE 'UTC')::date;
  bounds text := 'YYYY-MM-DD 00:00:00+00';               -- read alike under every TimeZone and DateStyle
  month date;
  name text;
  made int := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(1181707370, 'slots'::regclass::oid::int);   -- two makers at once would collide on the names
  FOR month IN SELECT (this + make_interval(months => n))::date FROM generate_series(0, make_slot_partitions.months) n LOOP
    name := 'slots' || to_char(month, '_YYYYMM');
    CONTINUE WHEN to_regclass(quote_ident(name)) IS NOT NULL;
    BEGIN
      EXECUTE format('CREATE TABLE %I (LIKE slots INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)', name);
      EXECUTE format('ALTER TABLE slots ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name, to_char(month, bounds), to_char((month + interval '1 month')::date, bounds));
      made := made + 1;
    EXCEPTION WHEN check_violation THEN NULL;            -- the default partition has rows of it already
    END;
  END LOOP;
  RETURN made;
END $$;

-- Months that ended longer ago than this, unless a job of theirs has not ended. What is that old and has no month of its own is deleted.
CREATE OR REPLACE FUNCTION prune_slots(keep interval DEFAULT '90 days', now timestamptz DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET lock_timeout = '2s' AS $$
DECLARE
  first_month timestamp := date_trunc('month', (coalesce(prune_slots.now, clock()) - prune_slots.keep) AT TIME ZONE 'UTC');   -- that is kept
  tally text := $q$INSERT INTO tallies AS y (schedule_id, failures, unsuccessful, skips, missed)
      SELECT schedule_id, count(*) FILTER (WHERE outcome IN ('failed', 'timed_out', 'lost')), count(*) FILTER (WHERE job_id IS NOT NULL),
        count(*) FILTER (WHERE outcome = 'skipped'), coalesce(sum(count) FILTER (WHERE outcome = 'missed'), 0)
      FROM %I gone WHERE outcome <> 'succeeded' AND schedule_id IN (SELECT id FROM schedules) GROUP BY 1
      ON CONFLICT (schedule_id) DO UPDATE SET failures = y.failures + EXCLUDED.failures, unsuccessful = y.unsuccessful + EXCLUDED.unsuccessful,
        skips = y.skips + EXCLUDED.skips, missed = y.missed + EXCLUDED.missed$q$;
  name text;
  open boolean;
  dropped int := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(1181707370, 'slots'::regclass::oid::int);
  EXECUTE 'WITH gone AS (DELETE FROM slots_default WHERE coalesce(until, slot) < $1 AND (outcome IS NOT NULL OR job_id IS NULL) RETURNING *) ' || format(tally, 'gone')
    USING first_month AT TIME ZONE 'UTC';
  FOR name IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'slots'::regclass
      AND c.relname ~ '^slots_[0-9]{6}$' AND c.relname COLLATE "C" < to_char(first_month, '"slots_"YYYYMM') COLLATE "C" ORDER BY 1 LOOP
    EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE outcome IS NULL AND job_id IS NOT NULL)', name) INTO open;
    CONTINUE WHEN open;
    BEGIN
      LOCK TABLE ONLY slots IN ACCESS EXCLUSIVE MODE;    -- before the partition, as whoever writes has it, or we would wait for each other
    EXCEPTION WHEN lock_not_available THEN RETURN dropped;   -- there is a next time
    END;
    EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE outcome IS NULL AND job_id IS NOT NULL)', name) INTO open;
    CONTINUE WHEN open;
    EXECUTE format(tally, name);
    EXECUTE format('DROP TABLE %I', name);
    dropped := dropped + 1;
  END LOOP;
  RETURN dropped;
END $$;

-- As in 110_partitions.sql: the first install only.
SELECT make_slot_partitions() WHERE NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = 'slots'::regclass OFFSET 1);
