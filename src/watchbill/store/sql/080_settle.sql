-- The end of a run. Every statement here asks for (id, fence): who does not hold the job any more changes nothing. 0 is nobody's fence.

-- Settles a batch. Without `outcomes` all have succeeded. Otherwise each is one of
--   succeeded, skipped          the job is succeeded
--   failed, timed_out           another attempt after `delays` (NULL: as its policy says), or dead when its attempts are spent or error.kind is 'permanent'
--   snoozed                     again after `delays`, no attempt spent
--   released                    back in its place, no attempt spent
--   unsupported                 back, for a node that knows its type and version
--   canceled                    stopped because it was asked to
-- A job that was asked to stop ends canceled unless it succeeded. `ages` are seconds since the handler started, NULL when it never did.
-- `closed` are claims of which the node holds no job any more.
-- Answers with a row for everything that did not simply succeed; state NULL: refused, not ours any more.
-- A row in state blocked is a job that waits for some of these: call unblock() with its id next.
-- Waits two seconds for a job that somebody keeps locked, behind a pooler as well, where a session can set nothing: kept_locked() tells which one.
CREATE OR REPLACE FUNCTION settle(
  epoch bigint, ids uuid[], fences bigint[], outcomes text[] DEFAULT NULL, ages float8[] DEFAULT NULL, delays interval[] DEFAULT NULL,
  results jsonb[] DEFAULT NULL, errors jsonb[] DEFAULT NULL, closed bigint[] DEFAULT NULL, now timestamptz DEFAULT NULL
) RETURNS TABLE (id uuid, state text, run_at timestamptz)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET lock_timeout = '2s'
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(settle.now, clock());
  got uuid[];
  stopping uuid[];
  scheduled uuid[];
  parents uuid[];
BEGIN
  PERFORM check_isolation('settle');
  IF settle.outcomes IS NOT NULL THEN
    RETURN QUERY SELECT * FROM settle_each(settle.epoch, settle.ids, settle.fences, settle.outcomes, settle.ages, settle.delays, settle.results, settle.errors, t);
  ELSE
    WITH d AS (DELETE FROM jobs j USING unnest(settle.ids, settle.fences, settle.ages, settle.results) i(id, fence, age, result)
        WHERE j.id = i.id AND j.fence = i.fence AND i.fence <> 0
        RETURNING j.id, j.seq, j.run_at, j.created_at, j.fence, j.schedule_id, j.slot, j.lane, j.run, j.policy, j.timeout, j.version, j.priority, j.attempt,
          j.max_attempts, j.queue, j.type, j.tenant, j.idempotency_key, j.route_key, j.limit_keys, j.created_by, j.payload, j.meta, j.canceling, j.awaited, i.age, i.result),
      h AS (INSERT INTO finished_succeeded (id, seq, run_at, created_at, started_at, finished_at, fence, epoch, schedule_id, slot, lane, run, policy, timeout, version,
          priority, attempt, max_attempts, lost, state, queue, type, tenant, idempotency_key, route_key, limit_keys, created_by, payload, meta, result)
        SELECT d.id, d.seq, d.run_at, d.created_at, began(t, d.age), t, d.fence, settle.epoch, d.schedule_id, d.slot, d.lane, d.run, d.policy, d.timeout,
          d.version, d.priority, d.attempt + 1, d.max_attempts, 0, 'succeeded', d.queue, d.type, d.tenant, d.idempotency_key, d.route_key, d.limit_keys, d.created_by, d.payload, d.meta,
          d.result FROM d)
    SELECT array_agg(d.id), array_agg(d.id) FILTER (WHERE d.canceling), array_agg(d.id) FILTER (WHERE d.schedule_id IS NOT NULL), array_agg(d.id) FILTER (WHERE d.awaited)
      INTO got, stopping, scheduled, parents FROM d;
    IF scheduled IS NOT NULL THEN PERFORM close_slots(scheduled, t); END IF;
    IF stopping IS NOT NULL THEN
      DELETE FROM cancels c WHERE c.job_id = ANY (stopping);
    END IF;
    IF parents IS NOT NULL THEN
      RETURN QUERY SELECT c, 'blocked', NULL::timestamptz FROM unnest(end_parents(parents, array_fill('succeeded'::text, ARRAY[cardinality(parents)]), t)) c;
    END IF;
    IF coalesce(cardinality(got), 0) < cardinality(settle.ids) THEN
      RETURN QUERY SELECT x.id, NULL::text, NULL::timestamptz FROM unnest(settle.ids) x(id) WHERE x.id <> ALL (coalesce(got, '{}'));
    END IF;
  END IF;
  IF settle.closed IS NOT NULL THEN
    DELETE FROM claims c WHERE c.fence = ANY (settle.closed) AND c.epoch = settle.epoch;
  END IF;
END $$;

-- The careful way, for batches with ends of several kinds: lock and decide, then move the finished, then put back the others.
CREATE OR REPLACE FUNCTION settle_each(
  epoch bigint, ids uuid[], fences bigint[], outcomes text[], ages float8[], delays interval[], results jsonb[], errors jsonb[], t timestamptz
) RETURNS TABLE (id uuid, state text, run_at timestamptz)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  e ending;
  endings ending[];
  children uuid[];
BEGIN
  PERFORM check_outcomes(settle_each.outcomes);
  IF cardinality(settle_each.outcomes) <> cardinality(settle_each.ids) THEN
    RAISE EXCEPTION '% jobs have % outcomes', cardinality(settle_each.ids), cardinality(settle_each.outcomes) USING ERRCODE = 'WB003', HINT = 'give one outcome per job';
  ELSIF EXISTS (SELECT FROM unnest(settle_each.delays) d WHERE d > interval '100 years') THEN
    RAISE EXCEPTION 'a delay is longer than 100 years' USING ERRCODE = 'WB003';
  END IF;
  endings := ARRAY(
    SELECT ROW(i.id, i.fence, i.outcome, CASE
        WHEN i.outcome IN ('succeeded', 'skipped') THEN 'succeeded'
        WHEN j.canceling OR i.outcome = 'canceled' THEN 'canceled'
        WHEN i.outcome IN ('failed', 'timed_out') THEN
          CASE WHEN j.attempt + 1 >= j.max_attempts OR i.error->>'kind' = 'permanent' THEN 'dead' ELSE 'failed' END
        ELSE 'queued' END, i.age, CASE WHEN i.delay < interval '0' THEN interval '0' ELSE i.delay END, i.result, i.error)::ending
    FROM unnest(settle_each.ids, settle_each.fences, settle_each.outcomes, settle_each.ages, settle_each.delays, settle_each.results, settle_each.errors)
      i(id, fence, outcome, age, delay, result, error)
    JOIN jobs j ON j.id = i.id AND j.fence = i.fence AND i.fence <> 0 FOR UPDATE OF j);
  children := finish(endings, settle_each.epoch, t);
  PERFORM put_back(endings, settle_each.epoch, t);
  RETURN QUERY SELECT i.id, n.state, j.run_at FROM unnest(settle_each.ids, settle_each.outcomes) i(id, outcome)
    LEFT JOIN unnest(endings) n ON n.id = i.id LEFT JOIN jobs j ON j.id = n.id AND n.state IN ('failed', 'queued')
    WHERE n.state IS DISTINCT FROM 'succeeded'
    UNION ALL SELECT c, 'blocked', NULL FROM unnest(children) c;
END $$;

CREATE OR REPLACE FUNCTION check_outcomes(outcomes text[]) RETURNS void LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
  known text[] := '{succeeded,skipped,failed,timed_out,canceled,snoozed,released,unsupported}';
  word text;
BEGIN
  IF outcomes <@ known THEN RETURN; END IF;
  SELECT coalesce(x, 'NULL') INTO word FROM unnest(outcomes) x WHERE x IS NULL OR x <> ALL (known) LIMIT 1;
  RAISE EXCEPTION 'there is no outcome %', quote_literal(word) USING ERRCODE = 'WB003', HINT = 'the outcomes are ' || array_to_string(known, ', ');
END $$;

-- Which of these jobs does somebody keep locked? Settle would wait for him; a worker that tells many ends at once asks here after a lock timeout, and tells the others.
CREATE OR REPLACE FUNCTION kept_locked(ids uuid[]) RETURNS SETOF uuid
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  free uuid[] := ARRAY(SELECT j.id FROM unnest(kept_locked.ids) i(id) JOIN jobs j ON j.id = i.id FOR UPDATE OF j SKIP LOCKED);
BEGIN
  RETURN QUERY SELECT j.id FROM unnest(kept_locked.ids) i(id) JOIN jobs j ON j.id = i.id WHERE j.id <> ALL (free);
END $$;

-- Moves jobs whose ending is final into the history, with the last attempt's row. They are locked by the caller. Answers with jobs that wait for them.
CREATE OR REPLACE FUNCTION finish(endings ending[], epoch bigint, t timestamptz) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  scheduled uuid[];
  parents uuid[];
  outcomes text[];
BEGIN
  WITH d AS (DELETE FROM jobs j USING unnest(finish.endings) e WHERE j.id = e.id AND j.fence = e.fence AND e.state IN ('succeeded', 'dead', 'canceled')
      RETURNING j.*, e.outcome, e.state, e.age, e.result, coalesce(e.error, cancel_error(j.id, e.state)) AS error,
        j.attempt + (e.outcome IN ('succeeded', 'skipped', 'failed', 'timed_out'))::int AS spent, CASE WHEN e.outcome = 'lost' THEN j.lost + 1 WHEN e.outcome IN ('succeeded', 'skipped', 'failed', 'timed_out') OR e.age IS NOT NULL THEN 0 ELSE j.lost END AS losses),
    h AS (INSERT INTO finished_jobs (id, seq, run_at, created_at, started_at, finished_at, fence, epoch, schedule_id, slot, lane, run, policy, timeout, version,
        priority, attempt, max_attempts, lost, state, outcome, queue, type, tenant, idempotency_key, route_key, limit_keys, created_by, payload, meta, result, error)
      SELECT d.id, d.seq, d.run_at, d.created_at, began(t, d.age), t, nullif(d.fence, 0), finish.epoch, d.schedule_id, d.slot, d.lane, d.run, d.policy, d.timeout,
        d.version, d.priority, d.spent, d.max_attempts, d.losses, d.state, CASE WHEN d.outcome IN ('skipped', 'failed', 'timed_out', 'lost') THEN d.outcome END,
        d.queue, d.type, d.tenant, d.idempotency_key, d.route_key, d.limit_keys, d.created_by, d.payload, d.meta, d.result, d.error FROM d),
    a AS (INSERT INTO attempts (job_id, run, attempt, fence, epoch, outcome, started_at, ended_at, queue, type, tenant, error)
      SELECT d.id, d.run, d.spent, d.fence, finish.epoch, d.outcome, began(t, d.age), t, d.queue, d.type, d.tenant, d.error FROM d
      WHERE d.outcome IN ('skipped', 'failed', 'timed_out', 'lost') OR d.outcome NOT IN ('succeeded', 'unsupported') AND d.age IS NOT NULL),
    c AS (DELETE FROM cancels c USING d WHERE c.job_id = d.id AND d.canceling)
  SELECT array_agg(d.id) FILTER (WHERE d.schedule_id IS NOT NULL), array_agg(d.id) FILTER (WHERE d.awaited), array_agg(outcome_of(d.state, d.error)) FILTER (WHERE d.awaited)
    INTO scheduled, parents, outcomes FROM d;
  IF scheduled IS NOT NULL THEN PERFORM close_slots(scheduled, t); END IF;
  RETURN CASE WHEN parents IS NOT NULL THEN end_parents(parents, outcomes, finish.t) END;
END $$;

CREATE OR REPLACE FUNCTION cancel_error(id uuid, state text) RETURNS jsonb LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT CASE WHEN cancel_error.state = 'canceled' THEN jsonb_build_object('kind', 'canceled', 'message',
    coalesce((SELECT c.reason FROM cancels c WHERE c.job_id = cancel_error.id), 'canceled')) END $$;

-- Puts jobs back that are to run again. A run that started and ended otherwise than by loss clears the losses before it.
CREATE OR REPLACE FUNCTION put_back(endings ending[], epoch bigint, t timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  at_once boolean;
BEGIN
  WITH due AS MATERIALIZED (
      SELECT e.*, j.attempt + (e.outcome IN ('failed', 'timed_out'))::int AS spent, e.age IS NOT NULL OR e.outcome IN ('failed', 'timed_out', 'snoozed') AS started,
        CASE WHEN e.outcome IN ('released', 'unsupported') THEN NULL
          ELSE t + coalesce(e.delay, CASE WHEN e.outcome = 'snoozed' THEN interval '0' ELSE backoff(p, j.attempt + 1) * interval '1 second' END) END AS at
      FROM unnest(put_back.endings) e JOIN jobs j ON j.id = e.id JOIN policies p ON p.id = j.policy WHERE e.state IN ('failed', 'queued')),
    u AS (UPDATE jobs j SET fence = 0, ended_at = t, attempt = due.spent, failed = (due.state = 'failed'),
        lost = CASE WHEN due.started THEN 0 ELSE j.lost END, alone = j.alone AND NOT due.started,
        run_at = coalesce(due.at, j.run_at),
        wait = CASE WHEN due.outcome = 'unsupported' THEN 'unsupported' WHEN due.at > t THEN 'delayed' END
      FROM due WHERE j.id = due.id AND j.fence = due.fence
      RETURNING j.id, j.run, j.attempt, j.queue, j.type, j.version, j.tenant, j.wait, due.fence, due.outcome, due.age, due.error),
    s AS (INSERT INTO unsupported_types (type, version, since) SELECT DISTINCT u.type, u.version, t FROM u WHERE u.outcome = 'unsupported'
      ORDER BY 1, 2 ON CONFLICT DO NOTHING),             -- sorted: two settles with the same new types wait for each other and never deadlock
    a AS (INSERT INTO attempts (job_id, run, attempt, fence, epoch, outcome, started_at, ended_at, queue, type, tenant, error)
      SELECT u.id, u.run, u.attempt, u.fence, put_back.epoch, u.outcome, began(t, u.age), t, u.queue, u.type, u.tenant, u.error FROM u
      WHERE u.outcome IN ('failed', 'timed_out') OR u.outcome <> 'unsupported' AND u.age IS NOT NULL)
  SELECT bool_or(u.wait IS DISTINCT FROM 'delayed') INTO at_once FROM u;
  IF at_once THEN PERFORM wake(''); END IF;
END $$;

-- One job, in the caller's own transaction: its writes and the completion commit together, or neither does. Raises when the job is not his any more.
CREATE OR REPLACE FUNCTION complete(id uuid, fence bigint, result jsonb DEFAULT NULL, age float8 DEFAULT NULL, now timestamptz DEFAULT NULL)
RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM end_one(complete.id, complete.fence, 'succeeded', complete.age, NULL, complete.result, NULL, complete.now);
END $$;

-- One failed attempt; the state it leads to: failed, dead or canceled.
CREATE OR REPLACE FUNCTION fail(id uuid, fence bigint, error jsonb DEFAULT '{}', retryable boolean DEFAULT true, delay interval DEFAULT NULL,
  age float8 DEFAULT NULL, now timestamptz DEFAULT NULL) RETURNS text LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  e jsonb := CASE jsonb_typeof(fail.error) WHEN 'object' THEN fail.error ELSE jsonb_build_object('message', fail.error #>> '{}') END;
BEGIN
  RETURN end_one(fail.id, fail.fence, 'failed', fail.age, fail.delay, NULL, CASE WHEN fail.retryable IS NOT FALSE THEN e ELSE e || '{"kind": "permanent"}' END, fail.now);
END $$;

CREATE OR REPLACE FUNCTION end_one(id uuid, fence bigint, outcome text, age float8, delay interval, result jsonb, error jsonb, now timestamptz)
RETURNS text LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(end_one.now, clock());
  s text;
  due timestamptz;
BEGIN
  SELECT x.state, x.run_at INTO s, due FROM settle_each((SELECT c.epoch FROM claims c WHERE c.fence = end_one.fence), ARRAY[end_one.id], ARRAY[end_one.fence], ARRAY[end_one.outcome],
    ARRAY[end_one.age], ARRAY[end_one.delay], ARRAY[end_one.result], ARRAY[end_one.error], t) x WHERE x.id IS NOT DISTINCT FROM end_one.id;
  IF FOUND AND s IS NULL THEN
    RAISE EXCEPTION 'job % is not held under fence %', end_one.id, end_one.fence USING ERRCODE = 'WB007',
      HINT = 'its lease was lost or it was taken away: roll back, somebody else runs it';
  END IF;
  IF due > t THEN PERFORM wake_later(due, t); END IF;    -- its caller may promote nothing
  RETURN coalesce(s, 'succeeded');
END $$;

-- The guard for a user's own transaction: while it is open nobody takes the job away. Raises when that has already happened.
-- FOR KEY SHARE, not FOR SHARE: a stop request may still be noted on the row.
CREATE OR REPLACE FUNCTION guard(id uuid, fence bigint) RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  PERFORM FROM jobs j WHERE j.id = guard.id AND j.fence = guard.fence AND j.fence <> 0 FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'job % is not held under fence %', guard.id, guard.fence USING ERRCODE = 'WB007',
      HINT = 'its lease was lost or it was taken away: roll back, somebody else runs it';
  END IF;
END $$;
