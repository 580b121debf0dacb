-- after: job_cause job_by_id
-- Says which jobs a blocked job waits for: names the first five, counts the others, and says what
-- keeps the first. If they have all ended, a node should have unblocked the job.
CREATE OR REPLACE FUNCTION _explain_blocked_job(j jobs, depth int, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  parents int;
  open_parents uuid[];
  first_cause job_cause;
BEGIN
  IF j.wait IS DISTINCT FROM 'blocked' THEN RETURN; END IF;
  SELECT count(*), array_agg(d.parent ORDER BY d.place) FILTER (WHERE d.outcome IS NULL)
  INTO parents, open_parents
  FROM dependencies d
  WHERE d.child = j.id
    AND d.tenant = j.tenant;
  IF open_parents IS NULL THEN
    RETURN QUERY SELECT * FROM _explain_decided_job(j, t);
    RETURN;
  END IF;
  IF depth > 0 THEN
    SELECT * INTO first_cause
    FROM _list_job_causes(open_parents[1], depth - 1, t) c
    ORDER BY c.rank
    LIMIT 1;
  END IF;
  RETURN QUERY
    SELECT
      3,
      'blocked',
      format(
        'it waits for %s%s', string_agg(
          format('job %s (%s, %s)', o.parent, v.type, v.state), ', ' ORDER BY o.number),
        CASE
          WHEN cardinality(open_parents) > 5
            THEN format(' and %s more', cardinality(open_parents) - 5)
          ELSE ''
        END)
        || coalesce('. The first: ' || first_cause.reason, ''),
      NULL::timestamptz,
      j.created_at,
      coalesce(first_cause.needs_action, false),
      ARRAY[format('watchbill jobs why %s', open_parents[1])],
      jsonb_strip_nulls(jsonb_build_object(
        'parents', parents, 'open', cardinality(open_parents), 'first', open_parents[1],
        'first_cause', first_cause.cause))
    FROM unnest(open_parents[1:5]) WITH ORDINALITY o(parent, number)
    LEFT JOIN LATERAL (
      SELECT x.type, x.state
      FROM job_by_id(o.parent) x
      WHERE x.tenant = j.tenant) v ON true;
END $$;

-- Says that the jobs for which a job waits have ended, and whether a node should have noticed.
CREATE OR REPLACE FUNCTION _explain_decided_job(j jobs, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  noted_at timestamptz := (
    SELECT min(k.at)
    FROM dependency_checks k
    WHERE k.id = j.id);
  is_late boolean := coalesce(noted_at < t - interval '15 seconds', false);
BEGIN
  RETURN QUERY
    SELECT
      3,
      'blocked',
      'the jobs that it waits for have ended; '
        || CASE
          WHEN is_late
            THEN format('no node has unblocked it since %s', date_trunc('second', noted_at))
          ELSE 'a node unblocks it soon'
        END,
      NULL::timestamptz,
      noted_at,
      is_late,
      CASE WHEN is_late THEN ARRAY['watchbill doctor'] ELSE '{}' END,
      '{"open": 0}'::jsonb;
END $$;

-- Says when a job is due and why not before: it was given so, or it waits for its next attempt. A
-- delay of more than an hour decides before what a person could change meanwhile. A job that has
-- been due for 15 seconds and is still not ready is late: no node makes delayed jobs ready.
CREATE OR REPLACE FUNCTION _explain_delay(j jobs, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  last record;
  retry text[] := ARRAY[format('watchbill jobs retry %s', j.id)];
BEGIN
  IF _is_suspended(j.wait, j.wait_key) THEN RETURN; END IF;
  IF j.run_at > t THEN
    SELECT a.outcome, coalesce(a.error->>'message', a.error->>'kind') AS message INTO last
    FROM attempts a
    WHERE a.job_id = j.id
      AND a.ended_at = j.ended_at
    ORDER BY a.run DESC
    LIMIT 1;
    RETURN QUERY
      SELECT
        CASE WHEN j.run_at > t + interval '1 hour' THEN 4 ELSE 8 END,
        'delayed',
        CASE
          WHEN j.failed THEN format(
            'attempt %s of %s failed (%s); the next one is due at %s, in %s',
            j.attempt, j.max_attempts, coalesce(last.message, 'unknown'), j.run_at,
            _show_distance(j.run_at, t))
          WHEN last.outcome = 'snoozed' THEN format(
            'its handler put it off until %s, in %s', j.run_at, _show_distance(j.run_at, t))
          WHEN last.outcome = 'lost' THEN format(
            'its node was lost; the next attempt is due at %s, in %s',
            j.run_at, _show_distance(j.run_at, t))
          ELSE format('it is due at %s, in %s', j.run_at, _show_distance(j.run_at, t))
        END,
        j.run_at,
        coalesce(j.ended_at, j.created_at),
        false,
        retry,
        jsonb_strip_nulls(jsonb_build_object(
          'due_at', j.run_at, 'attempt', j.attempt, 'last_outcome', last.outcome,
          'error', last.message));
  ELSIF j.wait = 'delayed' AND j.run_at < t - interval '15 seconds' THEN
    RETURN QUERY
      SELECT
        8,
        'late',
        format(
          'it is due since %s, and no node has made it ready', date_trunc('second', j.run_at)),
        NULL::timestamptz,
        j.run_at,
        true,
        ARRAY['watchbill doctor'] || retry,
        '{}'::jsonb;
  END IF;
END $$;

-- Says which pauses keep a job, by whom and since when.
CREATE OR REPLACE FUNCTION _explain_pauses(j jobs)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    SELECT
      5,
      'paused',
      _describe_pause(p),
      NULL::timestamptz,
      p.at,
      true,
      ARRAY[concat_ws(
        ' ', 'watchbill queues resume', _shell_word(p.queue), '--type ' || _shell_word(p.type))],
      jsonb_strip_nulls(jsonb_build_object(
        'queue', p.queue, 'type', p.type, 'by', p.by, 'reason', p.reason))
    FROM pauses p
    WHERE (p.queue IS NULL OR p.queue = j.queue)
      AND (p.type IS NULL OR p.type = j.type)
    ORDER BY p.queue, p.type;
END $$;

CREATE OR REPLACE FUNCTION _describe_pause(p pauses)
RETURNS text
LANGUAGE sql STABLE
RETURN format(
  '%s is paused by %s since %s%s',
  concat_ws(' in ', 'type ' || (p).type, 'queue ' || (p).queue), coalesce((p).by, 'unknown'),
  date_trunc('second', (p).at), coalesce(': ' || (p).reason, ''));

-- A job whose node was lost is claimed alone.
CREATE OR REPLACE FUNCTION _explain_quarantine(j jobs)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF j.class <> 2 THEN RETURN; END IF;
  RETURN QUERY
    SELECT
      11,
      'quarantined',
      'its last node was lost, so it starts on a node that runs nothing else, and nothing else '
        'starts beside it',
      NULL::timestamptz,
      j.ended_at,
      false,
      ARRAY[format('watchbill jobs show %s', j.id)],
      jsonb_build_object('lost', j.lost);
END $$;
