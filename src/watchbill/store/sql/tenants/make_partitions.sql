-- after: current_tenant, protect_table
-- Makes the partitions of the history for the next days. CREATE and ATTACH do not lock the parent
-- against settle(). A day that has rows in the default partition gets no partition, because moving
-- the rows would block every settle(). ATTACH locks the default partition against readers. So while
-- jobs run, call this for one parent per transaction; with two parents it may deadlock with a query
-- that reads both.
CREATE OR REPLACE FUNCTION make_partitions(
  days int DEFAULT 7,
  now timestamptz DEFAULT NULL,
  parents text[] DEFAULT '{finished_succeeded,finished_otherwise,attempts,job_logs}'
)
RETURNS int
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '2s'
AS $$
DECLARE
  today date := (_clock(now) AT TIME ZONE 'UTC')::date;
  -- This format gives the same bounds whatever TimeZone and DateStyle are.
  bounds text := 'YYYY-MM-DD 00:00:00+00';
  parent text;
  day date;
  name text;
  made int := 0;
BEGIN
  PERFORM _check_shared_change('make_partitions');
  -- Takes a lock, because two concurrent calls would choose the same names.
  PERFORM _take_lock(_lock_class_partitions(), 'jobs'::regclass::oid::int);
  FOREACH parent IN ARRAY parents LOOP
    PERFORM _check_history_table(parent);
    FOR day IN SELECT today + n FROM generate_series(0, days) n LOOP
      name := parent || to_char(day, '_YYYYMMDD');
      CONTINUE WHEN to_regclass(quote_ident(name)) IS NOT NULL;
      BEGIN
        EXECUTE format(
          'CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)',
          name, parent);
        PERFORM _protect_partition(parent::regclass, quote_ident(name)::regclass);
        EXECUTE format(
          'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
          parent, name, to_char(day, bounds), to_char(day + 1, bounds));
        made := made + 1;
      EXCEPTION WHEN check_violation THEN NULL;
      END;
    END LOOP;
  END LOOP;
  RETURN made;
END $$;

CREATE OR REPLACE FUNCTION _check_history_table(parent text)
RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF parent IN ('finished_succeeded', 'finished_otherwise', 'attempts', 'job_logs') THEN
    RETURN;
  END IF;
  RAISE EXCEPTION 'parent % is invalid', coalesce(quote_literal(parent), 'NULL')
    USING ERRCODE = 'WB003',
      HINT = 'the parents are finished_succeeded, finished_otherwise, attempts, job_logs';
END $$;

-- Lists the partitions of days that ended before an instant.
CREATE OR REPLACE FUNCTION _list_expired_days(parent text, before timestamptz)
RETURNS TABLE (name text, partition regclass)
LANGUAGE sql STABLE AS $$
  SELECT c.relname, c.oid::regclass
  FROM pg_inherits i
  JOIN pg_class c ON c.oid = i.inhrelid
  WHERE i.inhparent = _list_expired_days.parent::regclass
    AND c.relname ~ ('^' || _list_expired_days.parent || '_[0-9]{8}$')
    AND c.relname COLLATE "C" < _list_expired_days.parent
      || to_char(_list_expired_days.before AT TIME ZONE 'UTC', '"_"YYYYMMDD') COLLATE "C"
$$;

-- Makes partitions only in a new installation. Later the nodes make them, so that an upgrade does
-- not wait for readers of the history.
SELECT make_partitions()
WHERE NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = 'attempts'::regclass OFFSET 1);
