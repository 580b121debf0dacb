-- Lists the routes, with how their last delivery ended and how many wait. Who acts for one tenant
-- sees none.
CREATE OR REPLACE FUNCTION alert_route_list(name text DEFAULT NULL)
RETURNS TABLE (
  name text,
  kind text,
  target text,
  secret text,
  matcher jsonb,
  is_enabled boolean,
  waiting bigint,
  last_state text,
  last_at timestamptz,
  last_error text,
  changed_by text,
  changed_at timestamptz
)
LANGUAGE sql STABLE AS $$
  SELECT
    r.name, r.kind, r.target, r.secret, r.matcher, r.is_enabled,
    (SELECT count(*) FROM alert_deliveries d WHERE d.route = r.name AND d.ended_at IS NULL),
    l.state, l.ended_at, l.error, r.changed_by, r.changed_at
  FROM alert_routes r
  LEFT JOIN LATERAL (
    SELECT d.state, d.ended_at, d.error
    FROM alert_deliveries d
    WHERE d.route = r.name
      AND d.ended_at IS NOT NULL
    ORDER BY d.created_at DESC
    LIMIT 1) l ON true
  WHERE (alert_route_list.name IS NULL OR r.name = alert_route_list.name)
    AND _acts_for_all_tenants()
  ORDER BY r.name
$$;
