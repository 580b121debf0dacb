-- after: filter_fields
-- Lists what has ended in (since, until], the oldest first: jobs that have finished, and runs that
-- failed and left their job to be tried again. Only those that match the conditions of a filter
-- (docs/reference/filters.md), at most `max`. `until` is two seconds ago, because a transaction
-- that is still open may add older ones. The last row has no id: `ended_at` is `until`, which the
-- next call takes as `since`, and `total` says how many there were. Looks back one minute at most;
-- with no `since` at nothing. Runs no text of the caller, as job_page(), and locks nothing.
CREATE OR REPLACE FUNCTION _list_ends(
  conditions jsonb DEFAULT '[]',
  since timestamptz DEFAULT NULL,
  max int DEFAULT 50,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (
  id uuid,
  state text,
  outcome text,
  type text,
  queue text,
  tenant text,
  attempt smallint,
  max_attempts smallint,
  started_at timestamptz,
  ended_at timestamptz,
  run_at timestamptz,
  node text,
  error text,
  total bigint
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  until timestamptz := t - interval '2 seconds';
  found bigint := 0;
  r record;
BEGIN
  PERFORM _check_conditions(conditions);
  FOR r IN EXECUTE _make_ends_sql(conditions)
    USING
      conditions, greatest(coalesce(since, until), t - interval '1 minute'), until, t,
      least(greatest(coalesce(max, 50), 0), 10000)
  LOOP
    found := r.total;
    id := r.id;
    state := r.state;
    outcome := r.outcome;
    type := r.type;
    queue := r.queue;
    tenant := r.tenant;
    attempt := r.attempt;
    max_attempts := r.max_attempts;
    started_at := r.started_at;
    ended_at := r.ended;
    run_at := CASE WHEN r.finished_at IS NULL AND r.fence = 0 THEN r.run_at END;
    node := (SELECT n.name FROM nodes n WHERE n.epoch = r.epoch);
    error := nullif(left(_show_error(r.error), 500), '');
    total := NULL;
    RETURN NEXT;
  END LOOP;
  SELECT NULL::uuid, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  INTO id, state, outcome, type, queue, tenant, attempt, max_attempts;
  started_at := NULL;
  ended_at := until;
  run_at := NULL;
  node := NULL;
  error := NULL;
  total := found;
  RETURN NEXT;
END $$;

-- Returns the statement that _list_ends() runs: `$1` are the conditions, `$2` and `$3` the bounds
-- of the end, `$4` is the time, `$5` the number of rows. The columns are those that
-- _filter_fields() reads. Both sources are found through the BRIN indexes of the time of the end.
CREATE OR REPLACE FUNCTION _make_ends_sql(conditions jsonb)
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT 'SELECT x.*, count(*) OVER () AS total FROM ('
    'SELECT f.id, f.seq, f.state, coalesce(f.outcome, f.state) AS outcome, NULL::text AS wait,'
    ' NULL::text AS wait_key, false AS failed, 0::bigint AS fence, f.epoch, f.lane, f.type,'
    ' f.queue, f.tenant, f.priority, f.attempt, f.max_attempts, f.version, f.run_at, f.created_at,'
    ' f.started_at, f.finished_at, f.finished_at AS ended, NULL::timestamptz AS ended_at,'
    ' f.idempotency_key, f.route_key, f.order_key, f.limit_keys, f.schedule_id, f.created_by,'
    ' f.payload, f.meta, f.error'
    ' FROM finished_jobs f'
    ' WHERE f.finished_at > $2 AND f.finished_at <= $3'
    ' UNION ALL '
    'SELECT j.id, j.seq, ''failed'', a.outcome, j.wait, j.wait_key, true, j.fence, a.epoch,'
    ' j.lane, j.type, j.queue, j.tenant, j.priority, a.attempt, j.max_attempts, j.version,'
    ' j.run_at, j.created_at, a.started_at, NULL, a.ended_at, a.ended_at,'
    ' j.idempotency_key, j.route_key, j.order_key, j.limit_keys, j.schedule_id, j.created_by,'
    ' j.payload, j.meta, a.error'
    ' FROM attempts a'
    ' JOIN jobs j ON j.id = a.job_id AND j.tenant = a.tenant'
    ' WHERE a.ended_at > $2 AND a.ended_at <= $3'
    ' AND a.outcome IN (''failed'', ''timed_out'', ''lost'')) x WHERE '
    || coalesce(
      string_agg(_make_condition_sql(c.condition, c.place::int - 1), ' AND '), 'true')
    || ' ORDER BY x.ended, x.id LIMIT $5'
  FROM jsonb_array_elements(conditions) WITH ORDINALITY c(condition, place)
$$;
