-- Stores many jobs, given as a JSON array of objects with the arguments of enqueue(). Returns a row
-- for each, in the same order. `ids_are_new`: as enqueue's id_is_new.
CREATE OR REPLACE FUNCTION enqueue_many(
  jobs jsonb,
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
  unknown_name text;
  depending boolean;
  with_ids boolean;
  with_limits boolean;
  new_jobs new_job[];
BEGIN
  IF jsonb_typeof(jobs) <> 'array'
      OR jsonb_path_exists(
        jobs, 'strict $[*] ? (@.type() != "object")', silent => true) THEN
    RAISE EXCEPTION 'jobs is invalid: it must be a JSON array of objects'
      USING ERRCODE = 'WB003';
  END IF;
  SELECT
    max(k) FILTER (WHERE k <> ALL (
      '{id,type,payload,queue,priority,run_at,delay,tenant,max_attempts,retry,timeout,version,'
      'idempotency_key,idempotency_window,created_by,meta,depends_on,run_if,limit_keys,ordered_by,'
      'route_by,token_group,runs_on,unique_by,unique_until,on_duplicate,debounce_wait,'
      'debounce_max,expires_at,expires_in,results}')),
    bool_or(k = 'depends_on'),
    bool_or(k = 'id'),
    bool_or(k = 'limit_keys')
  INTO unknown_name, depending, with_ids, with_limits
  FROM jsonb_array_elements(jobs) o(job), jsonb_object_keys(o.job) k;
  IF unknown_name IS NOT NULL THEN
    RAISE EXCEPTION 'job field % is invalid', quote_literal(unknown_name)
      USING ERRCODE = 'WB003', HINT = 'the fields are the arguments of enqueue';
  END IF;
  IF with_limits THEN PERFORM _check_limit_keys(jobs); END IF;
  IF depending THEN jobs := _resolve_positions(jobs, t); END IF;
  new_jobs := ARRAY(
    SELECT ROW(
      coalesce(n.id, uuid7(t + n.ordinality * interval '1 microsecond')),
      n.type, coalesce(n.payload, '{}'), coalesce(n.queue, 'default'), coalesce(n.priority, 0),
      n.run_at, n.delay, coalesce(n.tenant, _session_tenant()), coalesce(n.max_attempts, 10),
      n.retry, n.timeout, coalesce(n.version, 1), n.idempotency_key, n.idempotency_window,
      n.created_by, n.meta, n.depends_on, n.run_if, n.limit_keys, n.ordered_by, n.route_by,
      n.token_group, n.runs_on, n.unique_by, n.unique_until, n.on_duplicate, n.debounce_wait,
      n.debounce_max, n.expires_at, n.expires_in, n.results)::new_job
    FROM jsonb_populate_recordset(NULL::new_job, jobs) WITH ORDINALITY n);
  RETURN QUERY
    SELECT *
    FROM _insert_jobs(
      new_jobs, resend, ids_are_new OR with_ids IS NOT TRUE, strict, max_payload, t);
END $$;

-- Raises for the first job whose limit_keys are not an array of texts.
CREATE OR REPLACE FUNCTION _check_limit_keys(jobs jsonb)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
BEGIN
  PERFORM _refuse_job(
    o.job->>'type',
    format(
      'limit_keys must be an array of texts, such as ["crm-api"], and is %s at position %s of this '
      'call', left((o.job->'limit_keys')::text, 100), o.n - 1))
  FROM jsonb_array_elements(jobs) WITH ORDINALITY o(job, n)
  WHERE jsonb_typeof(o.job->'limit_keys') NOT IN ('array', 'null')
    OR jsonb_path_exists(o.job, 'strict $.limit_keys[*] ? (@.type() != "string")', silent => true)
  ORDER BY o.n
  LIMIT 1;
END $$;

-- The id of the job at a position, from 0; what is not a position stays as it is.
CREATE OR REPLACE FUNCTION _resolve_position(given jsonb, ids text[])
RETURNS jsonb
LANGUAGE sql IMMUTABLE
RETURN CASE jsonb_typeof(given)
    WHEN 'number' THEN coalesce(to_jsonb(ids[given::numeric + 1]), given)
    ELSE given
  END;

-- Replaces numbers in depends_on and results, which are positions in the array from 0, by ids. So a
-- schedule can enqueue the same definition many times.
CREATE OR REPLACE FUNCTION _resolve_positions(jobs jsonb, t timestamptz)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  ids text[] := ARRAY(
    SELECT coalesce(
      o.job->>'id', uuid7(t + o.n * interval '1 microsecond')::text)
    FROM jsonb_array_elements(jobs) WITH ORDINALITY o(job, n)
    ORDER BY o.n);
BEGIN
  PERFORM _refuse_job(
    x.job->>'type',
    CASE
      WHEN jsonb_typeof(x.job->'depends_on') NOT IN ('array', 'null') THEN
        'depends_on must be an array of ids, or of positions in this call'
      ELSE format('depends_on names position %s, but this call has the positions 0 to %s',
        x.wrong, cardinality(ids) - 1)
    END)
  FROM (
    SELECT o.job, (
        SELECT p
        FROM jsonb_array_elements(
          CASE jsonb_typeof(o.job->'depends_on')
            WHEN 'array' THEN o.job->'depends_on'
            ELSE '[]'
          END) p
        WHERE jsonb_typeof(p) = 'number'
          AND (
            p::numeric <> trunc(p::numeric)
            OR p::numeric NOT BETWEEN 0 AND cardinality(ids) - 1)
        LIMIT 1) AS wrong
    FROM jsonb_array_elements(jobs) o(job)) x
  WHERE jsonb_typeof(x.job->'depends_on') NOT IN ('array', 'null')
    OR x.wrong IS NOT NULL
  LIMIT 1;
  RETURN (
    SELECT jsonb_agg(
      o.job || jsonb_build_object('id', ids[o.n]) || CASE jsonb_typeof(o.job->'depends_on')
        WHEN 'array' THEN jsonb_build_object('depends_on', (
          SELECT jsonb_agg(
            _resolve_position(p.it, ids) ORDER BY p.n)
          FROM jsonb_array_elements(o.job->'depends_on') WITH ORDINALITY p(it, n)))
        ELSE '{}'
      END || CASE jsonb_typeof(o.job->'results')
        WHEN 'object' THEN jsonb_build_object('results', (
          SELECT jsonb_object_agg(
            r.key,
            CASE jsonb_typeof(r.value)
              WHEN 'array' THEN (
                SELECT jsonb_agg(_resolve_position(p.it, ids) ORDER BY p.n)
                FROM jsonb_array_elements(r.value) WITH ORDINALITY p(it, n))
              ELSE _resolve_position(r.value, ids)
            END)
          FROM jsonb_each(o.job->'results') r))
        ELSE '{}'
      END ORDER BY o.n)
    FROM jsonb_array_elements(jobs) WITH ORDINALITY o(job, n));
END $$;
