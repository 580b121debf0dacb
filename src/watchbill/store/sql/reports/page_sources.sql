-- after: filter_fields
-- The states and waits that jobs may have to match; a job matches if it has one of them.
CREATE OR REPLACE FUNCTION _read_wanted_states(conditions jsonb)
RETURNS text[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
  c jsonb := (
    SELECT e
    FROM jsonb_array_elements(conditions) e
    WHERE e->>'field' IN ('state', 'waits')
      AND (e->>'is_negated')::boolean IS NOT TRUE
    LIMIT 1);
BEGIN
  IF c IS NOT NULL THEN
    RETURN ARRAY(SELECT jsonb_array_elements_text(c->'values'));
  ELSIF EXISTS (
    SELECT
    FROM jsonb_array_elements(conditions) e
    WHERE e->>'field' = 'finished'
      AND (e->>'is_negated')::boolean IS NOT TRUE) THEN
    RETURN '{succeeded,dead,canceled}';
  END IF;
  RETURN '{queued,blocked,running,suspended,failed,succeeded,dead,canceled}';
END $$;

-- Jobs of jobs_waiting are not in the order of their ids, so all of them are read. If they are more
-- than a page looks at, the primary key meets them often enough.
CREATE OR REPLACE FUNCTION _make_waiting_source(wait text)
RETURNS text
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  most int := 20000;
  n int := (
    SELECT count(*)
    FROM (
      SELECT FROM jobs j WHERE j.wait = wait AND j.wait_key IS NOT NULL LIMIT most + 1) w);
BEGIN
  IF n > most THEN RETURN ''; END IF;
  RETURN format(
    ' AND j.id = ANY (ARRAY('
    'SELECT w.id FROM jobs w WHERE w.wait = %L AND w.wait_key IS NOT NULL LIMIT %s))', wait, most);
END $$;

-- Bounds of the id that all values of the conditions lie within.
CREATE OR REPLACE FUNCTION _make_id_bounds(conditions jsonb)
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT coalesce(string_agg(format(
    ' AND id >= (SELECT min(v->>0)::uuid FROM jsonb_array_elements($1->%1$s->''values'') v)'
    ' AND id <= (SELECT max(v->>1)::uuid FROM jsonb_array_elements($1->%1$s->''values'') v)',
    c.place - 1), ''), '')
  FROM jsonb_array_elements(conditions) WITH ORDINALITY c(condition, place)
  WHERE c.condition->>'field' = 'id'
    AND (c.condition->>'is_negated')::boolean IS NOT TRUE
$$;

-- Bounds of the end as constants, because the planner leaves out days only for these. In whole
-- seconds, which no setting of the session changes; the condition itself is exact.
CREATE OR REPLACE FUNCTION _make_finished_bounds(conditions jsonb, t timestamptz)
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT coalesce(string_agg(format(
    CASE
      WHEN c->>'operator' IN ('<', '<=') THEN ' AND f.finished_at <= to_timestamp(%s + 1)'
      ELSE ' AND f.finished_at >= to_timestamp(%s)'
    END,
    floor(extract(epoch FROM _read_filter_time(c->'values'->0, t)))), ''), '')
  FROM jsonb_array_elements(conditions) c
  WHERE c->>'field' = 'finished'
    AND (c->>'is_negated')::boolean IS NOT TRUE
$$;

-- Returns the SQL of the jobs that may match. If the filter names states, it reads only what can
-- have them: running jobs through claims, failed and blocked ones through their indexes, limited
-- and unsupported ones through jobs_waiting if they are few. All else goes by the primary key.
CREATE OR REPLACE FUNCTION _make_page_sources(conditions jsonb, t timestamptz)
RETURNS text
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  unfinished text := 'SELECT j.id, j.seq,'
    ' _job_state(j.fence, j.wait, j.failed, j.wait_key) AS state, j.wait, j.wait_key,'
    ' j.failed, j.fence, NULL::bigint AS epoch, j.lane, j.type, j.queue, j.tenant, j.priority,'
    ' j.attempt, j.max_attempts, j.version, j.run_at, j.created_at,'
    ' NULL::timestamptz AS started_at, NULL::timestamptz AS finished_at, j.ended_at,'
    ' j.idempotency_key, j.route_key, j.order_key,'
    ' j.limit_keys, j.schedule_id, j.created_by, j.payload, j.meta, NULL::jsonb AS error'
    ' FROM jobs j WHERE j.id < $2';
  finished text := 'SELECT f.id, f.seq, f.state, NULL::text AS wait, NULL::text AS wait_key,'
    ' false AS failed, NULL::bigint AS fence, f.epoch, f.lane, f.type, f.queue, f.tenant,'
    ' f.priority, f.attempt,'
    ' f.max_attempts, f.version, f.run_at, f.created_at, f.started_at, f.finished_at,'
    ' NULL::timestamptz AS ended_at, f.idempotency_key, f.route_key, f.order_key, f.limit_keys,'
    ' f.schedule_id, f.created_by, f.payload, f.meta, f.error'
    ' FROM finished_jobs f WHERE f.id < $2';
  words text[] := _read_wanted_states(conditions);
  bounds text := _make_id_bounds(conditions);
  sources text[] := '{}';
BEGIN
  IF words <@ '{running,failed,retrying,blocked,limited,unsupported,succeeded,dead,canceled}' THEN
    IF 'running' = ANY (words) THEN
      sources := sources || (unfinished || ' AND j.id = ANY (ARRAY('
        'SELECT unnest(c.job_ids) FROM claims c)) AND j.fence <> 0');
    END IF;
    IF words && '{failed,retrying}' THEN
      sources := sources || (unfinished || ' AND j.failed');
    END IF;
    IF 'blocked' = ANY (words) THEN
      sources := sources || (unfinished || ' AND j.wait = ''blocked''');
    END IF;
    IF 'limited' = ANY (words) THEN
      sources := sources || (unfinished || _make_waiting_source('parked'));
    END IF;
    IF 'unsupported' = ANY (words) THEN
      sources := sources || (unfinished || _make_waiting_source('unsupported'));
    END IF;
  ELSE
    sources := ARRAY[unfinished];
  END IF;
  IF words && '{succeeded,dead,canceled}' THEN
    -- The planner leaves out the partitions of other states and, with bounds of finished_at, days.
    sources := sources || (finished || format(
      ' AND f.state = ANY (%L)', ARRAY(
        SELECT w.word
        FROM unnest('{succeeded,dead,canceled}'::text[]) w(word)
        WHERE w.word = ANY (words))) || _make_finished_bounds(conditions, t));
  END IF;
  IF sources = '{}' THEN sources := ARRAY[unfinished || ' AND false']; END IF;
  RETURN (
    SELECT string_agg(
      '(' || s.source || bounds || ' ORDER BY id DESC LIMIT $3)', ' UNION ALL ' ORDER BY s.place)
    FROM unnest(sources) WITH ORDINALITY s(source, place));
END $$;

-- Returns the statement that job_page() runs: `$1` are the conditions, `$2` is the id below which
-- it starts, `$3` the number of rows that it may look at, `$4` the time. Each source is read in the
-- order of an index, so that PostgreSQL merges them and stops after these rows. The conditions are
-- evaluated outside, row by row.
CREATE OR REPLACE FUNCTION _make_page_sql(conditions jsonb, t timestamptz)
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT format(
    'SELECT x.*, %s AS is_match'
    ' FROM (SELECT * FROM (%s) u ORDER BY u.id DESC LIMIT $3) x',
    (
      SELECT coalesce(
        string_agg(_make_condition_sql(c.condition, c.place::int - 1), ' AND '), 'true')
      FROM jsonb_array_elements(conditions) WITH ORDINALITY c(condition, place)),
    _make_page_sources(conditions, t))
$$;
