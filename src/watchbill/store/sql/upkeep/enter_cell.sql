-- The steps of a move in the new cell: leave_cell.sql has all of them.

-- Refuses enqueues of a tenant that is on its way here, until it has arrived. Returns false if it
-- has arrived already. Locks quotas as set_tenant() does.
CREATE OR REPLACE FUNCTION _expect_tenant(
  tenant text, cell text, move uuid, now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  m tenant_moves;
BEGIN
  PERFORM _check_isolation('_expect_tenant');
  PERFORM _check_sees_all_tenants(tenant);
  PERFORM _lock_quotas();
  SELECT * INTO m FROM tenant_moves x WHERE x.tenant = tenant FOR UPDATE;
  IF m.move = move THEN RETURN m.state = 'arriving'; END IF;
  IF m.state IN ('leaving', 'departed', 'arriving') THEN
    RAISE EXCEPTION 'tenant % cannot come here: it is % (cell %)',
      quote_literal(tenant), m.state, m.cell
      USING ERRCODE = 'WB008', HINT = 'end that move first';
  END IF;
  DELETE FROM tenant_moves x WHERE x.tenant = tenant;
  INSERT INTO tenant_moves (tenant, move, state, cell, started_at)
  VALUES (tenant, move, 'arriving', cell, _clock(now));
  PERFORM _write_quota_filter();
  RETURN true;
END $$;

-- Stores rows of a move, as _read_moved_rows() returns them.
CREATE OR REPLACE FUNCTION _receive_rows(tenant text, move uuid, rows jsonb)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
  PERFORM _check_sees_all_tenants(_receive_rows.tenant);
  INSERT INTO moved_rows (move, n, tenant, what, content)
  SELECT m.move, x.n, m.tenant, x.what, x.content
  FROM jsonb_to_recordset(_receive_rows.rows) x(n bigint, what text, content jsonb)
  JOIN tenant_moves m ON m.tenant = _receive_rows.tenant AND m.move = _receive_rows.move
  WHERE m.state = 'arriving'
  ON CONFLICT DO NOTHING;
END $$;

-- Moves the received rows to their tables. Jobs keep their ids and get a new `seq` in their old
-- order, before the tenant may enqueue here. Locks quotas as set_tenant() does.
CREATE OR REPLACE FUNCTION _arrive_tenant(
  tenant text, move uuid, count bigint, now timestamptz DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  m tenant_moves;
  quotas jsonb;
BEGIN
  PERFORM _check_isolation('_arrive_tenant');
  PERFORM _check_sees_all_tenants(tenant);
  PERFORM _lock_quotas();
  SELECT * INTO m FROM tenant_moves x WHERE x.tenant = tenant AND x.move = move FOR UPDATE;
  IF m.state IS DISTINCT FROM 'arriving' THEN RETURN; END IF;
  IF (SELECT count(*) FROM moved_rows x WHERE x.move = move) <> count THEN
    RAISE EXCEPTION 'of the % rows of tenant %, some have not been received',
      count, quote_literal(tenant)
      USING ERRCODE = 'WB008';
  END IF;
  UPDATE tenant_moves x SET state = 'arrived' WHERE x.tenant = tenant;
  quotas := (
    SELECT jsonb_build_object(
      'running', x.content->'running', 'unfinished', x.content->'max_unfinished',
      'payload_bytes', x.content->'max_payload_bytes', 'per_minute', x.content->'max_per_minute',
      'heartbeats', x.content->'heartbeat_budget')
    FROM moved_rows x
    WHERE x.move = move
      AND x.what = 'tenants');
  IF quotas IS NOT NULL THEN PERFORM set_tenant(tenant, quotas, now); END IF;
  PERFORM _store_moved_endpoints(m);
  PERFORM _store_moved_schedules(m);
  PERFORM _store_moved_jobs(m, quotas->'running' <> 'null');
  PERFORM _store_moved_rows_of_jobs(m, t);
  PERFORM _wake_for_moved_jobs(m, t);
  DELETE FROM moved_rows x WHERE x.move = move;
  PERFORM _write_quota_filter();
  PERFORM _audit(
    'move_tenant', 'tenant ' || tenant, tenant,
    jsonb_build_object('from', m.cell, 'move', move), t);
END $$;

CREATE OR REPLACE FUNCTION _store_moved_endpoints(m tenant_moves)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO limits
  SELECT l.*
  FROM moved_rows x
  CROSS JOIN LATERAL jsonb_populate_record(NULL::limits, x.content->'limit') l
  WHERE x.move = m.move
    AND x.what = 'connector_endpoints'
    AND l.name IS NOT NULL
  ON CONFLICT DO NOTHING;
  INSERT INTO connector_endpoints
  SELECT e.*
  FROM moved_rows x
  CROSS JOIN LATERAL jsonb_populate_record(NULL::connector_endpoints, x.content) e
  WHERE x.move = m.move
    AND x.what = 'connector_endpoints'
  ON CONFLICT DO NOTHING;
END $$;

-- A schedule goes on with the slot that was next in the old cell, so none is lost and none fires
-- twice. Schedules of these names that a node has declared here meanwhile are replaced.
CREATE OR REPLACE FUNCTION _store_moved_schedules(m tenant_moves)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  DELETE FROM schedules s WHERE s.tenant = m.tenant;
  INSERT INTO schedules
  SELECT s.*
  FROM moved_rows x
  CROSS JOIN LATERAL jsonb_populate_record(
    NULL::schedules,
    x.content || jsonb_build_object(
      'id', nextval('schedule_seq'), 'pattern_id', NULL, 'policy', 1)) s
  WHERE x.move = m.move
    AND x.what = 'schedules';
  UPDATE timers r
  SET next_run = coalesce(old.next_run, old.held_slot),
    held_slot = NULL,
    last_slot = old.last_slot,
    last_run = old.last_run,
    slot_runs = old.slot_runs,
    runs = old.runs
  FROM moved_rows x
  JOIN schedules s ON s.tenant = x.tenant AND s.name = x.content->>'name'
  CROSS JOIN LATERAL jsonb_populate_record(NULL::timers, x.content->'timer') old
  WHERE x.move = m.move
    AND x.what = 'schedules'
    AND r.schedule_id = s.id;
  INSERT INTO slots
  SELECT o.*
  FROM moved_rows x
  JOIN schedules s ON s.tenant = x.tenant AND s.name = x.content->>'schedule'
  CROSS JOIN LATERAL jsonb_populate_record(
    NULL::slots, x.content || jsonb_build_object('schedule_id', s.id)) o
  WHERE x.move = m.move
    AND x.what = 'slots'
  ON CONFLICT DO NOTHING;
END $$;

-- What a job waited for in the old cell, such as a place of a limit, does not count here: a claim
-- decides again.
CREATE OR REPLACE FUNCTION _store_moved_jobs(m tenant_moves, limits_running boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO jobs
  SELECT j.*
  FROM (
    SELECT x.content, nextval('job_seq') AS seq
    FROM (
      SELECT y.content
      FROM moved_rows y
      WHERE y.move = m.move
        AND y.what = 'jobs'
      ORDER BY y.n) x) x
  CROSS JOIN LATERAL jsonb_populate_record(NULL::jobs, x.content) old
  CROSS JOIN LATERAL jsonb_populate_record(
    old,
    jsonb_build_object(
      'seq', x.seq,
      'policy', _policy_id(nullif(x.content->'retry', 'null')),
      'lane', _find_moved_lane(old, nullif(x.content->'labels', 'null')),
      'limit_keys', _find_moved_keys(old, limits_running),
      'schedule_id', (
        SELECT s.id
        FROM schedules s
        WHERE s.tenant = m.tenant
          AND s.name = x.content->>'schedule'),
      'wait', nullif(old.wait, CASE
        WHEN old.wait IN ('parked', 'paused', 'unsupported') THEN old.wait
      END),
      'wait_key', CASE WHEN old.wait_key = 'steps' THEN 'steps' END)) j;
END $$;

CREATE OR REPLACE FUNCTION _find_moved_keys(j jobs, limits_running boolean)
RETURNS text[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
  keys text[] := array_remove(j.limit_keys, _tenant_key(j.tenant));
BEGIN
  IF limits_running THEN RETURN _add_tenant_key(keys, j.tenant); END IF;
  RETURN CASE WHEN cardinality(keys) > 0 THEN keys END;
END $$;

CREATE OR REPLACE FUNCTION _find_moved_lane(j jobs, labels jsonb)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  q queues;
BEGIN
  IF labels IS NOT NULL THEN RETURN _make_label_lane(labels); END IF;
  SELECT * INTO q FROM queues x WHERE x.name = j.queue;
  RETURN CASE
    WHEN q.lanes = 'share' THEN _find_slot_lane(j.queue, j.payload, j.tenant, j.type)
    WHEN q.lanes = 'route' AND j.route_key IS NOT NULL THEN _route_lane(q.token_group, j.route_key)
    ELSE 0
  END;
END $$;

-- A key of a job that has ended is kept for 30 days, because its history stays in the old cell.
CREATE OR REPLACE FUNCTION _store_moved_rows_of_jobs(m tenant_moves, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO dependencies
  SELECT r.*
  FROM moved_rows x
  CROSS JOIN LATERAL jsonb_populate_record(NULL::dependencies, x.content) r
  WHERE x.move = m.move
    AND x.what = 'dependencies';
  INSERT INTO steps
  SELECT r.*
  FROM moved_rows x
  CROSS JOIN LATERAL jsonb_populate_record(NULL::steps, x.content) r
  WHERE x.move = m.move
    AND x.what = 'steps';
  INSERT INTO step_waits
  SELECT r.*
  FROM moved_rows x
  CROSS JOIN LATERAL jsonb_populate_record(NULL::step_waits, x.content) r
  WHERE x.move = m.move
    AND x.what = 'step_waits';
  INSERT INTO signals
  SELECT r.*
  FROM moved_rows x
  CROSS JOIN LATERAL jsonb_populate_record(NULL::signals, x.content) r
  WHERE x.move = m.move
    AND x.what = 'signals';
  INSERT INTO idempotency
  SELECT r.*
  FROM moved_rows x
  CROSS JOIN LATERAL jsonb_populate_record(NULL::idempotency, x.content) old
  CROSS JOIN LATERAL jsonb_populate_record(
    old,
    CASE
      WHEN old.expires_at IS NULL AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = old.job_id) THEN
        jsonb_build_object('expires_at', t + interval '30 days')
      ELSE '{}'
    END) r
  WHERE x.move = m.move
    AND x.what = 'idempotency'
  ON CONFLICT DO NOTHING;
  INSERT INTO uniques
  SELECT r.*
  FROM moved_rows x
  CROSS JOIN LATERAL jsonb_populate_record(NULL::uniques, x.content) r
  WHERE x.move = m.move
    AND x.what = 'uniques'
  ON CONFLICT DO NOTHING;
  PERFORM _make_limit_states(ARRAY(
    SELECT DISTINCT x.content->>'key'
    FROM moved_rows x
    WHERE x.move = m.move
      AND x.what = 'holds'));
  INSERT INTO holds
  SELECT r.*
  FROM moved_rows x
  CROSS JOIN LATERAL jsonb_populate_record(NULL::holds, x.content) r
  WHERE x.move = m.move
    AND x.what = 'holds'
  ON CONFLICT DO NOTHING;
END $$;

-- Wakes workers and promoters for the jobs, and has unblock() look at those that wait for others:
-- the last one may have ended while they were on their way.
CREATE OR REPLACE FUNCTION _wake_for_moved_jobs(m tenant_moves, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO dependency_checks (id, what, failed, at)
  SELECT j.id, 'child', true, t
  FROM moved_rows x
  JOIN jobs j ON j.id = (x.content->>'id')::uuid
  WHERE x.move = m.move
    AND x.what = 'jobs'
    AND (j.wait = 'blocked' OR EXISTS (
      SELECT FROM step_waits w WHERE w.job_id = j.id AND w.tenant = j.tenant));
  PERFORM _wake_workers(q.queue)
  FROM (
    SELECT DISTINCT x.content->>'queue' AS queue
    FROM moved_rows x
    WHERE x.move = m.move
      AND x.what = 'jobs') q;
  PERFORM _wake_promoters(min((x.content->>'run_at')::timestamptz), t)
  FROM moved_rows x
  WHERE x.move = m.move
    AND x.what = 'jobs'
  HAVING count(*) > 0;
END $$;

-- Forgets a move in the new cell, once the old one knows that the tenant has arrived.
CREATE OR REPLACE FUNCTION _end_arrival(tenant text, move uuid)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  PERFORM _check_sees_all_tenants(tenant);
  PERFORM _lock_quotas();
  DELETE FROM tenant_moves x WHERE x.tenant = tenant AND x.move = move AND x.state = 'arrived';
  PERFORM _write_quota_filter();
END $$;

-- The moves of tenants from or to this cell that have not ended, and where tenants have moved.
CREATE OR REPLACE FUNCTION _list_tenant_moves(of_tenant text DEFAULT NULL)
RETURNS TABLE (tenant text, state text, cell text, started_at timestamptz)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  PERFORM _check_sees_all_tenants(of_tenant);
  RETURN QUERY
    SELECT m.tenant, m.state, m.cell, m.started_at
    FROM tenant_moves m
    WHERE of_tenant IS NULL
      OR m.tenant = of_tenant
    ORDER BY m.tenant;
END $$;
