-- Erases a tenant, a part with each call: call this again, each time in a transaction of its own,
-- until `is_done`. If the caller dies, the next call continues. The first call only marks the
-- tenant: from then on its enqueues are refused, and its schedules do not fire.
--
-- The next calls cancel the jobs of the tenant. A running job is asked to stop; with `force` it
-- ends at once, and the result of its handler is rejected. Then the calls delete the tenant's jobs,
-- attempts, schedules, slots, keys, audit rows and quotas. Roles stay bound to the tenant, because
-- otherwise they would see all tenants. `deleted` counts the rows or jobs of this call. `stored`
-- lists the keys of payloads in the payload store, which the caller should delete. `waiting` says
-- what the erasure waits for: call again in a second. Locks the row of erasures, in its first and
-- last call the quotas as set_tenant() does, the jobs (skips locked ones) and the rows that it
-- deletes.
CREATE OR REPLACE FUNCTION erase_tenant(
  tenant text,
  force boolean DEFAULT false,
  max int DEFAULT 5000,
  now timestamptz DEFAULT NULL,
  OUT step text,
  OUT deleted bigint,
  OUT waiting text,
  OUT stored text[],
  OUT is_done boolean
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  e erasures;
BEGIN
  PERFORM _check_isolation('erase_tenant');
  PERFORM _check_sees_all_tenants(tenant);
  deleted := 0;
  is_done := false;
  SELECT * INTO e FROM erasures x WHERE x.tenant = tenant FOR UPDATE;
  IF NOT FOUND THEN
    step := 'start';
    PERFORM _start_erasure(tenant, t);
    RETURN;
  END IF;
  step := e.step;
  IF e.unnoticed_before IS NULL THEN
    UPDATE erasures x
    SET unnoticed_before = pg_snapshot_xmax(pg_current_snapshot())
    WHERE x.tenant = e.tenant;
  ELSIF e.step = 'jobs' THEN
    SELECT * INTO deleted, waiting FROM _erase_jobs(e, force, max, t);
  ELSIF e.step = 'history' THEN
    SELECT * INTO deleted, stored FROM _erase_history(e, greatest(1, max / 5));
  ELSE
    deleted := _erase_schedules_and_keys(e.tenant, max);
    IF deleted = 0 THEN
      is_done := _end_erasure(e, t);
    END IF;
  END IF;
END $$;

-- Marks a tenant as being erased, which refuses its enqueues from now on, and stops its schedules.
CREATE OR REPLACE FUNCTION _start_erasure(tenant text, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  IF coalesce(tenant, '') = '' THEN
    RAISE EXCEPTION 'tenant % is invalid', quote_nullable(tenant)
      USING ERRCODE = 'WB003', HINT = 'give the name of a tenant';
  END IF;
  PERFORM _lock_quotas();
  IF EXISTS (
    SELECT
    FROM tenant_moves m
    WHERE m.tenant = tenant
      AND m.state IN ('leaving', 'departed', 'arriving')) THEN
    PERFORM _refuse_moved(tenant);
  END IF;
  INSERT INTO erasures (tenant, started_at)
  VALUES (tenant, t)
  ON CONFLICT DO NOTHING;
  PERFORM _write_quota_filter();
  UPDATE schedules s
  SET enabled = false
  WHERE s.tenant = tenant
    AND s.enabled;
  UPDATE bulk_operations o
  SET state = 'canceled', ended_at = t
  WHERE o.tenant = tenant
    AND o.state IN ('pending', 'running', 'paused', 'failed');
  -- This audit row names no tenant in its column `tenant`, because the erasure deletes the audit
  -- rows of the tenant.
  PERFORM _audit('erase_tenant', 'tenant ' || tenant, NULL, '{"started": true}', t);
END $$;

-- Cancels the next jobs of a tenant. `ended` counts the jobs that have ended. Sequential scans are
-- off, so that this reads the index from the id at which the last call stopped.
CREATE OR REPLACE FUNCTION _erase_jobs(
  e erasures, force boolean, max int, t timestamptz, OUT ended bigint, OUT waiting text
)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  reason text := 'the tenant is erased';
  found_ids uuid[] := ARRAY(
    SELECT j.id
    FROM jobs j
    WHERE j.id > coalesce(e.last_id, '00000000-0000-0000-0000-000000000000')
      AND j.tenant = e.tenant
    ORDER BY j.id
    LIMIT max);
  endings ending[];
BEGIN
  endings := ARRAY(
    SELECT ROW(
      j.id, j.fence, 'canceled', 'canceled', NULL, NULL, NULL,
      jsonb_build_object('kind', 'canceled', 'message', reason))::ending
    FROM jobs j
    WHERE j.id = ANY (found_ids)
      AND (j.fence = 0 OR force)
    FOR UPDATE SKIP LOCKED);
  ended := cardinality(endings);
  IF ended > 0 THEN PERFORM _announce_freed(f.freed) FROM _finish_jobs(endings, NULL, t) f; END IF;
  PERFORM _request_stop(j.id, reason, t)
  FROM (
    SELECT x.id
    FROM jobs x
    WHERE x.id = ANY (found_ids)
      AND x.fence <> 0
      AND NOT x.canceling
    FOR NO KEY UPDATE SKIP LOCKED) j;
  UPDATE erasures x
  SET last_id = found_ids[cardinality(found_ids)],
    remaining = x.remaining + cardinality(found_ids) - ended,
    deleted = _add_to_count(x.deleted, 'canceled', ended)
  WHERE x.tenant = e.tenant
  RETURNING * INTO e;
  IF cardinality(found_ids) > 0 THEN RETURN; END IF;
  -- All jobs were read once. The erasure reads them again, until it finds no job in a round that
  -- began after the end of all transactions that did not know of the erasure.
  IF e.remaining > 0 THEN
    waiting := format('%s jobs that were asked to stop', e.remaining);
  ELSIF NOT e.is_noticed
      AND pg_snapshot_xmin(pg_current_snapshot()) < e.unnoticed_before THEN
    waiting := 'transactions that were open when the erasure began';
  END IF;
  UPDATE erasures x
  SET last_id = NULL,
    remaining = 0,
    is_noticed = x.is_noticed OR waiting IS NULL,
    step = CASE WHEN x.is_noticed AND waiting IS NULL THEN 'history' ELSE 'jobs' END
  WHERE x.tenant = e.tenant;
END $$;

-- Deletes the rows of a tenant in the next `blocks` blocks of the history. There is no index by
-- tenant, so each table is read once from start to end.
CREATE OR REPLACE FUNCTION _erase_history(
  e erasures, blocks int, OUT deleted bigint, OUT stored text[]
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  parent text;
  name text;
  first_tid tid := format('(%s,0)', e.block);
  end_tid tid := format('(%s,0)', e.block + blocks);
  found_ids uuid[];
  order_keys text[];
  schedule_ids bigint[];
  slot_times timestamptz[];
BEGIN
  deleted := 0;
  SELECT h.parent, h.name INTO parent, name FROM _list_history_tables() h WHERE h.name = e.relation;
  IF name IS NULL THEN
    -- This is the first call, or retention has dropped the table.
    PERFORM _advance_erasure_to_next_table(e);
    RETURN;
  END IF;
  EXECUTE format(
      'WITH d AS (
        DELETE FROM %I x
        WHERE x.ctid >= $1
          AND x.ctid < $2
          AND x.tenant = $3
        RETURNING %s)
      SELECT
        count(*), array_agg(d.stored) FILTER (WHERE d.stored IS NOT NULL), array_agg(d.id),
        array_agg(d.order_key), array_agg(d.schedule_id), array_agg(d.slot)
      FROM d',
      name,
      CASE parent
        WHEN 'finished_jobs' THEN
          'x.id, x.order_key, x.schedule_id, coalesce(x.slot, x.created_at) AS slot,
          -- The payload store has the payload of the job under this key, and deletes it. The id of
          -- the job must be in the key: a producer can write any text into meta.
          CASE
            WHEN position(''/'' || x.id || ''-'' IN x.meta->>''stored'') > 0
              THEN x.meta->>''stored''
          END AS stored'
        ELSE
          'NULL::uuid AS id, NULL AS order_key, NULL::bigint AS schedule_id,
          NULL::timestamptz AS slot, NULL AS stored'
      END)
    INTO deleted, stored, found_ids, order_keys, schedule_ids, slot_times
    USING first_tid, end_tid, e.tenant;
  IF parent = 'finished_jobs' AND deleted > 0 THEN
    PERFORM _delete_traces_of_jobs(e.tenant, found_ids, order_keys, schedule_ids, slot_times);
  END IF;
  UPDATE erasures x
  SET block = e.block + blocks,
    deleted = _add_to_count(x.deleted, parent, deleted)
  WHERE x.tenant = e.tenant;
  IF e.block + blocks >= pg_relation_size(name::regclass) / current_setting('block_size')::int THEN
    PERFORM _advance_erasure_to_next_table(e);
  END IF;
END $$;

-- Moves an erasure on to the next table of the history, or to the step after the history.
CREATE OR REPLACE FUNCTION _advance_erasure_to_next_table(e erasures)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  next_table text := (
    SELECT min(h.name) FROM _list_history_tables() h WHERE h.name > coalesce(e.relation, ''));
BEGIN
  UPDATE erasures x
  SET relation = next_table,
    block = 0,
    step = CASE WHEN next_table IS NULL THEN 'keys' ELSE 'history' END
  WHERE x.tenant = e.tenant;
END $$;

-- Lists the tables with the history of jobs, and the audit, each with the table of which it is a
-- partition.
CREATE OR REPLACE FUNCTION _list_history_tables()
RETURNS TABLE (parent text, name text)
LANGUAGE sql STABLE AS $$
  SELECT x.parent, c.relname COLLATE "C"
  FROM unnest('{attempts,finished_jobs,job_logs}'::text[]) x(parent)
  CROSS JOIN LATERAL pg_partition_tree(x.parent::regclass) p
  JOIN pg_class c ON c.oid = p.relid
  WHERE p.isleaf
  UNION ALL
  SELECT 'audit', 'audit'
$$;

-- Deletes what other tables say about these jobs of a tenant: their slots, even of schedules that
-- were removed earlier, their progress, their stop requests, their ordered keys, their steps and
-- signals, and their dependencies. An unfinished job with such an id is of another tenant, and
-- keeps its progress and its stop request.
CREATE OR REPLACE FUNCTION _delete_traces_of_jobs(
  tenant text, ids uuid[], order_keys text[], schedule_ids bigint[], slots timestamptz[]
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  DELETE FROM slots s
  USING unnest(ids, schedule_ids, slots) x(id, schedule_id, slot)
  WHERE s.schedule_id = x.schedule_id
    AND s.slot = x.slot
    AND s.job_id = x.id;
  DELETE FROM runs r
  WHERE r.job_id = ANY (ids)
    AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = r.job_id);
  DELETE FROM cancels c
  WHERE c.job_id = ANY (ids)
    AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = c.job_id);
  PERFORM _free_keys_of_deleted_jobs(ids, order_keys);
  PERFORM _delete_steps(ids, array_fill(tenant, ARRAY[cardinality(ids)]));
  DELETE FROM dependencies d
  WHERE d.ctid = ANY (ARRAY(
    SELECT x.ctid
    FROM dependencies x
    WHERE x.child = ANY (ids)
      AND x.tenant = tenant
    FOR UPDATE SKIP LOCKED));
END $$;

-- Deletes up to `max` slots, schedules, idempotency keys or unique keys of a tenant; returns how
-- many.
CREATE OR REPLACE FUNCTION _erase_schedules_and_keys(tenant text, max int)
RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  kind text := 'slots';
  number bigint;
BEGIN
  DELETE FROM slots s
  USING (
    SELECT x.schedule_id, x.slot, x.kind
    FROM schedules c
    JOIN slots x ON x.schedule_id = c.id
    WHERE c.tenant = tenant
    LIMIT max) d
  WHERE s.schedule_id = d.schedule_id
    AND s.slot = d.slot
    AND s.kind = d.kind;
  GET DIAGNOSTICS number = ROW_COUNT;
  IF number = 0 THEN
    kind := 'schedules';
    DELETE FROM schedules s
    WHERE s.id = ANY (ARRAY(
      SELECT c.id
      FROM schedules c
      WHERE c.tenant = tenant
      LIMIT max));
    GET DIAGNOSTICS number = ROW_COUNT;
  END IF;
  IF number = 0 THEN
    kind := 'idempotency';
    DELETE FROM idempotency i
    WHERE i.ctid = ANY (ARRAY(
      SELECT x.ctid
      FROM idempotency x
      WHERE x.tenant = tenant
      LIMIT max
      FOR UPDATE));
    GET DIAGNOSTICS number = ROW_COUNT;
  END IF;
  IF number = 0 THEN
    kind := 'uniques';
    DELETE FROM uniques u
    WHERE u.ctid = ANY (ARRAY(
      SELECT x.ctid
      FROM uniques x
      WHERE x.tenant = tenant
      LIMIT max
      FOR UPDATE));
    GET DIAGNOSTICS number = ROW_COUNT;
  END IF;
  UPDATE erasures x
  SET deleted = _add_to_count(x.deleted, kind, number)
  WHERE x.tenant = tenant;
  RETURN number;
END $$;

-- Ends an erasure and deletes the quotas of the tenant, unless jobs have appeared since,
-- because an operator has queued one again. Returns whether the erasure has ended.
CREATE OR REPLACE FUNCTION _end_erasure(e erasures, t timestamptz)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  limit_key text := _tenant_key(e.tenant);
BEGIN
  IF EXISTS (SELECT FROM jobs j WHERE j.tenant = e.tenant) THEN
    UPDATE erasures x SET step = 'jobs', relation = NULL, block = 0 WHERE x.tenant = e.tenant;
    RETURN false;
  END IF;
  PERFORM _lock_quotas();
  DELETE FROM bulk_operations x WHERE x.tenant = e.tenant;
  DELETE FROM bulk_items x WHERE x.tenant = e.tenant;
  DELETE FROM api_keys x WHERE x.tenant = e.tenant;
  DELETE FROM saved_filters x WHERE x.tenant = e.tenant;
  DELETE FROM tenants x WHERE x.tenant = e.tenant;
  DELETE FROM quota_usage x WHERE x.tenant = e.tenant;
  DELETE FROM quota_changes x WHERE x.tenant = e.tenant;
  DELETE FROM quota_seconds x WHERE x.tenant = e.tenant;
  DELETE FROM tenant_scans x WHERE x.tenant = e.tenant;
  PERFORM _delete_endpoint_limit(_endpoint_limit(e.tenant, x.name), t)
  FROM connector_endpoints x
  WHERE x.tenant = e.tenant;
  DELETE FROM connector_endpoints x WHERE x.tenant = e.tenant;
  DELETE FROM node_counts x WHERE x.tenant = e.tenant;
  DELETE FROM rollups x WHERE x.tenant = e.tenant;
  DELETE FROM samples x WHERE x.tenant = e.tenant;
  DELETE FROM watches x WHERE x.tenant = e.tenant;
  DELETE FROM failure_groups x WHERE x.tenant = e.tenant;
  DELETE FROM alert_deliveries d USING alerts a WHERE a.id = d.alert AND a.tenant = e.tenant;
  DELETE FROM alerts x WHERE x.tenant = e.tenant;
  DELETE FROM erasures x WHERE x.tenant = e.tenant;
  PERFORM _write_quota_filter();
  IF EXISTS (SELECT FROM limits l WHERE l.name = limit_key) THEN
    PERFORM _clear_limit_at(limit_key, t);
  END IF;
  DELETE FROM limit_states s
  WHERE s.key = limit_key
    AND NOT EXISTS (SELECT FROM holds h WHERE h.key = s.key);
  PERFORM _audit(
    'erase_tenant', 'tenant ' || e.tenant, NULL,
    jsonb_build_object('started_at', e.started_at, 'deleted', e.deleted), t);
  RETURN true;
END $$;

-- Returns a JSON object of counts in which the count of this kind is raised by `number`.
CREATE OR REPLACE FUNCTION _add_to_count(counts jsonb, kind text, number bigint)
RETURNS jsonb
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN number = 0 THEN counts
    ELSE counts || jsonb_build_object(kind, coalesce((counts->>kind)::bigint, 0) + number)
  END;
