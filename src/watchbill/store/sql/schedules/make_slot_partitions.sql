-- Makes the partitions of slots for this month and the next months. Takes an advisory lock, because
-- two concurrent calls would choose the same names.
CREATE OR REPLACE FUNCTION _make_slot_partitions(months int DEFAULT 2, now timestamptz DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '2s'
AS $$
DECLARE
  this date := date_trunc('month', _clock(now) AT TIME ZONE 'UTC')::date;
  -- This format gives the same bounds whatever TimeZone and DateStyle are.
  bounds text := 'YYYY-MM-DD 00:00:00+00';
  month date;
  name text;
  made int := 0;
BEGIN
  PERFORM _check_shared_change('_make_slot_partitions');
  PERFORM _take_lock(_lock_class_partitions(), 'slots'::regclass::oid::int);
  FOR month IN
    SELECT (this + make_interval(months => n))::date
    FROM generate_series(0, months) n
  LOOP
    name := 'slots' || to_char(month, '_YYYYMM');
    CONTINUE WHEN to_regclass(quote_ident(name)) IS NOT NULL;
    BEGIN
      EXECUTE format(
        'CREATE TABLE %I (LIKE slots INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)',
        name);
      PERFORM _protect_partition('slots', quote_ident(name)::regclass);
      EXECUTE format(
        'ALTER TABLE slots ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
        name,
        to_char(month, bounds),
        to_char((month + interval '1 month')::date, bounds));
      made := made + 1;
    -- The default partition already has rows of this month, so the month gets no partition.
    EXCEPTION WHEN check_violation THEN NULL;
    END;
  END LOOP;
  RETURN made;
END $$;

-- Makes partitions only in a new installation. Later the nodes make them, so that an upgrade does
-- not wait for readers of the history.
SELECT _make_slot_partitions()
WHERE NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = 'slots'::regclass OFFSET 1);
