-- after: job_cause job_by_id
-- Says why a job does not run: lists every cause that holds, the deciding one first. The type
-- job_cause describes the columns, docs/reference/sql.md the causes. Reads a bounded number of rows
-- through indexes, and locks nothing.
CREATE OR REPLACE FUNCTION why_job(id uuid, now timestamptz DEFAULT NULL)
RETURNS TABLE (
  cause text,
  reason text,
  until timestamptz,
  rank int,
  needs_action boolean,
  since timestamptz,
  way_out text[],
  detail jsonb
)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    SELECT c.cause, c.reason, c.until, c.rank, c.needs_action, c.since, c.way_out, c.detail
    FROM _list_job_causes(id, 5, _clock(now)) WITH ORDINALITY
      c(rank, cause, reason, until, since, needs_action, way_out, detail, number)
    ORDER BY c.rank, c.number;
END $$;

-- Lists the causes why a job does not run. `depth`: how far to follow the jobs that it waits for.
-- The place of the job among others is found for the job itself only, whose depth is 5.
CREATE OR REPLACE FUNCTION _list_job_causes(id uuid, depth int, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  j jobs;
BEGIN
  SELECT * INTO j FROM jobs x WHERE x.id = id;
  IF NOT FOUND THEN
    RETURN QUERY SELECT * FROM _explain_finished_job(id);
    IF NOT FOUND THEN RETURN QUERY SELECT * FROM _explain_missing_job(id, t); END IF;
    RETURN;
  END IF;
  IF j.fence <> 0 THEN
    RETURN QUERY SELECT * FROM _explain_held_job(j, t);
    RETURN QUERY SELECT * FROM _explain_erasure(j.tenant);
  ELSE
    RETURN QUERY SELECT * FROM _explain_waiting_job(j, depth, t);
  END IF;
END $$;

-- Lists what keeps an unfinished job that no node holds. If nothing does, says so.
CREATE OR REPLACE FUNCTION _explain_waiting_job(j jobs, depth int, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  causes job_cause[] := ARRAY(
    SELECT c FROM _explain_erasure(j.tenant) c
    UNION ALL
    SELECT c FROM _explain_blocked_job(j, depth, t) c
    UNION ALL
    SELECT c FROM _explain_suspended_job(j, t) c
    UNION ALL
    SELECT c FROM _explain_delay(j, t) c
    UNION ALL
    SELECT c FROM _explain_pauses(j) c
    UNION ALL
    SELECT c FROM _explain_nodes(j, t) c
    UNION ALL
    SELECT c FROM _explain_limits(j, t) c
    UNION ALL
    SELECT c FROM _explain_queue_limit(j) c
    UNION ALL
    SELECT c FROM _explain_quarantine(j) c);
BEGIN
  IF depth = 5
    AND j.wait IS DISTINCT FROM 'blocked'
    AND NOT _is_suspended(j.wait, j.wait_key) THEN
    causes := causes || ARRAY(
      SELECT c FROM _explain_lock(j, t) c
      UNION ALL
      SELECT c FROM _explain_full_nodes(j, t) c
      UNION ALL
      SELECT c FROM _explain_place(j, t) c);
  END IF;
  RETURN QUERY SELECT * FROM unnest(causes);
  IF cardinality(causes) = 0 THEN RETURN QUERY SELECT * FROM _explain_readiness(j, t); END IF;
  RETURN QUERY SELECT * FROM _explain_expiry(j, t);
END $$;

-- Says when a job expires that has not started. This keeps it from nothing, but explains its end.
CREATE OR REPLACE FUNCTION _explain_expiry(j jobs, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF j.expires_at IS NULL THEN RETURN; END IF;
  RETURN QUERY
    SELECT
      CASE WHEN j.expires_at <= t THEN 1 ELSE 15 END,
      'expires',
      CASE
        WHEN j.expires_at <= t THEN format(
          'it expired at %s, and ends as canceled within seconds',
          date_trunc('second', j.expires_at))
        ELSE format(
          'it ends as canceled if it has not started by %s', date_trunc('second', j.expires_at))
      END,
      j.expires_at,
      NULL::timestamptz,
      false,
      '{}'::text[],
      '{}'::jsonb;
END $$;

-- Says how a job ended, and who canceled it.
CREATE OR REPLACE FUNCTION _explain_finished_job(id uuid)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  v job;
  canceled_by text;
BEGIN
  SELECT * INTO v FROM job_by_id(id);
  IF NOT FOUND THEN RETURN; END IF;
  -- cancel() records itself with the time at which the job ended, and audit has an index by time.
  SELECT a.actor INTO canceled_by
  FROM audit a
  WHERE v.state = 'canceled'
    AND a.at = v.finished_at
    AND a.action = 'cancel'
    AND a.subject = 'job ' || v.id;
  RETURN QUERY
    SELECT
      0,
      'finished',
      format('it is %s, since %s', v.state, date_trunc('second', v.finished_at))
        || coalesce(', by ' || canceled_by, '')
        || coalesce(': ' || nullif(v.error->>'message', ''), ''),
      NULL::timestamptz,
      v.finished_at,
      false,
      CASE
        WHEN v.state = 'succeeded' THEN '{}'
        ELSE ARRAY[format('watchbill jobs retry %s', v.id)]
      END,
      jsonb_strip_nulls(jsonb_build_object(
        'state', v.state, 'outcome', v.outcome, 'error', v.error - 'traceback',
        'canceled_by', canceled_by));
END $$;

-- Says why there may be no job of this id: where it was looked for, and for whom.
CREATE OR REPLACE FUNCTION _explain_missing_job(id uuid, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  made_at timestamptz := _extract_uuid_time(id);
BEGIN
  RETURN QUERY
    SELECT
      0,
      'not_found',
      format(
        'there is no job %s in schema %s of database %s', id, current_schema(), current_database())
        || CASE
          WHEN _acts_for_all_tenants() THEN ''
          ELSE format('; a job of another tenant is not shown: %s', _describe_caller())
        END
        || CASE
          WHEN made_at < t - interval '1 day' THEN format(
            '; its id was made at %s, so it may have ended and been removed since',
            date_trunc('second', made_at))
          ELSE '; a transaction that has not committed yet may have enqueued it'
        END,
      NULL::timestamptz,
      NULL::timestamptz,
      false,
      '{}'::text[],
      jsonb_build_object('database', current_database(), 'schema', current_schema());
END $$;

CREATE OR REPLACE FUNCTION _explain_erasure(tenant text)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  RETURN QUERY
    SELECT
      2,
      'erased',
      format(
        'its tenant %s is being erased, since %s', tenant, date_trunc('second', e.started_at)),
      NULL::timestamptz,
      e.started_at,
      false,
      '{}'::text[],
      '{}'::jsonb
    FROM erasures e
    WHERE e.tenant = tenant;
END $$;

-- Says of a job that nothing keeps when it starts. If it should have started long ago, says that
-- this is not explained.
CREATE OR REPLACE FUNCTION _explain_readiness(j jobs, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  -- The jobs before it that belong to other tenants are not seen by everybody.
  is_late boolean := j.run_at < t - interval '15 seconds' AND _acts_for_all_tenants();
  due text := format('it is due since %s', date_trunc('second', j.run_at));
BEGIN
  IF is_late THEN
    RETURN QUERY
      SELECT
        99,
        'unexplained',
        format('%s, a live node could take it, and nothing that is known keeps it', due),
        NULL::timestamptz,
        j.run_at,
        true,
        ARRAY['watchbill doctor', format('watchbill jobs why %s --watch', j.id)],
        jsonb_build_object(
          'has_sleeping_worker', _has_sleeping_worker(),
          'oldest_snapshot', (
            SELECT min(a.xact_start)
            FROM pg_stat_activity a
            WHERE a.backend_xmin IS NOT NULL
              AND a.pid <> pg_backend_pid()));
  ELSE
    RETURN QUERY
      SELECT
        14,
        'ready',
        format('nothing keeps it: %s, and a node with a free handler slot starts it', due)
          || CASE WHEN j.wait IS NULL THEN '' ELSE ' when it is ready, within ten seconds' END
          || CASE
            WHEN _acts_for_all_tenants() THEN ''
            ELSE '; jobs of other tenants may come before it'
          END,
        NULL::timestamptz,
        j.run_at,
        false,
        '{}'::text[],
        '{}'::jsonb;
  END IF;
END $$;
