-- Stores a job of the common kind and returns its sequence number: enqueue() for Python's clients,
-- which send little else. The id is new, the job can run at once, and the client has compared the
-- payload with its max_payload. Shares the wakeup lock (wake.sql) until the transaction ends.
--
-- A third less work than enqueue(). It has fewer arguments and checks, and no SET search_path,
-- which alone takes a tenth of the time. It runs with the rights of the owner under the search_path
-- of its caller, so every function, type and operator in it needs a schema. A job that is not of
-- the common kind, or is invalid, is left to enqueue(), which says what is wrong with it. The check
-- has few expressions, as that of enqueue(), and so leaves it some jobs of the common kind.
DO $do$
BEGIN
  EXECUTE format($format$
    CREATE OR REPLACE FUNCTION _enqueue_plain(
      type text,
      payload jsonb,
      queue text,
      priority smallint,
      tenant text,
      max_attempts smallint,
      timeout real,
      version int,
      id uuid,
      created_by text,
      meta jsonb
    )
    RETURNS bigint
    LANGUAGE plpgsql VOLATILE
    AS $body$
    #variable_conflict use_variable
    DECLARE
      t pg_catalog.timestamptz := %1$I._clock();
      new_seq bigint;
      is_lock_shared boolean;
    BEGIN
      INSERT INTO %1$I.jobs AS j (
        id, run_at, created_at, timeout, version, priority, max_attempts, queue, type, tenant,
        created_by, payload, meta)
      SELECT
        id, t, t, timeout, version, priority, max_attempts, queue, type, tenant, created_by,
        payload, meta
      WHERE pg_catalog.uuid_send(id) OPERATOR(pg_catalog.<) %1$I._newest_id_bytes(t)
        AND NOT pg_catalog.starts_with(type, 'watchbill.')
        AND NOT pg_catalog.starts_with(type, 'connector.')
        AND '' OPERATOR(pg_catalog.<>) ALL (ARRAY[type, queue, tenant])
        AND pg_catalog.octet_length(pg_catalog.concat(type, queue, tenant, created_by))
          OPERATOR(pg_catalog.<=) 100
        AND max_attempts OPERATOR(pg_catalog.>) 1
        AND version OPERATOR(pg_catalog.>) 0
        -- Only an object contains the empty object.
        AND payload OPERATOR(pg_catalog.@>) '{}'
        AND coalesce(meta, '{}') OPERATOR(pg_catalog.@>) '{}'
        AND NOT coalesce(meta, '{}') OPERATOR(pg_catalog.?) 'notify'
        AND pg_catalog.octet_length(pg_catalog.concat(payload, meta))
          OPERATOR(pg_catalog.<=) 100000
        -- NaN is greater than every number. The bound is that of _is_over_a_year().
        AND coalesce(timeout, '1') OPERATOR(pg_catalog.>) '0'
        AND coalesce(timeout, '1') OPERATOR(pg_catalog.<=) '31536000'
        AND NOT EXISTS (
          SELECT
          FROM %1$I.queues q
          WHERE q.name OPERATOR(pg_catalog.=) queue
            AND q.lanes OPERATOR(pg_catalog.<>) 'none')
        AND NOT %1$I._may_have_quota(tenant)
      -- currval(), because j.seq would make row security check the row once more.
      RETURNING
        pg_catalog.currval(%3$L::pg_catalog.regclass),
        pg_catalog.pg_try_advisory_xact_lock_shared(
          %1$I._lock_class_wakeup(), %2$L::pg_catalog.regclass::pg_catalog.oid::int)
      INTO new_seq, is_lock_shared;
      IF is_lock_shared THEN RETURN new_seq; END IF;
      IF new_seq IS NULL THEN
        RETURN (
          SELECT e.seq
          FROM %1$I.enqueue(
            type, payload, queue, priority, tenant => tenant, max_attempts => max_attempts,
            timeout => %1$I._timeout_interval(timeout), version => version, id => id,
            created_by => created_by, meta => meta, max_payload => NULL, id_is_new => true) e);
      END IF;
      PERFORM pg_catalog.pg_notify(
        pg_catalog.concat('watchbill_', %2$L::pg_catalog.regclass::pg_catalog.oid),
        pg_catalog.concat('ready ', queue));
      RETURN new_seq;
    END $body$
  $format$, current_schema(), format('%I.jobs', current_schema()),
    format('%I.job_seq', current_schema()));
END $do$;

-- The seconds of a timeout as an interval. NaN, and numbers that no interval can hold, become one
-- that enqueue() refuses.
CREATE OR REPLACE FUNCTION _timeout_interval(seconds real)
RETURNS interval
LANGUAGE sql STABLE
RETURN CASE
    WHEN seconds IS NOT NULL THEN make_interval(secs => least(greatest(seconds, -1), 1e9))
  END;

-- Stores many jobs of one kind, which differ only in their ids and payloads: _enqueue_plain() for a
-- bulk. Jobs that are not so plain take the way of enqueue_many(), as do those that an earlier call
-- may have stored (`resend`).
CREATE OR REPLACE FUNCTION _enqueue_plain_many(
  type text,
  queue text,
  priority smallint,
  tenant text,
  max_attempts smallint,
  timeout real,
  version int,
  created_by text,
  meta jsonb,
  ids uuid[],
  payloads jsonb[],
  resend boolean DEFAULT false
)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock();
  newest bytea := _newest_id_bytes(t);
  plain boolean;
BEGIN
  SELECT
    bool_and(
      coalesce(uuid_send(x.id) < newest AND x.payload @> '{}' AND _is_small(x.payload), false))
    AND NOT starts_with(type, 'watchbill.')
    AND NOT starts_with(type, 'connector.')
    AND length(type) BETWEEN 1 AND 200
    AND length(queue) BETWEEN 1 AND 100
    AND length(tenant) BETWEEN 1 AND 200
    AND max_attempts > 1
    AND version > 0
    AND coalesce(meta, '{}') @> '{}'
    AND NOT coalesce(meta, '{}') ? 'notify'
    AND octet_length(concat(meta, created_by)) <= 500
    AND coalesce(timeout, '1') > '0'
    AND coalesce(timeout, '1') <= '31536000'
    AND NOT EXISTS (SELECT FROM queues q WHERE q.name = queue AND q.lanes <> 'none')
    AND NOT _may_have_quota(tenant)
  INTO plain
  FROM unnest(ids, payloads) x(id, payload);
  IF resend OR plain IS NOT TRUE THEN
    PERFORM
    FROM _insert_jobs(
      ARRAY(
        SELECT jsonb_populate_record(NULL::new_job, jsonb_build_object(
          'id', x.id, 'type', type, 'payload', x.payload, 'queue', queue, 'priority', priority,
          'tenant', tenant, 'max_attempts', max_attempts, 'timeout', _timeout_interval(timeout),
          'version', version, 'created_by', created_by, 'meta', meta))
        FROM unnest(ids, payloads) x(id, payload)),
      resend, NOT resend, false, NULL, t);
    RETURN;
  END IF;
  INSERT INTO jobs (
    id, run_at, created_at, timeout, version, priority, max_attempts, queue, type, tenant,
    created_by, payload, meta)
  SELECT
    x.id, t, t, timeout, version, priority, max_attempts, queue, type, tenant, created_by,
    x.payload, meta
  FROM unnest(ids, payloads) x(id, payload);
  PERFORM _wake_workers(queue);
END $$;
