-- Stores one job. An id is used once: if a job has it, finished or not, that job is returned.
-- `id_is_new`: the caller has made the id for this call, so this need not be checked. Shares the
-- wakeup lock (wake.sql) until the transaction ends. Waits for another transaction that uses
-- the same idempotency key, or as jobs/unique_jobs.sql says the same unique key.
CREATE OR REPLACE FUNCTION enqueue(
  type text,
  payload jsonb DEFAULT '{}',
  queue text DEFAULT 'default',
  priority int DEFAULT 0,
  run_at timestamptz DEFAULT NULL,
  delay interval DEFAULT NULL,
  tenant text DEFAULT _session_tenant(),
  max_attempts int DEFAULT 10,
  retry jsonb DEFAULT NULL,
  timeout interval DEFAULT NULL,
  idempotency_key text DEFAULT NULL,
  idempotency_window interval DEFAULT NULL,
  version int DEFAULT 1,
  id uuid DEFAULT NULL,
  created_by text DEFAULT NULL,
  meta jsonb DEFAULT NULL,
  resend boolean DEFAULT false,
  strict boolean DEFAULT false,
  max_payload int DEFAULT 100000,
  now timestamptz DEFAULT NULL,
  depends_on uuid[] DEFAULT NULL,
  run_if text DEFAULT NULL,
  id_is_new boolean DEFAULT false,
  limit_keys text[] DEFAULT NULL,
  ordered_by text DEFAULT NULL,
  route_by text DEFAULT NULL,
  token_group text DEFAULT NULL,
  runs_on jsonb DEFAULT NULL,
  unique_by text DEFAULT NULL,
  unique_until text DEFAULT NULL,
  on_duplicate text DEFAULT NULL,
  debounce_wait interval DEFAULT NULL,
  debounce_max interval DEFAULT NULL,
  expires_at timestamptz DEFAULT NULL,
  expires_in interval DEFAULT NULL,
  results jsonb DEFAULT NULL
)
RETURNS enqueued_job
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  new_id uuid := coalesce(id, uuid7(t));
  answer enqueued_job;
  is_lock_shared boolean;
  policy_id int := 1;
BEGIN
  IF retry IS NOT NULL THEN
    -- NULL if the policy is new.
    SELECT min(p.id) INTO policy_id FROM policies p WHERE p.definition = retry;
  END IF;
  -- A valid job of the common kind takes this one statement. Each transaction has to prepare every
  -- expression anew, so the check has few of them and refuses some jobs that are valid.
  INSERT INTO jobs AS j (
    id, run_at, created_at, policy, version, priority, max_attempts, queue, type, tenant,
    created_by, payload, meta)
  SELECT
    new_id, t, t, policy_id, version,
    -- PostgreSQL may cast these before it checks them, and would fail with an error of its own.
    least(greatest(priority, -32768), 32767),
    least(greatest(max_attempts, 0), 32767),
    queue, type, tenant, created_by, payload, meta
  WHERE policy_id IS NOT NULL
    AND num_nonnulls(
      run_at, delay, timeout, idempotency_key, idempotency_window, depends_on, run_if, limit_keys,
      ordered_by, route_by, runs_on, unique_by, unique_until, on_duplicate, debounce_wait,
      debounce_max, expires_at, expires_in, results) = 0
    AND NOT EXISTS (SELECT FROM queues q WHERE q.name = queue AND q.lanes <> 'none')
    AND NOT _may_have_quota(tenant)
    AND (
      id IS NULL
      OR id_is_new
      AND NOT resend
      AND uuid_send(id) < _newest_id_bytes(t))
    AND '' <> ALL (ARRAY[type, queue, tenant])
    AND octet_length(type || tenant) <= 200
    AND octet_length(queue) <= 100
    AND NOT starts_with(type, 'watchbill.')
    AND NOT starts_with(type, 'connector.')
    AND priority BETWEEN -32768 AND 32767
    AND max_attempts BETWEEN 2 AND 32767
    AND version >= 1
    -- Only an object contains the empty object.
    AND payload @> '{}'
    AND coalesce(meta, '{}') @> '{}'
    AND NOT coalesce(meta, '{}') ? 'notify'
    AND pg_column_compression(payload) IS NULL
    AND pg_column_size(payload) <= least(max_payload, 8000)
    AND octet_length(concat(meta, created_by)) <= 500
  -- As _wake_workers(), without the cost of a call. No column of j: row security would check the
  -- row once more.
  RETURNING
    new_id, currval('job_seq'), true, false,
    pg_try_advisory_xact_lock_shared(_lock_class_wakeup(), 'jobs'::regclass::oid::int)
  INTO answer.id, answer.seq, answer.created, answer.payload_differs, is_lock_shared;
  IF is_lock_shared THEN RETURN answer; END IF;
  IF answer.id IS NULL THEN
    RETURN _enqueue_checked(
      ROW(
        new_id, type, payload, queue, priority, run_at, delay, tenant, max_attempts, retry,
        timeout, version, idempotency_key, idempotency_window, created_by, meta, depends_on,
        run_if, limit_keys, ordered_by, route_by, token_group, runs_on, unique_by, unique_until,
        on_duplicate, debounce_wait, debounce_max, expires_at, expires_in,
        results)::new_job,
      (id IS NULL OR id_is_new AND NOT resend) IS TRUE, resend IS TRUE, strict, max_payload, t);
  END IF;
  PERFORM pg_notify('watchbill_' || 'jobs'::regclass::oid, 'ready ' || queue);
  RETURN answer;
END $$;

-- Stores one job of any kind, after a complete check. `is_new`: no job has this id.
CREATE OR REPLACE FUNCTION _enqueue_checked(
  n new_job,
  is_new boolean,
  resend boolean,
  strict boolean,
  max_payload int,
  t timestamptz
)
RETURNS enqueued_job
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  due timestamptz;
  expiry timestamptz := _expiry(n, t);
  fault text;
  answer enqueued_job := (n.id, NULL, true, false);
  earlier_job uuid;
  first_seq bigint;
  is_stored boolean;
BEGIN
  -- An older snapshot would not show whether the job has finished.
  IF NOT is_new THEN PERFORM _check_isolation('enqueue with a given id'); END IF;
  IF starts_with(n.type, 'connector.') THEN n := _prepare_connector_job(n); END IF;
  IF n.meta ? 'notify' THEN n.meta := _prepare_notification(n, t); END IF;
  fault := coalesce(
    _job_error(n, max_payload, _newest_id_prefix(t)), _expiry_error(n, t));
  IF fault IS NOT NULL THEN PERFORM _refuse_job(n.type, fault); END IF;
  due := _due_time(n, t);
  IF n.idempotency_key IS NOT NULL THEN
    SELECT k.job_id, k.created, k.payload_differs
    INTO answer.id, answer.created, answer.payload_differs
    FROM _reserve_key(
      n.tenant, n.type, n.idempotency_key, n.id, n.payload, t + n.idempotency_window, t) k;
    IF answer.payload_differs AND strict THEN
      RAISE EXCEPTION 'idempotency key % of type % was used with another payload, by job %',
        quote_literal(n.idempotency_key), quote_literal(n.type), answer.id
        USING ERRCODE = 'WB004';
    END IF;
    IF NOT answer.created THEN
      answer.seq := _own_job_seq(answer.id, n.tenant, n.type);
      RETURN answer;
    END IF;
  END IF;
  IF _is_unique(n) THEN
    -- A job that is sent again may have started since, and lost its key to another.
    IF NOT is_new THEN
      answer.seq := _own_job_seq(n.id, n.tenant, n.type);
      answer.created := resend;
      IF answer.seq IS NOT NULL THEN RETURN answer; END IF;
      answer.created := true;
    END IF;
    earlier_job := _reserve_unique(n, t);
    IF earlier_job IS NOT NULL THEN RETURN _resolve_duplicate(n, earlier_job, t); END IF;
  END IF;
  -- A job that is sent again has been counted.
  IF _may_have_quota(n.tenant) AND (is_new OR _own_job_seq(n.id, n.tenant, n.type) IS NULL) THEN
    PERFORM _take_quota(n.tenant, 1, _payload_size(n.payload, n.meta));
  END IF;
  INSERT INTO jobs AS j (
    id, run_at, created_at, policy, timeout, version, priority, max_attempts, class, lane,
    limit_keys, order_key, route_key, wait, queue, type, tenant, idempotency_key, created_by,
    payload, meta, expires_at)
  SELECT
    n.id, due, t, CASE WHEN n.retry IS NULL THEN 1 ELSE _policy_id(n.retry) END,
    extract(epoch FROM n.timeout), n.version, n.priority, n.max_attempts, f.class, f.lane,
    f.limit_keys, f.order_key, f.route_key,
    CASE WHEN cardinality(n.depends_on) > 0 THEN 'blocked' WHEN due > t THEN 'delayed' END,
    n.queue, n.type, n.tenant, n.idempotency_key, n.created_by, n.payload, n.meta, expiry
  FROM _job_flow(n) f
  ON CONFLICT (id) DO NOTHING
  RETURNING j.seq INTO answer.seq;
  is_stored := answer.seq IS NOT NULL;
  IF NOT is_stored THEN
    -- The job is stored already, and unfinished.
    answer.seq := _own_job_seq(n.id, n.tenant, n.type);
    answer.created := resend;
  ELSIF NOT is_new THEN
    -- The job may have finished.
    first_seq := _undo_insert_if_finished(n, answer.seq);
    is_stored := first_seq IS NOT DISTINCT FROM answer.seq;
    answer.created := resend OR is_stored;
    answer.seq := first_seq;
  END IF;
  -- Another job has the id: one of another tenant or type, or any that exists where none should.
  IF answer.seq IS NULL OR is_new AND NOT is_stored THEN
    PERFORM _refuse_taken_id(n.type, n.id);
  END IF;
  IF is_stored AND n.meta ? 'notify' THEN
    PERFORM _add_notification(n.id, n.tenant, n.meta->'notify', t);
  END IF;
  IF is_stored AND n.ordered_by IS NOT NULL THEN
    PERFORM _refuse_ids_of_holders(ARRAY[n.id]);
  END IF;
  IF cardinality(n.depends_on) > 0 THEN
    IF is_stored THEN PERFORM _add_dependencies(ARRAY[n], ARRAY[n.id], ARRAY[true], t); END IF;
  ELSIF due > t THEN
    PERFORM _wake_promoters(due, t);
  ELSE
    PERFORM _wake_workers(n.queue);
  END IF;
  IF expiry IS NOT NULL THEN PERFORM _wake_promoters(expiry, t); END IF;
  RETURN answer;
END $$;

-- The sequence number of the job of this tenant and type that has the id; NULL if there is none. A
-- job of another tenant or type with the same id is another job: it is never taken for one that is
-- sent again, or that has a key.
CREATE OR REPLACE FUNCTION _own_job_seq(id uuid, tenant text, type text)
RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
BEGIN
  RETURN coalesce(
    (SELECT j.seq FROM jobs j WHERE j.id = id AND j.tenant = tenant AND j.type = type),
    (
      SELECT f.seq
      FROM finished_jobs f
      WHERE f.id = id
        AND f.tenant = tenant
        AND f.type = type
        AND f.finished_at >= _history_start(id)
      ORDER BY f.seq
      LIMIT 1));
END $$;

-- Raises the error of an id that a job has which the caller does not see. It says nothing of that
-- job.
CREATE OR REPLACE FUNCTION _refuse_taken_id(type text, id uuid)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  PERFORM _refuse_job(type, format('id %s is taken; let enqueue make the id', id));
END $$;

-- Raises if one of these new jobs has the id of a dead job that keeps the same ordered key: the end
-- of the new job would let the key go.
CREATE OR REPLACE FUNCTION _refuse_ids_of_holders(new_ids uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  PERFORM _refuse_taken_id(j.type, j.id)
  FROM jobs j
  JOIN holds h ON h.key = j.order_key AND h.job_id = j.id
  WHERE j.id = ANY (new_ids)
  LIMIT 1;
END $$;

-- Deletes the new row of a job that has finished already, and returns the job's sequence number, or
-- NULL if the finished job has another type. A job that is sent again, after a lost reply, may have
-- run. The INSERT waited for the settle() that moved the job, but only a later statement sees it in
-- the history.
CREATE OR REPLACE FUNCTION _undo_insert_if_finished(n new_job, new_seq bigint)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
BEGIN
  PERFORM
  FROM finished_jobs f
  WHERE f.id = n.id
    AND f.tenant = n.tenant
    AND f.finished_at >= _history_start(n.id);
  IF NOT FOUND THEN RETURN new_seq; END IF;
  DELETE FROM jobs j WHERE j.id = n.id AND j.seq = new_seq;
  RETURN _own_job_seq(n.id, n.tenant, n.type);
END $$;

-- Reserves an idempotency key for a job, or returns the job that has it. Locks the row of the key,
-- and waits for another transaction that uses it.
CREATE OR REPLACE FUNCTION _reserve_key(
  tenant text,
  type text,
  key text,
  id uuid,
  payload jsonb,
  expiry timestamptz,
  t timestamptz,
  OUT job_id uuid,
  OUT created boolean,
  OUT payload_differs boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  hash uuid := md5(payload::text)::uuid;
  k idempotency;
BEGIN
  job_id := id;
  payload_differs := false;
  LOOP
    INSERT INTO idempotency (tenant, type, key, job_id, payload_hash, expires_at, created_at)
    VALUES (tenant, type, key, id, hash, expiry, t)
    ON CONFLICT DO NOTHING;
    created := FOUND;
    IF created THEN RETURN; END IF;
    SELECT * INTO k
    FROM idempotency i
    WHERE i.tenant = tenant
      AND i.type = type
      AND i.key = key
    FOR UPDATE;
    -- Not found: purge() deleted the row while the INSERT waited.
    EXIT WHEN FOUND;
  END LOOP;
  IF k.job_id = id THEN
    -- The same job is sent again.
    created := true;
  ELSIF k.expires_at <= t
      OR k.expires_at IS NULL AND _own_job_seq(k.job_id, tenant, type) IS NULL THEN
    UPDATE idempotency i
    SET job_id = id,
      payload_hash = hash,
      expires_at = expiry,
      created_at = t
    WHERE i.tenant = tenant
      AND i.type = type
      AND i.key = key;
    created := true;
  ELSE
    job_id := k.job_id;
    payload_differs := k.payload_hash <> hash;
  END IF;
END $$;
