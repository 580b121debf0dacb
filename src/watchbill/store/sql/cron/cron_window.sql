-- A window is the time from a trigger, an instant that a pattern names, to the instant to which the
-- E or S modifier of the pattern moves it.

-- Returns the next instant of a schedule with its trigger, {trigger, instant}: those of the part
-- that has the earliest instant.
CREATE OR REPLACE FUNCTION _cron_find_next_window(c bigint[], t bigint)
RETURNS bigint[]
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  span bigint[];
  best bigint[];
  at bigint;
BEGIN
  FOR b IN 0 .. _cron_last_part_offset(c) BY 27 LOOP
    IF _cron_part_modifier_index(c, b) = 0 THEN
      at := _cron_find_next_trigger(c, b, t);
      span := CASE WHEN at IS NOT NULL THEN ARRAY[at, at] END;
    ELSE
      span := _cron_find_next_modifier_result(c, b, t);
    END IF;
    IF best IS NULL OR span[2] < best[2] THEN best := span; END IF;
  END LOOP;
  RETURN best;
END $$;

-- Returns the next instant of a schedule ("end") and its trigger. The two differ only if the
-- pattern has a modifier. For a part that has only a modifier the trigger is `after`.
CREATE OR REPLACE FUNCTION cron_window(
  cron cron, after timestamptz, OUT trigger timestamptz, OUT "end" timestamptz
)
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE
  t bigint := _cron_to_seconds(after);
  bounds bigint[] := _cron_find_time_bounds(cron);
  span bigint[] := _cron_find_next_window(cron, greatest(t, bounds[1] - 1));
BEGIN
  IF span[2] <= bounds[2] THEN
    trigger := CASE
      WHEN span[1] <= t THEN after
      ELSE to_timestamp(least(span[1], bounds[2]))
    END;
    "end" := to_timestamp(span[2]);
  END IF;
END $$;

-- Returns the length of the next window. The function get_duration() of the schema jcron calls
-- this.
CREATE OR REPLACE FUNCTION _cron_measure_window(cron cron, after timestamptz)
RETURNS interval
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN (SELECT w."end" - w.trigger FROM cron_window(cron, after) w);
END $$;
