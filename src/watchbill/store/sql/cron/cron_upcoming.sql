-- Returns the next n instants of a schedule; fewer if the schedule has no more.
CREATE OR REPLACE FUNCTION cron_upcoming(cron cron, n int, after timestamptz)
RETURNS SETOF timestamptz
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE
  t bigint := _cron_to_seconds(after);
BEGIN
  FOR i IN 1 .. n LOOP
    t := _find_next_instant(cron, NULL, t, NULL);
    EXIT WHEN t IS NULL;
    RETURN NEXT to_timestamp(t);
  END LOOP;
END $$;
