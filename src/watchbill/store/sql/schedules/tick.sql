-- A tick makes the jobs of due schedules. Several sessions may tick at once: each takes timers that
-- no other session has locked. A tick locks the timer before it reads the schedule, and a change of
-- a schedule locks the timer before it commits, so a tick reads the newest definition. Slots, jobs
-- and timers change in one transaction: if the caller dies, the next tick finds the same slots due.

-- A firing is what a tick does with one due slot, or with several missed slots. A firing without a
-- slot only updates the timer.
SELECT _create_type('firing', $$
  schedule_id bigint,
  slot timestamptz,
  until timestamptz,
  count int,
  outcome text,
  reason text,
  due_by timestamptz,
  last_slot timestamptz,
  next_run timestamptz,
  max_runs int,
  job_id uuid,
  run_at timestamptz,
  previous uuid,
  unfinished uuid[],
  policy int,
  timeout interval,
  version int,
  priority int,
  max_attempts int,
  queue text,
  type text,
  tenant text,
  created_by text,
  payload jsonb,
  name text,
  context jsonb,
  expires_at timestamptz$$);

-- Makes the jobs of due schedules, the earliest first, and marks overdue slots. Handles about `max`
-- slots and leaves the rest to the next call. `next_at` is when to call again: at once if it is not
-- later than now. `since` lets a frequent caller skip index entries of older timers, which an old
-- snapshot keeps. With `for_tenant`, and in a session that acts for a tenant, it does so for the
-- schedules of this tenant only.
CREATE OR REPLACE FUNCTION tick(
  max int DEFAULT 1000,
  since timestamptz DEFAULT '-infinity',
  now timestamptz DEFAULT NULL,
  for_tenant text DEFAULT NULL,
  OUT fired int,
  OUT missed int,
  OUT skipped int,
  OUT next_at timestamptz,
  OUT events jsonb
)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  -- Reads the clock into a variable, because an index condition cannot call a volatile function.
  t timestamptz := _clock(now);
  acting text := _acting_tenant(for_tenant);
  due bigint[];
BEGIN
  PERFORM _check_isolation('tick');
  IF acting IS NULL THEN
    due := _lock_due_timers(max, since, t);
  ELSE
    due := _lock_due_timers_of_tenant(acting, max, t);
  END IF;
  IF due = '{}' THEN
    SELECT 0, 0, 0, '[]' INTO fired, missed, skipped, events;
  ELSE
    SELECT w.fired, w.missed, w.skipped, w.events
    INTO fired, missed, skipped, events
    FROM _write_firings(_skip_slots_over_quota(_decide_firings(due, max, t)), t) w;
  END IF;
  events := events || _mark_overdue_slots(max, acting, t);
  IF acting IS NOT NULL THEN
    next_at := _find_next_tick_of_tenant(acting);
    RETURN;
  END IF;
  next_at := least(
    (SELECT x.next_run
      FROM timers x
      WHERE x.next_run IS NOT NULL
        AND x.next_run >= since
      ORDER BY x.next_run
      LIMIT 1),
    (SELECT s.due_by
      FROM slots s
      WHERE s.due_by IS NOT NULL
        AND s.overdue_at IS NULL
        AND s.finished_at IS NULL
      ORDER BY s.due_by
      LIMIT 1));
END $$;

-- Locks the timers of due schedules FOR UPDATE SKIP LOCKED and returns the ids of the schedules.
-- Stops orphans among them.
CREATE OR REPLACE FUNCTION _lock_due_timers(max int, since timestamptz, t timestamptz)
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN _stop_orphans(ARRAY(
    SELECT x.schedule_id
    FROM timers x
    WHERE x.next_run <= t
      AND x.next_run >= since
    ORDER BY x.next_run
    LIMIT max
    FOR UPDATE SKIP LOCKED));
END $$;

-- Decides for about `max` due slots whether they fire, are skipped or are missed. Writes nothing;
-- the caller has locked the timers. Runs in UTC, so that a day of grace or of a deadline has 24
-- hours.
CREATE OR REPLACE FUNCTION _decide_firings(ids bigint[], max int, t timestamptz)
RETURNS firing[]
LANGUAGE plpgsql VOLATILE
SET timezone = 'UTC'
AS $$
DECLARE
  ms bigint := floor(extract(epoch FROM t) * 1000);
BEGIN
  RETURN ARRAY(
    WITH
      due AS MATERIALIZED (
        SELECT
          s.id, s.name, s.tenant, s.queue, s.priority, s.max_attempts, s.timeout, s.version,
          s.policy, s.context, s.created_by, s.max_runs, s.jitter, s.missed, s.grace, s.overlap,
          s.deadline, s.expires,
          coalesce(s.type, 'watchbill.sql') AS type,
          _make_schedule_payload(s) AS payload,
          num_nonnulls(s.type, s.command) > 0 AS has_job,
          x.next_run AS first,
          x.slot_runs,
          c.runs, c.missed_count, c.missed_until, c.last, c.next
        FROM _classify_due_schedules(ids, max, t) c
        JOIN timers x ON x.schedule_id = c.schedule_id
        JOIN schedules s ON s.id = c.schedule_id),
      runs AS MATERIALIZED (
        SELECT
          d.id, d.overlap, d.has_job, d.last, d.next, u.slot,
          greatest(t, u.slot + _compute_slot_jitter(d.jitter, d.id, u.slot)) AS run_at,
          _make_ordered_uuid7(ms, row_number() OVER (ORDER BY u.slot, d.id)) AS job_id
        FROM due d
        CROSS JOIN LATERAL
          unnest(d.runs[:coalesce(d.max_runs - d.slot_runs, 2147483647)]) u(slot)),
      unfinished AS MATERIALIZED (
        SELECT
          o.schedule_id,
          array_agg(o.job_id ORDER BY o.fired_at DESC, o.slot DESC) AS jobs,
          (array_agg(o.slot ORDER BY o.fired_at DESC, o.slot DESC))[1] AS last_slot
        FROM slots o
        WHERE o.schedule_id = ANY (ids)
          AND o.outcome IS NULL
          AND o.job_id IS NOT NULL
          AND o.kind <> 'backfill'
        GROUP BY 1),
      -- `previous` is the last unfinished job of the schedule, or its job of an earlier slot in
      -- this tick. The jobs of a backfill keep no slot of the present waiting.
      outcomes AS MATERIALIZED (
        SELECT
          r.*,
          coalesce(lag(r.job_id) OVER w, o.jobs[1]) AS previous,
          coalesce(o.last_slot, first_value(r.slot) OVER w) AS previous_slot,
          o.jobs AS unfinished,
          r.has_job AND r.overlap = 'skip' AND (o.jobs IS NOT NULL OR row_number() OVER w > 1)
            AS skips
        FROM runs r
        LEFT JOIN unfinished o ON o.schedule_id = r.id AND r.overlap <> 'allow'
        WINDOW w AS (PARTITION BY r.id ORDER BY r.slot))
    SELECT ROW(
      d.id, f.slot, NULL, 1,
      CASE WHEN f.skips THEN 'skipped' WHEN NOT f.has_job THEN 'fired' END,
      CASE WHEN f.skips THEN format('the run of %s has not ended', f.previous_slot) END,
      f.slot + d.deadline, f.last, f.next, d.max_runs,
      CASE WHEN f.has_job AND NOT f.skips THEN f.job_id END,
      f.run_at,
      CASE WHEN d.overlap IN ('queue', 'cancel_previous') THEN f.previous END,
      CASE d.overlap WHEN 'cancel_previous' THEN f.unfinished END,
      d.policy, d.timeout, d.version, d.priority, d.max_attempts, d.queue, d.type, d.tenant,
      d.created_by, d.payload, d.name, d.context, f.slot + d.expires)::firing
    FROM outcomes f
    JOIN due d ON d.id = f.id
    UNION ALL
    SELECT ROW(
      d.id, CASE WHEN d.missed_count > 0 THEN d.first END,
      CASE WHEN d.missed_count > 1 THEN d.missed_until END, d.missed_count, 'missed',
      _describe_missed_slots(d.missed, d.grace, d.missed_count = 10000),
      d.missed_until + d.deadline, d.last, d.next, d.max_runs,
      NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
      NULL, NULL, NULL)::firing
    FROM due d
    WHERE d.missed_count > 0
      OR d.slot_runs >= d.max_runs);
END $$;

-- Decides which due slots of schedules run and which are missed, the earliest schedules first,
-- until there are `max` slots. Leaves the other schedules, and the last slots of the last one, to
-- the next tick. Schedules with the same rule have the same due slots, which are computed once.
-- ROWS is a small number, so that the planner joins this with indexes.
CREATE OR REPLACE FUNCTION _classify_due_schedules(ids bigint[], max int, t timestamptz)
RETURNS TABLE (
  schedule_id bigint,
  runs timestamptz[],
  missed_count int,
  missed_until timestamptz,
  last timestamptz,
  next timestamptz
)
LANGUAGE plpgsql STABLE ROWS 10
SET timezone = 'UTC'
AS $$
DECLARE
  rule record;
  slots_left int := max;
BEGIN
  FOR rule IN
    -- The OFFSET 0 in this query keeps PostgreSQL from computing `second` for rules that the loop
    -- does not fetch.
    SELECT
      r.*,
      CASE
        WHEN r.pattern_id IS NOT NULL THEN (
          SELECT next_run(p.cron, r.first)
          FROM compiled_patterns p
          WHERE p.id = r.pattern_id)
        WHEN r.every IS NOT NULL THEN
          r.first + extract(epoch FROM r.every) * interval '1 second'
      END AS second
    FROM (
      SELECT
        x.next_run AS first, s.pattern_id, s.every,
        CASE WHEN s.every IS NOT NULL THEN coalesce(s.start, s.created_at) END AS anchor,
        s.at, s."end", s.missed, s.catch_up, s.grace,
        array_agg(s.id ORDER BY s.id) AS schedules
      FROM unnest(ids) i(id)
      JOIN timers x ON x.schedule_id = i.id
      JOIN schedules s ON s.id = i.id
      GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
      ORDER BY 1
      OFFSET 0) r
  LOOP
    IF (rule.second IS NULL OR rule.second > least(t, rule."end"))
      AND rule.first >= t - coalesce(rule.grace, interval '1 minute') THEN
      -- This is the usual case: a single slot is due, and not too late.
      runs := ARRAY[rule.first];
      missed_count := 0;
      missed_until := NULL;
      last := rule.first;
      next := CASE WHEN rule.second <= coalesce(rule."end", 'infinity') THEN rule.second END;
    ELSE
      SELECT c.*
      INTO runs, missed_count, missed_until, last, next
      FROM _classify_due_slots(
        rule.pattern_id, rule.every, rule.anchor, rule.at, rule.first, rule."end", rule.missed,
        rule.catch_up, rule.grace, t) c;
      slots_left := greatest(1, slots_left - missed_count);
    END IF;
    FOREACH schedule_id IN ARRAY rule.schedules LOOP
      IF cardinality(runs) > slots_left THEN
        last := runs[slots_left];
        next := runs[slots_left + 1];
        runs := runs[:slots_left];
      END IF;
      RETURN NEXT;
      slots_left := slots_left - greatest(1, cardinality(runs));
      IF slots_left <= 0 THEN RETURN; END IF;
    END LOOP;
  END LOOP;
END $$;

-- Writes the slots, jobs and timers that _decide_firings() decided. The caller has locked the
-- timers.
CREATE OR REPLACE FUNCTION _write_firings(
  firings firing[], t timestamptz, OUT fired int, OUT missed int, OUT skipped int, OUT events jsonb
)
LANGUAGE plpgsql VOLATILE
SET timezone = 'UTC'
AS $$
DECLARE
  queues text[];
  made uuid[];
  children uuid[];
  parents uuid[];
  tenants text[];
  unfinished uuid[];
  next_due timestamptz;
  has_fair_queue boolean := EXISTS (SELECT FROM queues q WHERE q.lanes = 'share');
BEGIN
  WITH
    decided AS MATERIALIZED (SELECT * FROM unnest(firings)),
    written AS (
      INSERT INTO slots (
        schedule_id, slot, until, count, outcome, reason, job_id, fired_at, finished_at, due_by)
      SELECT
        f.schedule_id, f.slot, f.until, f.count, f.outcome, f.reason, f.job_id, t,
        CASE WHEN f.outcome = 'fired' THEN t END, f.due_by
      FROM decided f
      WHERE f.slot IS NOT NULL
      ON CONFLICT DO NOTHING
      RETURNING schedule_id, slot, job_id, outcome, count),
    enqueued AS (
      INSERT INTO jobs (
        id, run_at, created_at, policy, timeout, version, priority, max_attempts, class, lane, wait,
        limit_keys, queue, type, tenant, schedule_id, slot, created_by, payload, meta, expires_at)
      SELECT
        f.job_id, f.run_at, t, f.policy, extract(epoch FROM f.timeout), f.version, f.priority,
        f.max_attempts,
        CASE WHEN f.max_attempts = 1 OR f.expires_at IS NOT NULL THEN 1 ELSE 0 END,
        CASE
          WHEN has_fair_queue THEN _find_slot_lane(f.queue, f.payload, f.tenant, f.type)
          ELSE 0
        END,
        CASE WHEN f.previous IS NOT NULL THEN 'blocked' WHEN f.run_at > t THEN 'delayed' END,
        CASE WHEN _may_have_quota(f.tenant) THEN _quota_keys(NULL, f.tenant) END,
        f.queue, f.type, f.tenant, f.schedule_id, f.slot, f.created_by, f.payload,
        _make_slot_meta(f.name, f.slot, f.context), f.expires_at
      FROM written w
      JOIN decided f ON f.job_id = w.job_id
      RETURNING id, schedule_id, queue, wait, run_at, expires_at),
    counts AS (SELECT e.schedule_id, count(*)::int AS jobs FROM enqueued e GROUP BY 1),
    -- All firings of a schedule have the same values for its timer, so it does not matter which one
    -- is joined.
    advanced AS (
      UPDATE timers x
      SET last_slot = f.last_slot,
        last_run = CASE WHEN c.jobs > 0 THEN t ELSE x.last_run END,
        runs = x.runs + coalesce(c.jobs, 0),
        slot_runs = x.slot_runs + coalesce(c.jobs, 0),
        next_run = CASE
          WHEN x.slot_runs + coalesce(c.jobs, 0) < coalesce(f.max_runs, 2147483647) THEN f.next_run
        END
      FROM decided f
      LEFT JOIN counts c ON c.schedule_id = f.schedule_id
      WHERE x.schedule_id = f.schedule_id),
    blocked AS (
      SELECT f.* FROM decided f JOIN enqueued e ON e.id = f.job_id WHERE e.wait = 'blocked')
  SELECT
    ARRAY(SELECT e.id FROM enqueued e),
    (SELECT array_agg(DISTINCT e.queue) FROM enqueued e WHERE e.wait IS NULL),
    (
      SELECT least(min(e.run_at) FILTER (WHERE e.wait = 'delayed'), min(e.expires_at))
      FROM enqueued e),
    coalesce(sum(w.count) FILTER (WHERE w.outcome = 'missed'), 0),
    count(*) FILTER (WHERE w.outcome = 'skipped'),
    (SELECT array_agg(b.job_id ORDER BY b.job_id) FROM blocked b),
    (SELECT array_agg(b.previous ORDER BY b.job_id) FROM blocked b),
    (SELECT array_agg(b.tenant ORDER BY b.job_id) FROM blocked b),
    (SELECT array_agg(DISTINCT u) FROM blocked b, unnest(b.unfinished) u),
    coalesce(
      jsonb_agg(_make_slot_event('schedule_fired', w.schedule_id, w.slot, NULL) ORDER BY w.slot)
        FILTER (WHERE w.outcome = 'fired'),
      '[]')
  INTO made, queues, next_due, missed, skipped, children, parents, tenants, unfinished, events
  FROM written w;
  fired := cardinality(made);
  PERFORM _wake_workers(q) FROM unnest(queues) q;
  PERFORM _wake_promoters(next_due, t);
  IF children IS NOT NULL THEN
    PERFORM _block_jobs_behind_parents(children, parents, tenants, made, t);
  END IF;
  IF unfinished IS NOT NULL THEN
    events := events || (
      SELECT coalesce(jsonb_agg(jsonb_build_object('event', 'job_canceled', 'id', c)), '[]')
      FROM unnest(_cancel_schedule_jobs(unfinished, 'the next slot is due', t)) c);
  END IF;
END $$;

-- Makes a UUIDv7 for the n-th of many jobs of one millisecond. The ids sort by n.
CREATE OR REPLACE FUNCTION _make_ordered_uuid7(ms bigint, n bigint)
RETURNS uuid
LANGUAGE sql VOLATILE
RETURN (
  lpad(to_hex(ms + n / 4096), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0')
  || right(replace(gen_random_uuid()::text, '-', ''), 16))::uuid;

CREATE OR REPLACE FUNCTION _describe_missed_slots(missed text, grace interval, capped boolean)
RETURNS text
LANGUAGE sql STABLE
RETURN CASE WHEN capped THEN 'at least this many; ' ELSE '' END
  || 'no scheduler fired it in time, and missed is ' || missed
  || CASE WHEN grace IS NOT NULL THEN ' with a grace of ' || grace ELSE '' END;

-- Makes the event that tells listeners (`@app.on`) what has become of a slot.
CREATE OR REPLACE FUNCTION _make_slot_event(
  event text, schedule_id bigint, slot timestamptz, due_by timestamptz
)
RETURNS jsonb
LANGUAGE sql STABLE AS $$
  SELECT jsonb_strip_nulls(jsonb_build_object(
    'event', event, 'schedule', s.name, 'tenant', s.tenant, 'slot', slot, 'due_by', due_by))
  FROM schedules s
  WHERE s.id = schedule_id
$$;

-- Makes each child wait until its parent has ended, with any outcome. `made` are the jobs of this
-- tick, which may contain parents.
CREATE OR REPLACE FUNCTION _block_jobs_behind_parents(
  children uuid[], parents uuid[], tenants text[], made uuid[], t timestamptz
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  -- Uses INTERSECT, because the planner expects a join of two arrays to be small, and would choose
  -- a nested loop.
  new_parents uuid[] := ARRAY(SELECT unnest(parents) INTERSECT SELECT unnest(made));
BEGIN
  UPDATE jobs j SET awaited = true WHERE j.id = ANY (new_parents);
  PERFORM _insert_dependencies(
    children, parents,
    array_fill(1, ARRAY[cardinality(children)]),
    array_fill('all_finished'::text, ARRAY[cardinality(children)]),
    tenants, new_parents, t);
END $$;

-- Marks slots whose deadline has passed as overdue, and returns their events; with `acting`, those
-- of this tenant. Locks the slots FOR UPDATE SKIP LOCKED.
CREATE OR REPLACE FUNCTION _mark_overdue_slots(max int, acting text, t timestamptz)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  events jsonb;
BEGIN
  WITH
    late AS MATERIALIZED (
      SELECT s.schedule_id, s.slot, s.kind
      FROM slots s
      WHERE s.due_by <= t
        AND s.due_by IS NOT NULL
        AND s.overdue_at IS NULL
        AND s.finished_at IS NULL
        AND (
          acting IS NULL
          OR EXISTS (SELECT FROM schedules c WHERE c.id = s.schedule_id AND c.tenant = acting))
      ORDER BY s.due_by
      LIMIT max
      FOR UPDATE SKIP LOCKED),
    marked AS (
      UPDATE slots s
      SET overdue_at = t
      FROM late l
      WHERE s.schedule_id = l.schedule_id
        AND s.slot = l.slot
        AND s.kind = l.kind
      RETURNING s.schedule_id, s.slot, s.due_by)
  SELECT jsonb_agg(e.event ORDER BY marked.due_by)
  INTO events
  FROM marked
  CROSS JOIN LATERAL (
    SELECT _make_slot_event(
      'schedule_overdue', marked.schedule_id, marked.slot, marked.due_by) AS event
  ) e
  -- The event is NULL if the schedule was removed.
  WHERE e.event IS NOT NULL;
  RETURN coalesce(events, '[]');
END $$;
