-- Says whether a schedule fires at exactly this instant.
CREATE OR REPLACE FUNCTION cron_matches(cron cron, at timestamptz)
RETURNS boolean
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE
  t bigint := _cron_to_seconds(at);
  bounds bigint[];
BEGIN
  IF to_timestamp(t) <> at THEN RETURN false; END IF;
  IF t NOT BETWEEN -62135510400 AND 253402214399 THEN
    bounds := _cron_find_time_bounds(cron);
    IF t NOT BETWEEN bounds[1] AND bounds[2] THEN RETURN false; END IF;
  END IF;
  RETURN _cron_find_prev_of_all_parts(cron, t + 1) IS NOT DISTINCT FROM t;
END $$;
