-- cron_window: the time from a trigger to the result of its E or S modifier.

-- The next instant of a schedule, with its trigger: {trigger, result} of the part that is first.
CREATE OR REPLACE FUNCTION _cron_first_with_trigger(c bigint[], t bigint)
RETURNS bigint[]
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  span bigint[];
  best bigint[];
  at bigint;
BEGIN
  FOR b IN 0 .. _cron_last_part(c) BY 27 LOOP
    IF _part_modifier(c, b) = 0 THEN
      at := _cron_next_trigger(c, b, t);
      span := CASE WHEN at IS NOT NULL THEN ARRAY[at, at] END;
    ELSE
      span := _cron_next_with_trigger(c, b, t);
    END IF;
    IF best IS NULL OR span[2] < best[2] THEN best := span; END IF;
  END LOOP;
  RETURN best;
END $$;

-- The next instant of a schedule ("end") and its trigger, which differ if there is a modifier. If a
-- part has only a modifier, the trigger is `after`.
CREATE OR REPLACE FUNCTION cron_window(
  cron cron, after timestamptz, OUT trigger timestamptz, OUT "end" timestamptz
)
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT AS $$
DECLARE
  t bigint := _cron_to_seconds(after);
  bounds bigint[] := _cron_bounds(cron);
  span bigint[] := _cron_first_with_trigger(cron, greatest(t, bounds[1] - 1));
BEGIN
  IF span[2] <= bounds[2] THEN
    trigger := CASE
      WHEN span[1] <= t THEN after
      ELSE to_timestamp(least(span[1], bounds[2]))
    END;
    "end" := to_timestamp(span[2]);
  END IF;
END $$;

-- The length of the next window, for get_duration of the schema jcron.
CREATE OR REPLACE FUNCTION _cron_window_length(cron cron, after timestamptz)
RETURNS interval
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT AS $$
BEGIN
  RETURN (SELECT w."end" - w.trigger FROM cron_window(cron, after) w);
END $$;
