-- Stores the jobs of a temporary table, made with
-- CREATE TEMP TABLE name OF <schema>.new_job ON COMMIT DROP and filled by COPY. NULL stands for the
-- default. Returns only the jobs that existed before. `ids_are_new`: as enqueue's id_is_new. Reads
-- the table with the rights of the caller, and hands its rows to _enqueue_rows().
CREATE OR REPLACE FUNCTION enqueue_from(
  source regclass,
  resend boolean DEFAULT false,
  strict boolean DEFAULT false,
  max_payload int DEFAULT 100000,
  now timestamptz DEFAULT NULL,
  ids_are_new boolean DEFAULT false
)
RETURNS TABLE (id uuid, seq bigint, created boolean, payload_differs boolean)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  new_jobs new_job[];
  with_ids boolean;
BEGIN
  EXECUTE format('SELECT ARRAY(
    SELECT ROW(
      coalesce(n.id, uuid7($1 + row_number() OVER () * interval ''1 microsecond'')),
      n.type, coalesce(n.payload, ''{}''), coalesce(n.queue, ''default''),
      coalesce(n.priority, 0), n.run_at, n.delay, coalesce(n.tenant, _session_tenant()),
      coalesce(n.max_attempts, 10), n.retry, n.timeout, coalesce(n.version, 1),
      n.idempotency_key, n.idempotency_window, n.created_by, n.meta, n.depends_on,
      n.run_if, n.limit_keys, n.ordered_by, n.route_by, n.token_group, n.runs_on, n.unique_by,
      n.unique_until, n.on_duplicate, n.debounce_wait, n.debounce_max,
      n.expires_at, n.expires_in, n.results)::new_job
    FROM %1$s n),
    EXISTS (SELECT FROM %1$s n WHERE n.id IS NOT NULL)', source)
  INTO new_jobs, with_ids
  USING t;
  RETURN QUERY
    SELECT *
    FROM _enqueue_rows(
      new_jobs, resend, ids_are_new OR NOT with_ids, strict, max_payload, now) i
    WHERE NOT i.created;
END $$;

-- Stores jobs with the rights of the owner. Callers may reach it directly, so it takes no types of
-- Watchbill's own.
CREATE OR REPLACE FUNCTION _enqueue_rows(
  new_jobs new_job[],
  resend boolean,
  ids_are_new boolean,
  strict boolean,
  max_payload int,
  now timestamptz
)
RETURNS TABLE (id uuid, seq bigint, created boolean, payload_differs boolean)
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  RETURN QUERY
    SELECT * FROM _insert_jobs(new_jobs, resend, ids_are_new, strict, max_payload, _clock(now));
END $$;
