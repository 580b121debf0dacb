CREATE OR REPLACE FUNCTION schedule_by_name(name text, tenant text DEFAULT _session_tenant())
RETURNS SETOF schedule
LANGUAGE sql STABLE AS $$
  SELECT *
  FROM schedule v
  WHERE v.name = schedule_by_name.name
    AND v.tenant = schedule_by_name.tenant
$$;
