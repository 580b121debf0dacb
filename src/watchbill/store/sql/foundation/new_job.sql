-- after: create_type
-- A job to enqueue: a row of enqueue_many() and of the temporary table for COPY.
SELECT _create_type('new_job', $$
  id uuid,
  type text,
  payload jsonb,
  queue text,
  priority int,
  run_at timestamptz,
  delay interval,
  tenant text,
  max_attempts int,
  retry jsonb,
  timeout interval,
  version int,
  idempotency_key text,
  idempotency_window interval,
  created_by text,
  meta jsonb,
  depends_on uuid[],
  run_if text,
  limit_keys text[],
  ordered_by text,
  route_by text,
  token_group text,
  runs_on jsonb,
  unique_by text,
  unique_until text,
  on_duplicate text,
  debounce_wait interval,
  debounce_max interval,
  expires_at timestamptz,
  expires_in interval,
  results jsonb$$);

-- The answer to an enqueue. `created`: this call has made the job. `payload_differs`: an earlier
-- job has the same idempotency key and another payload. A type, because OUT parameters would take a
-- twentieth of the time of an enqueue.
SELECT _create_type('enqueued_job', $$
  id uuid,
  seq bigint,
  created boolean,
  payload_differs boolean$$);

-- Whether a text is a duration of more than 0 and at most 100 years.
CREATE OR REPLACE FUNCTION _is_positive_interval(text text)
RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN text::interval > interval '0' AND text::interval <= interval '100 years';
EXCEPTION WHEN data_exception THEN
  RETURN false;
END $$;

-- Whether a duration is longer than a year, which is 365 days here. By its seconds, with which jobs
-- are stored: PostgreSQL counts the interval '1 year' as 360 days where it compares, and as 365.25
-- days where it extracts seconds.
CREATE OR REPLACE FUNCTION _is_over_a_year(duration interval)
RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN date_part('epoch', duration) > 31536000;

-- Whether a JSON value is so small that its text has far less than 100 MB. A text can be thousands
-- of times longer than its value: 1e131071 takes 16 bytes, and 131072 as text.
CREATE OR REPLACE FUNCTION _is_small(value jsonb)
RETURNS boolean
LANGUAGE sql STABLE
RETURN pg_column_compression(value) IS NULL AND pg_column_size(value) <= 8000;

-- What is invalid in the results of other jobs that the parameters of a job take; NULL if nothing
-- is. `results` names parameters: each has the id of a job, or an array of ids.
CREATE OR REPLACE FUNCTION _results_error(n new_job)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  wrong text;
BEGIN
  IF jsonb_typeof(n.results) <> 'object' OR jsonb_path_exists(
    n.results, 'strict $.* ? (@.type() != "string" && @.type() != "array")', silent => true) THEN
    RETURN 'results must be a JSON object: each parameter with the id of a job, or an array of ids';
  END IF;
  wrong := (
    SELECT y.id
    FROM (
      SELECT x.id
      FROM jsonb_each(n.results) r
      CROSS JOIN LATERAL jsonb_array_elements_text(
        CASE jsonb_typeof(r.value)
          WHEN 'array' THEN r.value
          ELSE jsonb_build_array(r.value)
        END) x(id)
      EXCEPT
      SELECT p::text FROM unnest(n.depends_on) p) y
    LIMIT 1);
  IF wrong IS NOT NULL THEN
    RETURN format('results names job %s, which is not in depends_on', wrong);
  END IF;
  SELECT min(r.key) INTO wrong
  FROM jsonb_each(n.results) r
  WHERE jsonb_typeof(r.value) = 'array'
    AND (SELECT count(*) - count(DISTINCT x) FROM jsonb_array_elements(r.value) x) > 0;
  IF wrong IS NOT NULL THEN RETURN format('results names a job twice for %s', wrong); END IF;
  SELECT min(k) INTO wrong FROM jsonb_object_keys(n.results) k WHERE n.payload ? k;
  IF wrong IS NOT NULL THEN
    RETURN format('%s has a value in the payload, and a result of another job', wrong);
  END IF;
  IF n.on_duplicate = 'replace' OR n.debounce_wait IS NOT NULL THEN
    RETURN 'results excludes on_duplicate=replace and debounce_wait';
  END IF;
  IF _is_unique(n) AND n.unique_by IS NULL THEN
    RETURN 'results needs unique_by: the unique key cannot be made of all arguments';
  END IF;
  SELECT min(k) INTO wrong
  FROM jsonb_object_keys(n.results) k
  JOIN queues q ON q.name = n.queue AND strpos(q.fair_by, '{' || k || '}') > 0;
  IF wrong IS NOT NULL THEN
    RETURN format('%s cannot be a result: the shares of queue %L are made of it', wrong, n.queue);
  END IF;
  RETURN NULL;
END $$;

-- What is invalid in a job; NULL if nothing is. A claim sends payload and meta, and one that cannot
-- be sent would stop its queue, so these have limits that no caller can lift. A UUIDv7 from
-- `horizon` on is of the future. A type of Watchbill's own is valid only with `builtin`: every
-- worker runs the SQL in such a job.
CREATE OR REPLACE FUNCTION _job_error(
  n new_job, max_payload int, horizon text, builtin boolean DEFAULT false
)
RETURNS text
LANGUAGE sql STABLE
RETURN CASE
    WHEN coalesce((n).type, '') = '' OR length((n).type) > 200 THEN
      'type must be a text of 1 to 200 characters'
    WHEN NOT builtin AND starts_with((n).type, 'watchbill.') THEN
      'only schedules make jobs whose type begins with watchbill.'
    WHEN coalesce((n).queue, '') = '' OR length((n).queue) > 100 THEN
      'queue must be a text of 1 to 100 characters'
    WHEN coalesce((n).tenant, '') = '' OR length((n).tenant) > 200 THEN
      'tenant must be a text of 1 to 200 characters'
    WHEN coalesce((n).priority, 32768) NOT BETWEEN -32768 AND 32767 THEN
      'priority must be between -32768 and 32767'
    WHEN coalesce((n).max_attempts, 0) NOT BETWEEN 1 AND 32767 THEN
      'max_attempts must be between 1 and 32767'
    WHEN coalesce((n).version, 0) < 1 THEN
      'version must be 1 or more'
    WHEN (n).run_at IS NOT NULL AND (n).delay IS NOT NULL THEN
      'give run_at or delay, not both'
    WHEN (n).run_at NOT BETWEEN '0001-01-03 00:00+00' AND '9999-12-29 00:00+00' THEN
      'run_at must be a finite time in the years 1 to 9999'
    WHEN (n).delay < interval '0' OR (n).delay > interval '100 years' THEN
      'delay must be between 0 and 100 years'
    WHEN (n).expires_at IS NOT NULL AND (n).expires_in IS NOT NULL THEN
      'give expires_at or expires_in, not both'
    WHEN (n).expires_at NOT BETWEEN '0001-01-03 00:00+00' AND '9999-12-29 00:00+00' THEN
      'expires_at must be a finite time in the years 1 to 9999'
    WHEN (n).expires_in <= interval '0' OR (n).expires_in > interval '100 years' THEN
      'expires_in must be more than 0 and at most 100 years'
    WHEN (n).timeout <= interval '0' OR _is_over_a_year((n).timeout) THEN
      'timeout must be more than 0 and at most 365 days'
    WHEN (n).idempotency_window IS NOT NULL AND (n).idempotency_key IS NULL THEN
      'idempotency_window needs an idempotency_key'
    WHEN (n).idempotency_window <= interval '0'
        OR (n).idempotency_window > interval '100 years' THEN
      'idempotency_window must be more than 0 and at most 100 years'
    WHEN (n).idempotency_key = '' OR length((n).idempotency_key) > 500 THEN
      'idempotency_key must be a text of 1 to 500 characters'
    WHEN octet_length((n).tenant) + octet_length((n).type)
        + octet_length((n).idempotency_key) > 2500 THEN
      'tenant, type and idempotency_key must have at most 2500 bytes together'
    WHEN (n).run_if NOT IN ('all_succeeded', 'all_finished', 'any_failed') THEN
      format('run_if must be all_succeeded, all_finished or any_failed, not %L', (n).run_if)
    WHEN (n).run_if IS NOT NULL AND coalesce(cardinality((n).depends_on), 0) = 0 THEN
      'run_if needs depends_on'
    WHEN array_position((n).depends_on, NULL) IS NOT NULL THEN
      'depends_on must name jobs by their ids'
    WHEN (n).results IS NOT NULL AND _results_error(n) IS NOT NULL THEN
      _results_error(n)
    WHEN array_position((n).limit_keys, NULL) IS NOT NULL OR '' = ANY ((n).limit_keys) THEN
      'limit_keys must be texts that are not empty'
    WHEN cardinality((n).limit_keys) > 100 THEN
      'limit_keys must have at most 100 keys'
    WHEN (n).ordered_by IS NOT NULL AND (n).priority <> 0 THEN
      'ordered_by and priority exclude each other: an ordered key keeps the order of enqueue'
    WHEN (n).ordered_by IS NOT NULL AND (n).debounce_wait IS NOT NULL THEN
      'ordered_by and debounce_wait exclude each other'
    WHEN (n).route_by IS NOT NULL AND (n).runs_on IS NOT NULL THEN
      'route_by and runs_on exclude each other: pin the key to a node with the labels instead'
    WHEN jsonb_typeof((n).runs_on) <> 'object' THEN
      'runs_on must be a JSON object of labels'
    WHEN jsonb_typeof((n).runs_on->'node') <> 'string' THEN
      'the label node in runs_on must be the name of a node, as a text'
    WHEN (n).on_duplicate NOT IN ('keep', 'replace', 'reject') THEN
      format('on_duplicate must be keep, replace or reject, not %L', (n).on_duplicate)
    WHEN (n).on_duplicate = 'replace' AND coalesce((n).unique_until, 'started') <> 'started' THEN
      'on_duplicate=replace needs unique_until=started: only a job that waits can be replaced'
    WHEN (n).debounce_max IS NOT NULL AND (n).debounce_wait IS NULL THEN
      'debounce_max needs debounce_wait'
    WHEN (n).debounce_wait <= interval '0' OR _is_over_a_year((n).debounce_wait) THEN
      'debounce_wait must be more than 0 and at most 365 days'
    WHEN (n).debounce_max < (n).debounce_wait OR (n).debounce_max > interval '100 years' THEN
      'debounce_max must be at least debounce_wait and at most 100 years'
    WHEN (n).debounce_wait IS NOT NULL
        AND num_nonnulls((n).run_at, (n).delay, (n).unique_until, (n).on_duplicate) > 0 THEN
      'debounce_wait excludes run_at, delay, unique_until and on_duplicate'
    WHEN (n).unique_until NOT IN ('started', 'finished')
        AND NOT _is_positive_interval((n).unique_until) THEN
      format('unique_until must be started, finished or a duration, not %L', (n).unique_until)
    WHEN coalesce(jsonb_typeof((n).payload), '') <> 'object' THEN
      'payload must be a JSON object, one key per parameter'
    WHEN jsonb_typeof((n).meta) <> 'object' THEN
      'meta must be a JSON object'
    -- || decompresses a payload that a table has compressed.
    WHEN pg_column_size((n).payload || '{}') > least(max_payload, 100000000) THEN
      format('the payload has %s bytes, the limit is %s: store it elsewhere and send a reference',
        pg_column_size((n).payload || '{}'), least(max_payload, 100000000))
    WHEN NOT _is_small((n).payload) AND octet_length((n).payload::text) > 100000000 THEN
      'the payload must have at most 100000000 bytes as text: store it elsewhere and send a '
      'reference'
    WHEN octet_length((n).meta::text) > 1000000 THEN
      'meta must have at most 1000000 bytes as text'
    WHEN length((n).created_by) > 500 THEN
      'created_by must have at most 500 characters'
    WHEN (n).id::text >= horizon AND substr((n).id::text, 15, 1) = '7' THEN
      'the time in the id must be at most an hour ahead of the database''s clock'
  END;

-- When a new job is due.
CREATE OR REPLACE FUNCTION _due_time(n new_job, t timestamptz)
RETURNS timestamptz
LANGUAGE sql STABLE
RETURN coalesce((n).run_at, t + coalesce((n).delay, (n).debounce_wait), t);

-- When a new job expires; NULL: never.
CREATE OR REPLACE FUNCTION _expiry(n new_job, t timestamptz)
RETURNS timestamptz
LANGUAGE sql STABLE
RETURN coalesce((n).expires_at, t + (n).expires_in);

-- What is wrong with the expiry of a new job; NULL if nothing is. A job that has expired already
-- ends at once, but not one that would expire before it may start.
CREATE OR REPLACE FUNCTION _expiry_error(n new_job, t timestamptz)
RETURNS text
LANGUAGE sql STABLE
RETURN CASE
    WHEN _due_time(n, t) > t AND _due_time(n, t) > _expiry(n, t) THEN
      format(
        'it would expire at %s, before it may start at %s', _expiry(n, t), _due_time(n, t))
  END;

-- Whether a job is of the common, valid kind. Twenty times faster than _job_error().
CREATE OR REPLACE FUNCTION _is_plain_job(n new_job, max_payload int)
RETURNS boolean
LANGUAGE sql STABLE
RETURN length((n).type) BETWEEN 1 AND 200
    AND NOT starts_with((n).type, 'watchbill.')
    AND NOT starts_with((n).type, 'connector.')
    AND length((n).queue) BETWEEN 1 AND 100
    AND length((n).tenant) BETWEEN 1 AND 200
    AND (n).priority BETWEEN -32768 AND 32767
    AND (n).max_attempts BETWEEN 1 AND 32767
    AND (n).version >= 1
    AND (n).run_at IS NULL
    AND (n).delay IS NULL
    AND (n).timeout IS NULL
    AND (n).idempotency_key IS NULL
    AND (n).idempotency_window IS NULL
    AND (n).depends_on IS NULL
    AND (n).run_if IS NULL
    AND num_nonnulls(
      (n).limit_keys, (n).ordered_by, (n).route_by, (n).runs_on, (n).unique_by, (n).unique_until,
      (n).on_duplicate, (n).debounce_wait, (n).debounce_max, (n).expires_at, (n).expires_in,
      (n).results) = 0
    AND jsonb_typeof((n).payload) = 'object'
    AND coalesce(jsonb_typeof((n).meta), 'object') = 'object'
    AND NOT coalesce((n).meta, '{}') ? 'notify'
    AND _is_small((n).payload)
    AND (max_payload IS NULL OR pg_column_size((n).payload) <= max_payload)
    AND octet_length(concat((n).meta, (n).created_by)) <= 500;

-- The first digits of a UUIDv7 of an hour after `t`.
CREATE OR REPLACE FUNCTION _newest_id_prefix(t timestamptz)
RETURNS text
LANGUAGE sql STABLE
RETURN overlay(
    lpad(to_hex((extract(epoch FROM t) * 1000)::bigint + 3600000), 12, '0')
    PLACING '-' FROM 9 FOR 0);

-- The bytes with which the ids of an hour after `t` begin: uuid_send() of an older UUIDv7 is less.
CREATE OR REPLACE FUNCTION _newest_id_bytes(t timestamptz)
RETURNS bytea
LANGUAGE sql STABLE
RETURN int8send(((date_part('epoch', t) + 3600) * 65536000)::bigint);

CREATE OR REPLACE FUNCTION _refuse_job(type text, why text)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RAISE EXCEPTION 'job of type % is invalid: %', quote_nullable(type), why USING ERRCODE = 'WB003';
END $$;

-- Whether the job must be unique: see jobs/unique_jobs.sql.
CREATE OR REPLACE FUNCTION _is_unique(n new_job)
RETURNS boolean
LANGUAGE sql STABLE
RETURN num_nonnulls(
  (n).unique_by, (n).unique_until, (n).on_duplicate, (n).debounce_wait, (n).debounce_max) > 0;

-- The key of a unique job within its type and tenant: all its arguments, if unique_by does not say
-- which.
CREATE OR REPLACE FUNCTION _unique_key(n new_job)
RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF n.unique_by IS NULL THEN RETURN md5(n.payload::text); END IF;
  RETURN _render_key(n.unique_by, n.payload, n.tenant, n.type, 'unique_by');
END $$;
