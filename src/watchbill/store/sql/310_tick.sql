-- The tick: due schedules become jobs. Any number of callers at once: each takes timers that no other holds. The timer is locked before the schedule is
-- read, and an edit locks it before it commits, so a tick works with the newest rule or not at all. Slots, jobs and timers change in one transaction:
-- a caller that dies in between has done nothing, and the next one finds the same slots due.

-- Makes the jobs of up to `max` due schedules, and notices slots that should have ended by now. `next_at` is when to look again: NULL, nothing is to come.
-- `since` spares a frequent caller the walk over entries that an old snapshot keeps in the index, as promote has it.
CREATE OR REPLACE FUNCTION tick(max int DEFAULT 1000, since timestamptz DEFAULT '-infinity', now timestamptz DEFAULT NULL,
  OUT fired int, OUT missed int, OUT skipped int, OUT next_at timestamptz, OUT events jsonb)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(tick.now, clock());          -- a variable: a volatile function is no index condition
  ids bigint[];
BEGIN
  PERFORM check_isolation('tick');
  ids := ARRAY(SELECT x.schedule_id FROM timers x WHERE x.next_run <= t AND x.next_run >= tick.since ORDER BY x.next_run LIMIT tick.max FOR UPDATE SKIP LOCKED);
  SELECT f.fired, f.missed, f.skipped, f.events INTO fired, missed, skipped, events FROM fire_due(ids, t) f;
  events := events || note_overdue(tick.max, t);
  next_at := least(
    (SELECT x.next_run FROM timers x WHERE x.next_run IS NOT NULL AND x.next_run >= tick.since ORDER BY x.next_run LIMIT 1),
    (SELECT s.due_by FROM slots s WHERE s.due_by IS NOT NULL AND s.overdue_at IS NULL AND s.finished_at IS NULL ORDER BY s.due_by LIMIT 1));
END $$;

-- The jobs of a schedule that have not ended: the last one, its slot, and all.
DO $$
BEGIN
  CREATE TYPE open_run AS (schedule_id bigint, slot timestamptz, job_id uuid, job_ids uuid[]);
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- These timers are due, and locked by the caller. In UTC: a day of grace or of a deadline has 24 hours, wherever the caller lives.
CREATE OR REPLACE FUNCTION fire_due(ids bigint[], t timestamptz, OUT fired int, OUT missed int, OUT skipped int, OUT events jsonb)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET timezone = 'UTC' SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  ms bigint := floor(extract(epoch FROM t) * 1000);
  open open_run[];
  waiting uuid[];
  before uuid[];
  own uuid[];
  stopping uuid[];
  queues text[];
BEGIN
  fired := 0; missed := 0; skipped := 0; events := '[]';
  ids := hold_orphans(ids);
  IF cardinality(ids) = 0 THEN RETURN; END IF;
  open := ARRAY(SELECT ROW(o.schedule_id, (array_agg(o.slot ORDER BY o.fired_at DESC, o.slot DESC))[1],
      (array_agg(o.job_id ORDER BY o.fired_at DESC, o.slot DESC))[1], array_agg(o.job_id))::open_run
    FROM slots o WHERE o.schedule_id = ANY (ids) AND o.outcome IS NULL AND o.job_id IS NOT NULL GROUP BY o.schedule_id);
  WITH
    due AS MATERIALIZED (
      SELECT s.id, s.overlap, s.deadline, s.jitter, s.max_runs, num_nonnulls(s.type, s.command) > 0 AS has_job, x.next_run AS first, x.counted,
        s.policy, s.timeout, s.version, s.priority, s.max_attempts, s.queue, coalesce(s.type, 'watchbill.sql') AS type, s.tenant, s.created_by, job_payload(s) AS payload,
        s.name, s.context,
        s.rhythm, s.every, coalesce(s.start, s.created_at) AS anchor, s.at, s."end", s.missed, s.catch_up, s.grace,
        dense_rank() OVER (ORDER BY x.next_run, s.rhythm, s.every, CASE WHEN s.every IS NOT NULL THEN coalesce(s.start, s.created_at) END, s."end", s.missed, s.catch_up, s.grace) AS rule
      FROM unnest(ids) i(id) JOIN timers x ON x.schedule_id = i.id JOIN schedules s ON s.id = i.id),
    steps AS MATERIALIZED (                              -- schedules that are alike are computed once
      SELECT d.*, CASE WHEN d.rhythm IS NOT NULL THEN (SELECT next_run(r.cron, d.first) FROM rhythms r WHERE r.id = d.rhythm)
        WHEN d.every IS NOT NULL THEN d.first + extract(epoch FROM d.every) * interval '1 second' END AS second
      FROM (SELECT DISTINCT ON (x.rule) x.* FROM due x ORDER BY x.rule) d),
    rules AS MATERIALIZED (                              -- mostly one slot is due, and in time
      SELECT s.rule, ARRAY[s.first] AS runs, 0 AS gone, NULL::timestamptz AS gone_to, s.first AS last, CASE WHEN s.second <= coalesce(s."end", 'infinity') THEN s.second END AS next
      FROM steps s WHERE (s.second IS NULL OR s.second > least(t, s."end")) AND s.first >= t - coalesce(s.grace, interval '1 minute')
      UNION ALL
      SELECT s.rule, w.* FROM steps s CROSS JOIN LATERAL due_slots(s.rhythm, s.every, s.anchor, s.at, s.first, s."end", s.missed, s.catch_up, s.grace, t) w
      WHERE NOT ((s.second IS NULL OR s.second > least(t, s."end")) AND s.first >= t - coalesce(s.grace, interval '1 minute'))),
    runs AS MATERIALIZED (
      SELECT d.id, d.overlap, d.deadline, d.has_job, u.slot, greatest(t, u.slot + jittered(d.jitter, d.id, u.slot)) AS run_at,
        uuid7_in_order(ms, row_number() OVER (ORDER BY u.slot, d.id)) AS job_id
      FROM due d JOIN rules r ON r.rule = d.rule CROSS JOIN LATERAL unnest(r.runs[:coalesce(d.max_runs - d.counted, 2147483647)]) u(slot)),
    firings AS MATERIALIZED (                            -- `before`: what it meets, an unfinished job or an earlier one of this tick
      SELECT r.*, coalesce(lag(r.job_id) OVER w, o.job_id) AS before, coalesce(o.slot, first_value(r.slot) OVER w) AS before_slot, o.job_ids AS unfinished,
        r.has_job AND r.overlap = 'skip' AND (o.job_id IS NOT NULL OR row_number() OVER w > 1) AS skips
      FROM runs r LEFT JOIN unnest(open) o ON o.schedule_id = r.id AND r.overlap <> 'allow' WINDOW w AS (PARTITION BY r.id ORDER BY r.slot)),
    written AS (
      INSERT INTO slots (schedule_id, slot, until, count, outcome, reason, job_id, fired_at, finished_at, due_by)
      SELECT f.id, f.slot, NULL, 1, CASE WHEN f.skips THEN 'skipped' WHEN NOT f.has_job THEN 'fired' END,
        CASE WHEN f.skips THEN format('the run of %s has not ended', f.before_slot) END,
        CASE WHEN f.has_job AND NOT f.skips THEN f.job_id END, t, CASE WHEN NOT f.has_job THEN t END, f.slot + f.deadline FROM firings f
      UNION ALL
      SELECT d.id, d.first, CASE WHEN r.gone > 1 THEN r.gone_to END, r.gone, 'missed', missed_because(d.missed, d.grace, r.gone = 10000),
        NULL, t, NULL, r.gone_to + d.deadline
      FROM due d JOIN rules r ON r.rule = d.rule WHERE r.gone > 0
      ON CONFLICT DO NOTHING RETURNING schedule_id, slot, job_id, outcome, count),
    enqueued AS (
      INSERT INTO jobs (id, run_at, created_at, policy, timeout, version, priority, max_attempts, wait, queue, type, tenant, schedule_id, slot, created_by, payload, meta)
      SELECT f.job_id, f.run_at, t, d.policy, extract(epoch FROM d.timeout), d.version, d.priority, d.max_attempts,
        CASE WHEN f.before IS NOT NULL AND f.overlap <> 'allow' THEN 'blocked' WHEN f.run_at > t THEN 'delayed' END,
        d.queue, d.type, d.tenant, d.id, f.slot, d.created_by, d.payload, slot_meta(d.name, f.slot, d.context)
      FROM written w JOIN firings f ON f.job_id = w.job_id JOIN due d ON d.id = f.id   -- not schedules again: a guess of many rows would have it read as a whole
      RETURNING id, schedule_id, queue, wait),
    counts AS (SELECT e.schedule_id, count(*)::int AS n FROM enqueued e GROUP BY 1),
    advanced AS (
      UPDATE timers x SET last_slot = r.last, last_run = CASE WHEN c.n > 0 THEN t ELSE x.last_run END, fired = x.fired + coalesce(c.n, 0), counted = x.counted + coalesce(c.n, 0),
        next_run = CASE WHEN x.counted + coalesce(c.n, 0) < coalesce(d.max_runs, 2147483647) THEN r.next END
      FROM due d JOIN rules r ON r.rule = d.rule LEFT JOIN counts c ON c.schedule_id = d.id WHERE x.schedule_id = d.id),
    blocked AS (SELECT f.* FROM firings f JOIN enqueued e ON e.id = f.job_id WHERE e.wait = 'blocked')
  SELECT (SELECT count(*) FROM enqueued), (SELECT array_agg(DISTINCT e.queue) FROM enqueued e WHERE e.wait IS NULL),
    coalesce(sum(w.count) FILTER (WHERE w.outcome = 'missed'), 0), count(*) FILTER (WHERE w.outcome = 'skipped'),
    (SELECT array_agg(b.job_id ORDER BY b.job_id) FROM blocked b), (SELECT array_agg(b.before ORDER BY b.job_id) FROM blocked b),
    (SELECT array_agg(b.before) FROM blocked b WHERE b.before IN (SELECT e.id FROM enqueued e)),
    (SELECT array_agg(DISTINCT u) FROM blocked b, unnest(b.unfinished) u WHERE b.overlap = 'cancel_previous'),
    coalesce(jsonb_agg(slot_event('schedule_fired', w.schedule_id, w.slot, NULL) ORDER BY w.slot) FILTER (WHERE w.outcome = 'fired'), '[]')
    INTO fired, queues, missed, skipped, waiting, before, own, stopping, events FROM written w;
  PERFORM wake(q) FROM unnest(queues) q;
  IF waiting IS NOT NULL THEN PERFORM queue_behind(waiting, before, own, t); END IF;
  IF stopping IS NOT NULL THEN
    events := events || (SELECT coalesce(jsonb_agg(jsonb_build_object('event', 'job_canceled', 'id', c)), '[]') FROM unnest(cancel_runs(stopping, 'the next slot is due', t)) c);
  END IF;
END $$;

-- UUIDv7 for the n-th of many jobs made in one millisecond: they sort by n. As one expression, which the planner puts in place of the call.
CREATE OR REPLACE FUNCTION uuid7_in_order(ms bigint, n bigint) RETURNS uuid LANGUAGE sql VOLATILE
  RETURN (lpad(to_hex(ms + n / 4096), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0')
    || right(replace(gen_random_uuid()::text, '-', ''), 16))::uuid;

CREATE OR REPLACE FUNCTION job_payload(s schedules) RETURNS jsonb LANGUAGE sql STABLE
  RETURN CASE WHEN (s).command IS NULL THEN (s).payload ELSE jsonb_build_object('command', (s).command, 'role', (s).role) END;

CREATE OR REPLACE FUNCTION missed_because(missed text, grace interval, capped boolean) RETURNS text LANGUAGE sql STABLE
  RETURN CASE WHEN capped THEN 'at least so many; ' ELSE '' END || 'nobody fired it in time, and missed is ' || missed
    || CASE WHEN grace IS NOT NULL THEN ' with a grace of ' || grace ELSE '' END;

-- What a handler can know of where its job comes from.
CREATE OR REPLACE FUNCTION slot_meta(name text, slot timestamptz, context jsonb) RETURNS jsonb LANGUAGE sql STABLE
  RETURN CASE WHEN context IS NULL THEN jsonb_build_object('schedule', name, 'slot', slot) ELSE jsonb_build_object('schedule', name, 'slot', slot, 'context', context) END;

CREATE OR REPLACE FUNCTION slot_event(event text, schedule_id bigint, slot timestamptz, due_by timestamptz) RETURNS jsonb LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT jsonb_strip_nulls(jsonb_build_object('event', slot_event.event, 'schedule', s.name, 'tenant', s.tenant, 'slot', slot_event.slot, 'due_by', slot_event.due_by))
  FROM schedules s WHERE s.id = slot_event.schedule_id $$;

-- Jobs that were asked to run behind others wait for their end, whatever it is. Those in `own` are as new as they.
CREATE OR REPLACE FUNCTION queue_behind(children uuid[], parents uuid[], own uuid[], t timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  UPDATE jobs j SET awaited = true WHERE j.id = ANY (queue_behind.own);
  PERFORM add_dependencies(children, parents, array_fill(1, ARRAY[cardinality(children)]), array_fill('all_finished'::text, ARRAY[cardinality(children)]), own, t);
END $$;

-- Cancels runs of a schedule; of a chain all that its last job waits for, upon which that one ends, as canceled unless they have all succeeded. Answers with those that
-- have ended by this; what runs is asked to stop.
CREATE OR REPLACE FUNCTION cancel_runs(ids uuid[], reason text, t timestamptz) RETURNS uuid[] LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  wanted uuid[];
  chains uuid[];
BEGIN
  SELECT array_agg(x.id) FILTER (WHERE x.type <> 'watchbill.flow_end'), array_agg(x.id) FILTER (WHERE x.type = 'watchbill.flow_end') INTO wanted, chains
    FROM unnest(lock_soon(cancel_runs.ids)) l JOIN jobs x ON x.id = l;
  IF chains IS NOT NULL THEN
    UPDATE jobs j SET canceling = true WHERE j.id = ANY (chains);
    wanted := wanted || lock_soon(ARRAY(SELECT d.parent FROM dependencies d WHERE d.child = ANY (chains)));
  END IF;
  RETURN ARRAY(SELECT f FROM unnest(wanted) f CROSS JOIN LATERAL cancel_job(f, cancel_runs.reason, false, cancel_runs.t) c WHERE c.ended);
END $$;

-- Locks jobs; answers with those it has got. One that is just being claimed is had in a moment. One that is not had by then is ended in a transaction of its
-- handler's, and no tick waits for that.
CREATE OR REPLACE FUNCTION lock_soon(ids uuid[]) RETURNS uuid[] LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
DECLARE
  got uuid[] := ARRAY(SELECT j.id FROM jobs j WHERE j.id = ANY (lock_soon.ids) ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED);
  other uuid;
BEGIN
  FOR other IN SELECT j.id FROM jobs j WHERE j.id = ANY (lock_soon.ids) EXCEPT SELECT unnest(got) ORDER BY 1 LOOP
    BEGIN
      PERFORM FROM jobs j WHERE j.id = other FOR NO KEY UPDATE;
      IF FOUND THEN got := got || other; END IF;
    EXCEPTION WHEN lock_not_available THEN EXIT;
    END;
  END LOOP;
  RETURN got;
END $$;

-- Slots that should have ended by now and have not, each told once. They stay in the view `overdue` until that slot or a later one ends.
CREATE OR REPLACE FUNCTION note_overdue(max int, t timestamptz) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  events jsonb;
BEGIN
  WITH late AS MATERIALIZED (
      SELECT s.schedule_id, s.slot, s.kind FROM slots s WHERE s.due_by <= t AND s.due_by IS NOT NULL AND s.overdue_at IS NULL AND s.finished_at IS NULL
      ORDER BY s.due_by LIMIT note_overdue.max FOR UPDATE SKIP LOCKED),
    told AS (UPDATE slots s SET overdue_at = t FROM late l WHERE s.schedule_id = l.schedule_id AND s.slot = l.slot AND s.kind = l.kind RETURNING s.schedule_id, s.slot, s.due_by)
  SELECT jsonb_agg(e.event ORDER BY told.due_by) INTO events   -- not of a schedule that is no more
    FROM told CROSS JOIN LATERAL (SELECT slot_event('schedule_overdue', told.schedule_id, told.slot, told.due_by) AS event) e WHERE e.event IS NOT NULL;
  RETURN coalesce(events, '[]');
END $$;

-- When a job with a schedule has ended: what became of its slot. The job is in the history by now.
CREATE OR REPLACE FUNCTION close_slots(ids uuid[], t timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
BEGIN
  UPDATE slots s SET outcome = CASE f.state WHEN 'succeeded' THEN coalesce(f.outcome, 'succeeded') WHEN 'canceled' THEN 'canceled' ELSE coalesce(f.outcome, 'failed') END,
      finished_at = f.finished_at, started_at = coalesce(s.started_at, f.started_at), epoch = f.epoch, error = left(f.error->>'message', 1000),
      reason = CASE WHEN f.outcome = 'skipped' THEN left(f.error->>'message', 1000) END
    FROM finished_jobs f WHERE f.id = ANY (close_slots.ids) AND f.finished_at = close_slots.t
      AND s.schedule_id = f.schedule_id AND s.slot = coalesce(f.slot, f.created_at) AND s.job_id = f.id;
END $$;

-- And when it is taken back to run again. The job that starts a chain, too, stands for its slot again, unless the chain is under way.
CREATE OR REPLACE FUNCTION reopen_slot(schedule_id bigint, slot timestamptz, job_id uuid) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  UPDATE slots s SET job_id = reopen_slot.job_id, outcome = NULL, finished_at = NULL, epoch = NULL, error = NULL, reason = NULL,
      started_at = (SELECT s.started_at FROM jobs j WHERE j.id = reopen_slot.job_id AND j.type = 'watchbill.flow_end')   -- a chain began when its first step did
    WHERE s.schedule_id = reopen_slot.schedule_id AND s.slot = reopen_slot.slot AND (s.job_id = reopen_slot.job_id
      OR s.outcome IS NOT NULL AND s.job_id IS NOT NULL AND EXISTS (SELECT FROM jobs j WHERE j.id = reopen_slot.job_id AND j.type = 'watchbill.flow'));
END $$;
