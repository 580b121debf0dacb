-- History grows by the day. Partitions are made ahead with CREATE + ATTACH, which does not lock the parent against settles, and dropped by retention.
-- A day of which the default partition has rows already stays there: moving them would stop every settle meanwhile.
-- ATTACH locks the default partition against readers. Who makes all at once holds one of these locks while it waits for the next, and a reader of both
-- may be the victim of the deadlock; so where others work, each parent is a call and a transaction of its own.
CREATE OR REPLACE FUNCTION make_partitions(days int DEFAULT 7, now timestamptz DEFAULT NULL, parents text[] DEFAULT '{finished_succeeded,finished_otherwise,attempts}') RETURNS int
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET lock_timeout = '2s' AS $$
DECLARE
  today date := (coalesce(make_partitions.now, clock()) AT TIME ZONE 'UTC')::date;
  bounds text := 'YYYY-MM-DD 00:00:00+00';               -- read alike under every TimeZone and DateStyle
  parent text;
  day date;
  name text;
  made int := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(1181707370, 'jobs'::regclass::oid::int);   -- two makers at once would collide on the names
  FOREACH parent IN ARRAY make_partitions.parents LOOP
    FOR day IN SELECT today + n FROM generate_series(0, make_partitions.days) n LOOP
      name := parent || to_char(day, '_YYYYMMDD');
      CONTINUE WHEN to_regclass(quote_ident(name)) IS NOT NULL;
      BEGIN
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)', name, parent);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, name, to_char(day, bounds), to_char(day + 1, bounds));
        made := made + 1;
      EXCEPTION WHEN check_violation THEN NULL;
      END;
    END LOOP;
  END LOOP;
  RETURN made;
END $$;

-- The first install makes the first ones; later each node does, and what re-applies this file waits for no reader of the history.
SELECT make_partitions() WHERE NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = 'attempts'::regclass OFFSET 1);
