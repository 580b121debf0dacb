-- Removes a route. What it was still to deliver is given up. Returns whether there was one.
CREATE OR REPLACE FUNCTION remove_alert_route(name text, now timestamptz DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  PERFORM _check_shared_change('remove_alert_route');
  DELETE FROM alert_routes r WHERE r.name = name;
  IF NOT FOUND THEN RETURN false; END IF;
  UPDATE alert_deliveries d
  SET state = 'given_up', ended_at = t, error = 'the route was removed'
  WHERE d.route = name
    AND d.ended_at IS NULL;
  PERFORM _audit('remove_alert_route', 'route ' || name, NULL, NULL, t);
  RETURN true;
END $$;
