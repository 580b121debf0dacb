-- Lists deliveries, the newest first: of an alert, of a route, or one.
CREATE OR REPLACE FUNCTION alert_delivery_list(
  alert bigint DEFAULT NULL,
  route text DEFAULT NULL,
  id uuid DEFAULT NULL,
  max int DEFAULT 100
)
RETURNS TABLE (
  id uuid,
  alert bigint,
  route text,
  event text,
  state text,
  created_at timestamptz,
  due_at timestamptz,
  tries int,
  ended_at timestamptz,
  error text
)
LANGUAGE sql STABLE AS $$
  SELECT
    d.id, d.alert, d.route, d.event, d.state, d.created_at, d.due_at, d.tries, d.ended_at, d.error
  FROM alert_deliveries d
  WHERE (alert_delivery_list.alert IS NULL OR d.alert = alert_delivery_list.alert)
    AND (alert_delivery_list.route IS NULL OR d.route = alert_delivery_list.route)
    AND (alert_delivery_list.id IS NULL OR d.id = alert_delivery_list.id)
    AND _acts_for_all_tenants()
  ORDER BY d.created_at DESC, d.id
  LIMIT alert_delivery_list.max
$$;
