-- Returns the instants of a schedule from `start` up to, but not including, "end".
CREATE OR REPLACE FUNCTION cron_between(cron cron, start timestamptz, "end" timestamptz)
RETURNS SETOF timestamptz
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE
  t bigint := _cron_round_up_to_seconds(start);
  stop bigint := _cron_round_up_to_seconds("end");
  bounds bigint[] := _cron_find_time_bounds(cron);
BEGIN
  t := greatest(t, bounds[1]) - 1;
  LOOP
    t := _cron_find_next_of_any_part(cron, t);
    EXIT WHEN t IS NULL OR t >= stop OR t > bounds[2];
    RETURN NEXT to_timestamp(t);
  END LOOP;
END $$;
