-- Has a node send a test to a route. Returns the id of the delivery, whose end
-- alert_delivery_list() shows.
CREATE OR REPLACE FUNCTION test_alert_route(name text, now timestamptz DEFAULT NULL)
RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  delivery uuid;
BEGIN
  PERFORM _check_shared_change('test_alert_route');
  INSERT INTO alert_deliveries AS d (route, event, created_at, due_at)
  SELECT r.name, 'test', t, t
  FROM alert_routes r
  WHERE r.name = name
  RETURNING d.id INTO delivery;
  IF delivery IS NULL THEN
    RAISE EXCEPTION 'there is no route %', coalesce(quote_literal(name), 'NULL')
      USING ERRCODE = 'WB003', HINT = 'alert_route_list() shows the routes';
  END IF;
  RETURN delivery;
END $$;
