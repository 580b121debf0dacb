-- after: page_sources
-- Lists jobs that match the conditions of a filter (docs/reference/filters.md), newest first,
-- starting after the job `after`. Looks at no more than `budget` jobs. The last row of the result
-- has no id: `next` is where the next page starts, `scanned` says how many jobs this call has
-- looked at, `created_at` when the last of them was enqueued, `is_complete` that there are no more.
-- Where few jobs can match because of their state, it looks only at those: see _make_page_sources.
-- Runs no text of the caller: it joins fixed fragments, which read their values from `conditions`.
CREATE OR REPLACE FUNCTION job_page(
  conditions jsonb DEFAULT '[]',
  after uuid DEFAULT NULL,
  budget int DEFAULT 20000,
  max int DEFAULT 50,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (
  id uuid,
  seq bigint,
  state text,
  waits text,
  type text,
  queue text,
  tenant text,
  priority smallint,
  attempt smallint,
  max_attempts smallint,
  run_at timestamptz,
  created_at timestamptz,
  started_at timestamptz,
  finished_at timestamptz,
  node text,
  error text,
  next uuid,
  scanned int,
  is_complete boolean
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  limit_of_rows int := least(greatest(coalesce(budget, 20000), 1), 100000);
  wanted int := least(greatest(coalesce(max, 50), 1), 10000);
  found int := 0;
  looked int := 0;
  last_id uuid;
  last_seq bigint;
  last_created timestamptz;
  is_full boolean := false;
  r record;
BEGIN
  PERFORM _check_conditions(conditions);
  FOR r IN EXECUTE _make_page_sql(conditions, t)
    USING
      conditions, coalesce(after, 'ffffffff-ffff-ffff-ffff-ffffffffffff'), limit_of_rows + 10, t
  LOOP
    -- Jobs of two tenants may have one id. A page ends between two ids, so that none is left out.
    is_full := (found >= wanted OR looked >= limit_of_rows) AND r.id <> last_id;
    EXIT WHEN is_full;
    CONTINUE WHEN r.id = last_id AND r.seq = last_seq; -- two sources have the job
    looked := looked + 1;
    last_id := r.id;
    last_seq := r.seq;
    last_created := r.created_at;
    CONTINUE WHEN r.is_match IS NOT TRUE;
    found := found + 1;
    id := r.id;
    seq := r.seq;
    state := r.state;
    waits := CASE WHEN r.finished_at IS NULL THEN
        _describe_job_wait(r.fence, r.wait, r.failed, r.queue, r.type, r.lane, r.wait_key)
      END;
    type := r.type;
    queue := r.queue;
    tenant := r.tenant;
    priority := r.priority;
    attempt := r.attempt;
    max_attempts := r.max_attempts;
    run_at := r.run_at;
    created_at := r.created_at;
    started_at := _find_start(r.id, r.fence, r.started_at);
    finished_at := r.finished_at;
    node := _find_holder(r.fence, r.epoch);
    error := nullif(left(_show_error(_find_error(r.id, r.ended_at, r.error)), 500), '');
    RETURN NEXT;
  END LOOP;
  SELECT NULL::uuid, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  INTO id, seq, state, waits, type, queue, tenant, priority, attempt, max_attempts, run_at;
  started_at := NULL;
  finished_at := NULL;
  node := NULL;
  error := NULL;
  created_at := last_created;
  next := CASE WHEN is_full THEN last_id END;
  scanned := looked;
  is_complete := NOT is_full;
  RETURN NEXT;
END $$;
