-- A tenant moves to another cell in steps. Each is a transaction, and does nothing if it was done
-- before, so a move that was interrupted continues when it is called again. At every instant the
-- jobs are in one place: in the old cell, in moved_rows of the old one, or in the new one.
--   old cell  start_leaving     refuses enqueues, starts no job, stops schedules
--   new cell  expect_tenant     refuses enqueues there too, until the jobs have arrived
--   old cell  read_leaving      until nothing of the tenant runs
--   old cell  depart_tenant     moves its rows to moved_rows
--   new cell  receive_rows      copies moved_rows
--   new cell  arrive_tenant     moves them to the tables, and accepts enqueues
--   old cell  finish_leaving    says from now on where the tenant is

-- Begins the move of a tenant to another cell, and returns its id. Returns the id of a move that
-- was interrupted. Locks quotas as set_tenant() does, then the timers of the tenant.
CREATE OR REPLACE FUNCTION _start_leaving(
  tenant text,
  cell text,
  now timestamptz DEFAULT NULL,
  OUT move uuid,
  OUT state text
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  m tenant_moves;
  kept jsonb;
BEGIN
  PERFORM _check_isolation('_start_leaving');
  PERFORM _check_sees_all_tenants(tenant);
  PERFORM _lock_quotas();
  SELECT * INTO m FROM tenant_moves x WHERE x.tenant = tenant FOR UPDATE;
  IF m.state IN ('leaving', 'departed', 'moved') AND m.cell = cell THEN
    move := m.move;
    state := m.state;
    RETURN;
  ELSIF m.state <> 'arrived' THEN
    RAISE EXCEPTION 'tenant % cannot leave here: it is % (cell %)',
      quote_literal(tenant), m.state, m.cell
      USING ERRCODE = 'WB008', HINT = 'end that move first, or move it from the cell where it is';
  ELSIF coalesce(tenant, '') IN ('', 'default') THEN
    RAISE EXCEPTION 'tenant % cannot be moved', quote_nullable(tenant)
      USING ERRCODE = 'WB003', HINT = 'give the name of a tenant; the default one stays';
  ELSIF EXISTS (SELECT FROM erasures e WHERE e.tenant = tenant) THEN
    RAISE EXCEPTION 'tenant % is being erased', quote_literal(tenant) USING ERRCODE = 'WB008';
  ELSIF EXISTS (SELECT FROM jobs j WHERE j.tenant = tenant AND j.meta ? 'stored') THEN
    -- The sweeper of the old cell would delete the payload of a job that it does not have.
    RAISE EXCEPTION 'tenant % has jobs whose payloads are in the payload store',
      quote_literal(tenant)
      USING ERRCODE = 'WB008', HINT = 'move it when these jobs have ended';
  END IF;
  PERFORM
  FROM timers x
  JOIN schedules s ON s.id = x.schedule_id
  WHERE s.tenant = tenant
  FOR UPDATE OF x;
  kept := jsonb_build_object(
    'running', (
      SELECT l.max
      FROM tenants x
      JOIN limits l ON l.name = _tenant_key(tenant)
      WHERE x.tenant = tenant
        AND x.limits_running),
    'enabled', (SELECT jsonb_agg(s.name) FROM schedules s WHERE s.tenant = tenant AND s.enabled),
    'timers', (
      SELECT jsonb_object_agg(s.name, to_jsonb(x))
      FROM schedules s
      JOIN timers x ON x.schedule_id = s.id
      WHERE s.tenant = tenant));
  PERFORM set_tenant(tenant, '{"running": 0}', now);
  UPDATE schedules s SET enabled = false WHERE s.tenant = tenant AND s.enabled;
  move := gen_random_uuid();
  state := 'leaving';
  DELETE FROM tenant_moves x WHERE x.tenant = tenant;
  INSERT INTO tenant_moves (tenant, move, state, cell, started_at, kept)
  VALUES (tenant, move, state, cell, t, kept);
  PERFORM _write_quota_filter();
  PERFORM _audit(
    'move_tenant', 'tenant ' || tenant, tenant, jsonb_build_object('to', cell, 'move', move), t);
END $$;

-- Says what the move of a tenant waits for; NULL if its rows can be moved now. Its jobs get the
-- limit key of the tenant, of which none may run.
CREATE OR REPLACE FUNCTION _read_leaving(tenant text)
RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  m tenant_moves;
  running bigint;
BEGIN
  PERFORM _check_isolation('_read_leaving');
  PERFORM _check_sees_all_tenants(tenant);
  SELECT * INTO m FROM tenant_moves x WHERE x.tenant = tenant FOR UPDATE;
  IF m.state IS DISTINCT FROM 'leaving' THEN RETURN NULL; END IF;
  IF m.unnoticed_before IS NULL THEN
    UPDATE tenant_moves x
    SET unnoticed_before = pg_snapshot_xmax(pg_current_snapshot())
    WHERE x.tenant = tenant;
    RETURN 'transactions that were open when the move began';
  END IF;
  IF refresh_quotas(at_once => true) THEN RETURN 'the limit key of its jobs'; END IF;
  SELECT count(*) INTO running
  FROM claims c
  CROSS JOIN LATERAL unnest(c.job_ids) x(id)
  JOIN jobs j ON j.id = x.id AND j.fence = c.fence
  WHERE j.tenant = tenant;
  IF running > 0 THEN RETURN format('%s running jobs', running); END IF;
  IF pg_snapshot_xmin(pg_current_snapshot()) < m.unnoticed_before
      OR EXISTS (SELECT FROM tenants x WHERE x.tenant = tenant AND x.may_lack_keys) THEN
    RETURN 'transactions that were open when the move began';
  END IF;
  RETURN NULL;
END $$;

-- Moves the rows of a tenant to moved_rows. Locks the move, then the jobs of the tenant, waiting
-- for those that others have locked.
CREATE OR REPLACE FUNCTION _depart_tenant(tenant text, now timestamptz DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  m tenant_moves;
  ids uuid[];
BEGIN
  PERFORM _check_isolation('_depart_tenant');
  PERFORM _check_sees_all_tenants(tenant);
  PERFORM _lock_quotas();
  SELECT * INTO m FROM tenant_moves x WHERE x.tenant = tenant FOR UPDATE;
  IF m.state IS DISTINCT FROM 'leaving' THEN RETURN; END IF;
  PERFORM FROM schedules s WHERE s.tenant = tenant ORDER BY s.id FOR UPDATE;
  ids := ARRAY(SELECT j.id FROM jobs j WHERE j.tenant = tenant ORDER BY j.id FOR UPDATE);
  IF EXISTS (
    SELECT
    FROM jobs j
    WHERE j.tenant = tenant
      AND (j.fence <> 0 OR j.meta ? 'stored')) THEN
    RAISE EXCEPTION 'jobs of tenant % run, or have payloads in the payload store',
      quote_literal(tenant)
      USING ERRCODE = 'WB008', HINT = 'call this again when they have ended';
  END IF;
  INSERT INTO moved_rows (move, n, tenant, what, content)
  SELECT m.move, row_number() OVER (), tenant, x.what, x.content
  FROM _list_moved_rows(m, ids) x;
  DELETE FROM holds h WHERE h.job_id = ANY (ids);
  DELETE FROM signals x WHERE x.tenant = tenant AND x.job_id = ANY (ids);
  DELETE FROM step_waits x WHERE x.tenant = tenant AND x.job_id = ANY (ids);
  DELETE FROM steps x WHERE x.tenant = tenant AND x.job_id = ANY (ids);
  DELETE FROM dependency_checks x WHERE x.id = ANY (ids);
  DELETE FROM dependencies x WHERE x.tenant = tenant AND x.child = ANY (ids);
  DELETE FROM idempotency x WHERE x.tenant = tenant;
  DELETE FROM uniques x WHERE x.tenant = tenant;
  DELETE FROM slots x
  USING schedules s
  WHERE s.tenant = tenant
    AND x.schedule_id = s.id
    AND x.job_id = ANY (ids)
    AND x.finished_at IS NULL;
  DELETE FROM jobs j WHERE j.id = ANY (ids);
  DELETE FROM schedules s WHERE s.tenant = tenant;
  DELETE FROM limits l
  USING connector_endpoints x
  WHERE x.tenant = tenant
    AND l.name = _endpoint_limit(x.tenant, x.name);
  DELETE FROM connector_endpoints x WHERE x.tenant = tenant;
  DELETE FROM tenants x WHERE x.tenant = tenant;
  DELETE FROM quota_usage x WHERE x.tenant = tenant;
  DELETE FROM quota_changes x WHERE x.tenant = tenant;
  DELETE FROM tenant_scans x WHERE x.tenant = tenant;
  IF EXISTS (SELECT FROM limits l WHERE l.name = _tenant_key(tenant)) THEN
    PERFORM _clear_limit_at(_tenant_key(tenant), t);
  END IF;
  UPDATE tenant_moves x SET state = 'departed', kept = NULL WHERE x.tenant = tenant;
  PERFORM _write_quota_filter();
END $$;

-- Lists the rows that move, in the order in which the new cell stores them. What only means
-- something in this cell, such as the number of a policy, is replaced by what it stands for.
CREATE OR REPLACE FUNCTION _list_moved_rows(m tenant_moves, ids uuid[])
RETURNS TABLE (what text, content jsonb)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    SELECT
      'tenants', to_jsonb(x) || jsonb_build_object('running', m.kept->'running')
    FROM tenants x
    WHERE x.tenant = m.tenant;
  RETURN QUERY
    SELECT
      'connector_endpoints',
      to_jsonb(x) || jsonb_build_object('limit', to_jsonb(l))
    FROM connector_endpoints x
    LEFT JOIN limits l ON l.name = _endpoint_limit(x.tenant, x.name)
    WHERE x.tenant = m.tenant;
  RETURN QUERY
    SELECT
      'schedules',
      to_jsonb(s) || jsonb_build_object(
        'enabled', coalesce(m.kept->'enabled' ? s.name, false), 'timer', m.kept->'timers'->s.name)
    FROM schedules s
    WHERE s.tenant = m.tenant;
  RETURN QUERY
    SELECT
      'jobs',
      to_jsonb(j) || jsonb_build_object(
        'retry', (SELECT p.definition FROM policies p WHERE p.id = j.policy AND j.policy <> 1),
        'labels', (SELECT l.labels FROM label_sets l WHERE l.lane = j.lane AND j.lane < 0),
        'schedule', (SELECT s.name FROM schedules s WHERE s.id = j.schedule_id))
    FROM jobs j
    WHERE j.id = ANY (ids)
    ORDER BY j.seq;
  RETURN QUERY
    SELECT 'slots', to_jsonb(x) || jsonb_build_object('schedule', s.name)
    FROM schedules s
    JOIN slots x ON x.schedule_id = s.id
    WHERE s.tenant = m.tenant
      AND x.job_id = ANY (ids)
      AND x.finished_at IS NULL;
  -- The history stays here, so how a parent ended travels with its child.
  RETURN QUERY
    SELECT
      'dependencies',
      to_jsonb(d) || jsonb_build_object(
        'outcome', coalesce(d.outcome, _dependency_outcome(f.state, f.error)),
        'result', CASE WHEN d.arguments IS NOT NULL THEN coalesce(d.result, f.result) END)
    FROM dependencies d
    LEFT JOIN LATERAL (
      SELECT f.state, f.error, f.result
      FROM finished_jobs f
      WHERE f.id = d.parent
        AND f.tenant = d.tenant
        AND f.finished_at >= _history_start(d.parent)
      LIMIT 1) f ON true
    WHERE d.tenant = m.tenant
      AND d.child = ANY (ids);
  RETURN QUERY
    SELECT 'steps', to_jsonb(x)
    FROM steps x
    WHERE x.tenant = m.tenant
      AND x.job_id = ANY (ids);
  RETURN QUERY
    SELECT 'step_waits', to_jsonb(x)
    FROM step_waits x
    WHERE x.tenant = m.tenant
      AND x.job_id = ANY (ids);
  RETURN QUERY
    SELECT 'signals', to_jsonb(x)
    FROM signals x
    WHERE x.tenant = m.tenant
      AND x.job_id = ANY (ids);
  RETURN QUERY SELECT 'idempotency', to_jsonb(x) FROM idempotency x WHERE x.tenant = m.tenant;
  RETURN QUERY SELECT 'uniques', to_jsonb(x) FROM uniques x WHERE x.tenant = m.tenant;
  -- An ordered job that has failed keeps its key while it waits.
  RETURN QUERY
    SELECT 'holds', to_jsonb(h)
    FROM holds h
    JOIN jobs j ON j.id = h.job_id AND j.order_key = h.key
    WHERE h.job_id = ANY (ids);
END $$;

-- The rows of a move after the row `after`, as a JSON array.
CREATE OR REPLACE FUNCTION _read_moved_rows(tenant text, move uuid, after bigint, max int)
RETURNS TABLE (rows jsonb, last bigint)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  PERFORM _check_sees_all_tenants(tenant);
  RETURN QUERY
    SELECT jsonb_agg(to_jsonb(x) ORDER BY x.n), max(x.n)
    FROM (
      SELECT y.n, y.what, y.content
      FROM moved_rows y
      WHERE y.move = move
        AND y.tenant = tenant
        AND y.n > after
      ORDER BY y.n
      LIMIT max) x;
END $$;

-- Ends a move in the old cell, once the tenant has arrived in the new one.
CREATE OR REPLACE FUNCTION _finish_leaving(tenant text, move uuid)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  PERFORM _check_sees_all_tenants(tenant);
  DELETE FROM moved_rows x WHERE x.move = move AND x.tenant = tenant;
  UPDATE tenant_moves x
  SET state = 'moved'
  WHERE x.tenant = tenant
    AND x.move = move
    AND x.state = 'departed';
END $$;
