-- History grows by the day. Partitions are made ahead with CREATE + ATTACH, which does not lock the parent against settles, and dropped by retention.
CREATE OR REPLACE FUNCTION make_partitions(days int DEFAULT 7, now timestamptz DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET lock_timeout = '2s' AS $$
DECLARE
  today date := (coalesce(make_partitions.now, clock()) AT TIME ZONE 'UTC')::date;
  parent text;
  day date;
  name text;
  made int := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(1181707370, 'jobs'::regclass::oid::int);   -- two makers at once would collide on the names
  FOREACH parent IN ARRAY '{finished_succeeded,finished_otherwise,attempts}'::text[] LOOP
    FOR day IN SELECT d::date FROM generate_series(today, today + make_partitions.days, interval '1 day') d LOOP
      name := parent || to_char(day, '_YYYYMMDD');
      CONTINUE WHEN to_regclass(quote_ident(name)) IS NOT NULL;
      EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)', name, parent);
      EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, name,
        day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
      made := made + 1;
    END LOOP;
  END LOOP;
  RETURN made;
END $$;

SELECT make_partitions();
