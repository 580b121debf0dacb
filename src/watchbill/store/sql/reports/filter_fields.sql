-- The fields of the filter language (docs/reference/filters.md), the kind of their values, and the
-- SQL that reads each of them from a row `x` of job_page(), at the time $4. The fields payload and
-- meta have a path.
CREATE OR REPLACE FUNCTION _filter_fields()
RETURNS TABLE (field text, kind text, expression text)
LANGUAGE sql IMMUTABLE AS $$
  VALUES
    ('id', 'id', 'x.id'),
    ('state', 'state', 'x.state'),
    ('waits', 'state', 'x.state'),
    ('type', 'text', 'x.type'),
    ('queue', 'text', 'x.queue'),
    ('tenant', 'text', 'x.tenant'),
    ('key', 'text', 'x.idempotency_key'),
    ('route', 'text', 'x.route_key'),
    ('order', 'text', 'x.order_key'),
    ('by', 'text', 'x.created_by'),
    ('schedule', 'text', 'CASE WHEN x.schedule_id IS NOT NULL THEN x.meta->>''schedule'' END'),
    ('node', 'text', '_find_holder(x.fence, x.epoch)'),
    ('limit', 'list', 'x.limit_keys'),
    ('error', 'part', '_show_error(_find_error(x.id, x.ended_at, x.error))'),
    ('message', 'text', '_find_error(x.id, x.ended_at, x.error)->>''message'''),
    ('failure', 'number', '_find_failure(x.type, _find_error(x.id, x.ended_at, x.error))'),
    ('seq', 'number', 'x.seq'),
    ('priority', 'number', 'x.priority'),
    ('attempt', 'number', 'x.attempt'),
    ('lane', 'number', 'x.lane'),
    ('version', 'number', 'x.version'),
    ('created', 'time', 'x.created_at'),
    ('due', 'time', 'x.run_at'),
    ('started', 'time', '_find_start(x.id, x.fence, x.started_at)'),
    ('finished', 'time', 'x.finished_at'),
    ('run', 'number', 'extract(epoch FROM coalesce(x.finished_at, $4)'
      ' - _find_start(x.id, x.fence, x.started_at))'),
    ('wait', 'number', 'extract(epoch FROM coalesce(_find_start(x.id, x.fence, x.started_at),'
      ' x.finished_at, $4) - x.run_at)'),
    ('payload', 'json', 'x.payload'),
    ('meta', 'json', 'x.meta')
$$;

-- The name of the node that holds or last held a job; `epoch` is that of a finished job.
CREATE OR REPLACE FUNCTION _find_holder(fence bigint, epoch bigint)
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT n.name
  FROM nodes n
  WHERE n.epoch = coalesce(
    _find_holder.epoch,
    (SELECT c.epoch FROM claims c WHERE c.fence = nullif(_find_holder.fence, 0)))
$$;

-- The error of a finished job, or that of the last run of an unfinished one, which ended then.
CREATE OR REPLACE FUNCTION _find_error(id uuid, ended_at timestamptz, error jsonb)
RETURNS jsonb
LANGUAGE sql STABLE AS $$
  SELECT coalesce(_find_error.error, (
    SELECT a.error
    FROM attempts a
    WHERE a.job_id = _find_error.id
      AND a.ended_at = _find_error.ended_at
    ORDER BY a.run DESC
    LIMIT 1))
$$;

-- The group of failures of an error; NULL without an error. It is computed, because rows that are
-- older than the column `failure` do not have it.
CREATE OR REPLACE FUNCTION _find_failure(type text, error jsonb)
RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN error IS NOT NULL THEN _failure_of(type, error) END;

CREATE OR REPLACE FUNCTION _show_error(error jsonb)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN concat_ws(': ', coalesce(error->>'type', error->>'kind'), error->>'message');

-- When the last run of a job started. `started_at` is that of a finished job.
CREATE OR REPLACE FUNCTION _find_start(id uuid, fence bigint, started_at timestamptz)
RETURNS timestamptz
LANGUAGE sql STABLE AS $$
  SELECT coalesce(_find_start.started_at, (
    SELECT r.started_at
    FROM runs r
    WHERE r.job_id = _find_start.id
      AND r.fence = _find_start.fence))
$$;

-- Reads a time of a filter: a text, or a number of seconds from the time `t`.
CREATE OR REPLACE FUNCTION _read_filter_time(value jsonb, t timestamptz)
RETURNS timestamptz
LANGUAGE sql STABLE
RETURN CASE jsonb_typeof(value)
    WHEN 'number' THEN t + make_interval(secs => (value#>>'{}')::float8)
    ELSE (value#>>'{}')::timestamptz
  END;

-- Raises unless `conditions` is what the parser in src/watchbill/filters/ makes: an array of at
-- most 20 objects with a field, an operator and values. All that job_page() casts is checked here.
CREATE OR REPLACE FUNCTION _check_conditions(conditions jsonb)
RETURNS void
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  c jsonb;
  kind text;
BEGIN
  IF jsonb_typeof(conditions) IS DISTINCT FROM 'array' OR jsonb_array_length(conditions) > 20
    OR octet_length(conditions::text) > 1000000 THEN
    RAISE EXCEPTION 'the conditions are invalid'
      USING ERRCODE = 'WB003',
        HINT = 'give a JSON array of at most 20 conditions, with at most 1000000 bytes';
  END IF;
  FOR c IN SELECT e FROM jsonb_array_elements(conditions) e LOOP
    kind := (SELECT f.kind FROM _filter_fields() f WHERE f.field = c->>'field');
    IF kind IS NULL
        OR NOT coalesce(_is_valid_operator(kind, c->>'operator', c), false)
        OR jsonb_typeof(c->'values') IS DISTINCT FROM 'array'
        OR jsonb_array_length(c->'values') NOT BETWEEN 1 AND 100
        OR NOT coalesce(_are_valid_values(kind, c->>'operator', c->'values'), false) THEN
      RAISE EXCEPTION 'the condition % is invalid', left(c::text, 200)
        USING ERRCODE = 'WB003', HINT = 'docs/reference/filters.md lists fields and operators';
    END IF;
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION _is_valid_operator(kind text, operator text, condition jsonb)
RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
      WHEN kind IN ('id', 'state') THEN operator = '='
      WHEN kind = 'part' THEN operator = 'has'
      WHEN kind IN ('text', 'list') THEN operator IN ('=', 'like')
      WHEN kind = 'number' THEN operator IN ('=', '<', '<=', '>', '>=')
      WHEN kind = 'time' THEN operator IN ('<', '<=', '>', '>=')
      WHEN kind = 'json' THEN operator IN ('=', 'like', '<', '<=', '>', '>=')
        AND (operator = '=' OR jsonb_typeof(condition->'path') = 'array')
    END
    AND (
      condition->'is_negated' IS NULL OR jsonb_typeof(condition->'is_negated') = 'boolean')
$$;

CREATE OR REPLACE FUNCTION _are_valid_values(kind text, operator text, vals jsonb)
RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT bool_and(
    CASE
      WHEN kind = 'id' THEN jsonb_typeof(v) = 'array' AND jsonb_array_length(v) = 2
        AND v->>0 ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
        AND v->>1 ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
      WHEN kind = 'state' THEN v#>>'{}' = ANY (
        '{blocked,queued,running,suspended,failed,succeeded,dead,canceled,'
        'ready,scheduled,retrying,paused,'
        'unsupported,limited,unmatched}'::text[])
      WHEN kind = 'json' AND operator = '=' THEN jsonb_typeof(v) = 'object'
      WHEN kind = 'number' OR kind = 'json' AND operator <> 'like' THEN
        jsonb_typeof(v) = 'number' AND length(v::text) < 40
      WHEN kind = 'time' THEN CASE jsonb_typeof(v)
          WHEN 'number' THEN length(v::text) < 40 AND abs((v#>>'{}')::numeric) < 1e10
          WHEN 'string' THEN v#>>'{}'
            ~ '^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?\+00:00$'
        END
      ELSE jsonb_typeof(v) = 'string'
    END)
  FROM jsonb_array_elements(vals) v
$$;

-- Returns the SQL of a condition, which stands at this place of the array `$1`. It consists of
-- fixed parts only: what the caller has written is read from `$1` when the statement runs.
CREATE OR REPLACE FUNCTION _make_condition_sql(condition jsonb, place int)
RETURNS text
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  field text;
  kind text;
  expression text;
  given text := format('($1->%s->''values'')', place);
  texts text := format('ARRAY(SELECT jsonb_array_elements_text(%s))', given);
  operator text := CASE condition->>'operator'
      WHEN '<' THEN '<'
      WHEN '<=' THEN '<='
      WHEN '>' THEN '>'
      WHEN '>=' THEN '>='
      WHEN 'like' THEN 'like'
      ELSE '='
    END;
  compared text := CASE operator WHEN 'like' THEN 'LIKE' ELSE '=' END;
  result text;
BEGIN
  SELECT f.field, f.kind, f.expression
  INTO field, kind, expression
  FROM _filter_fields() f
  WHERE f.field = condition->>'field';
  result := CASE
      WHEN kind = 'id' THEN format(
        'EXISTS (SELECT FROM jsonb_array_elements(%s) r'
        ' WHERE x.id BETWEEN (r->>0)::uuid AND (r->>1)::uuid)', given)
      WHEN kind = 'state' THEN format(
        '(x.state = ANY (%1$s) OR x.finished_at IS NULL AND _describe_job_wait('
        'x.fence, x.wait, x.failed, x.queue, x.type, x.lane, x.wait_key) = ANY (%1$s))', texts)
      WHEN kind = 'text' THEN format('%s %s ANY (%s)', expression, compared, texts)
      WHEN kind = 'list' THEN format(
        'EXISTS (SELECT FROM unnest(%s) k(key) WHERE k.key %s ANY (%s))',
        expression, compared, texts)
      WHEN kind = 'part' THEN format(
        'EXISTS (SELECT FROM unnest(%s) p(part) WHERE strpos(%s, p.part) > 0)', texts, expression)
      WHEN kind = 'number' AND operator = '=' THEN format(
        '(%s)::numeric = ANY (%s::numeric[])', expression, texts)
      WHEN kind = 'number' THEN format(
        '(%s)::numeric %s (%s->>0)::numeric', expression, operator, given)
      WHEN kind = 'time' THEN format(
        '%s %s (SELECT _read_filter_time(%s->0, $4))', expression, operator, given)
      WHEN operator = '=' THEN format(
        '%s @> ANY (ARRAY(SELECT jsonb_array_elements(%s)))', expression, given)
      WHEN operator = 'like' THEN format(
        '%s #>> %s LIKE ANY (%s)', expression, _make_path_sql(place), texts)
      ELSE format(
        'CASE WHEN jsonb_typeof(%1$s #> %2$s) = ''number'''
        ' THEN (%1$s #>> %2$s)::numeric %3$s (%4$s->>0)::numeric END',
        expression, _make_path_sql(place), operator, given)
    END;
  RETURN format(
    CASE WHEN (condition->>'is_negated')::boolean THEN '(%s) IS NOT TRUE' ELSE '(%s)' END, result);
END $$;

CREATE OR REPLACE FUNCTION _make_path_sql(place int)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN format('ARRAY(SELECT jsonb_array_elements_text($1->%s->''path''))', place);
