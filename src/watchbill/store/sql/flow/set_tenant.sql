-- Changes those quotas of a tenant that `quotas` names. The value NULL removes a quota. They are:
--   running         how many jobs run at once; this is the limit tenant:NAME
--   unfinished      how many jobs have not ended
--   payload_bytes   how many bytes the payloads of all unfinished jobs have together
--   per_minute      how many jobs are enqueued in a minute
--   heartbeats      how many heartbeats a minute; tenant_list() shows a tenant that needs more
-- A quota that is less than what the tenant uses stops no job. It refuses the next enqueue.
-- Returns whether something has changed. Locks quotas as _lock_quotas() does, then the limit and
-- the states of its key. It counts the jobs at once, so that the quota holds from now on.
CREATE OR REPLACE FUNCTION set_tenant(
  tenant text,
  quotas jsonb,
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  old_row tenants;
  new_row tenants;
  max_running int := (SELECT l.max FROM limits l WHERE l.name = _tenant_key(tenant));
  was_filtered boolean;
BEGIN
  PERFORM _check_isolation('set_tenant');
  PERFORM _check_tenant_quotas(tenant, quotas);
  PERFORM _lock_quotas();
  PERFORM _refuse_moved(tenant);
  SELECT * INTO old_row FROM tenants x WHERE x.tenant = tenant;
  was_filtered := FOUND;
  new_row := old_row;
  new_row.tenant := tenant;
  new_row.limits_running := coalesce(old_row.limits_running, false);
  new_row.may_lack_keys := coalesce(old_row.may_lack_keys, false);
  IF quotas ? 'unfinished' THEN new_row.max_unfinished := quotas->>'unfinished'; END IF;
  IF quotas ? 'payload_bytes' THEN new_row.max_payload_bytes := quotas->>'payload_bytes'; END IF;
  IF quotas ? 'per_minute' THEN new_row.max_per_minute := quotas->>'per_minute'; END IF;
  IF quotas ? 'heartbeats' THEN new_row.heartbeat_budget := quotas->>'heartbeats'; END IF;
  IF quotas ? 'running' THEN
    new_row.limits_running := jsonb_typeof(quotas->'running') = 'number';
  END IF;
  IF new_row.limits_running AND NOT coalesce(old_row.limits_running, false) THEN
    new_row.may_lack_keys := true;
    new_row.keyless_before := NULL;
  END IF;
  IF new_row IS NOT DISTINCT FROM old_row
      AND NOT (quotas ? 'running' AND max_running IS DISTINCT FROM (quotas->>'running')::int) THEN
    RETURN false;
  END IF;
  DELETE FROM tenants x WHERE x.tenant = tenant;
  IF new_row.limits_running OR num_nonnulls(
    new_row.max_unfinished, new_row.max_payload_bytes, new_row.max_per_minute,
    new_row.heartbeat_budget) > 0 THEN
    INSERT INTO tenants SELECT new_row.*;
  END IF;
  IF was_filtered IS DISTINCT FROM EXISTS (SELECT FROM tenants x WHERE x.tenant = tenant) THEN
    PERFORM _write_quota_filter();
  END IF;
  PERFORM _audit('set_tenant', 'tenant ' || tenant, tenant, quotas, t);
  IF new_row.limits_running AND quotas ? 'running' THEN
    PERFORM set_limit(_tenant_key(tenant), max => (quotas->>'running')::int, now => now);
  ELSIF old_row.limits_running AND NOT new_row.limits_running AND max_running IS NOT NULL THEN
    PERFORM clear_limit(_tenant_key(tenant), now);
  END IF;
  IF quotas ?| '{unfinished,payload_bytes}' THEN PERFORM _count_quota_usage(_clock()); END IF;
  RETURN true;
END $$;

-- Locks the quotas of all tenants for a change: the row of quota_refresh, because refresh_quotas()
-- locks it first too, then tenants IN SHARE ROW EXCLUSIVE MODE. So changes and counts come one
-- after the other, and each sees what the last one has committed. Enqueues do not wait for it.
CREATE OR REPLACE FUNCTION _lock_quotas()
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM FROM quota_refresh FOR UPDATE;
  LOCK TABLE tenants IN SHARE ROW EXCLUSIVE MODE;
END $$;

-- Raises if the quotas are invalid, or if the caller may not see all tenants.
CREATE OR REPLACE FUNCTION _check_tenant_quotas(tenant text, quotas jsonb)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  wrong record;
BEGIN
  PERFORM _check_sees_all_tenants(tenant);
  IF coalesce(tenant, '') = '' OR length(tenant) > 200 THEN
    RAISE EXCEPTION 'tenant % is invalid', quote_nullable(tenant)
      USING ERRCODE = 'WB003', HINT = 'give a text of 1 to 200 characters';
  ELSIF coalesce(jsonb_typeof(quotas), '') <> 'object' OR quotas = '{}' THEN
    RAISE EXCEPTION 'quotas are invalid: %', coalesce(quotas::text, 'NULL')
      USING ERRCODE = 'WB003', HINT = 'give a JSON object, such as {"running": 10}';
  END IF;
  SELECT * INTO wrong
  FROM jsonb_each(quotas) q
  WHERE q.key NOT IN ('running', 'unfinished', 'payload_bytes', 'per_minute', 'heartbeats')
    OR CASE jsonb_typeof(q.value)
      WHEN 'null' THEN false
      WHEN 'number' THEN
        q.value::numeric < 0
        OR q.value::numeric > CASE q.key WHEN 'running' THEN 1000000000 ELSE 1e15 END
        OR q.key <> 'heartbeats' AND q.value::numeric <> trunc(q.value::numeric)
      ELSE true
    END
  ORDER BY q.key
  LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'quota % is invalid: %', quote_literal(wrong.key), wrong.value
      USING ERRCODE = 'WB003',
        HINT = 'give running, unfinished, payload_bytes, per_minute or heartbeats, each with a '
          'number from 0 or null';
  END IF;
END $$;
