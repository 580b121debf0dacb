-- Looking at schedules. Counts come from the timer, which knows how many jobs were made, and from those slots that did not end well, which are few and have
-- an index of their own: no row is written for them when a job ends.

CREATE OR REPLACE FUNCTION schedule_counts(schedule_id bigint, OUT running bigint, OUT failures bigint, OUT unsuccessful bigint, OUT skips bigint, OUT missed bigint,
  OUT last_outcome text, OUT last_error text, OUT last_error_at timestamptz, OUT overdue timestamptz)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
  running := (SELECT count(*) FROM slots s WHERE s.schedule_id = schedule_counts.schedule_id AND s.outcome IS NULL AND s.job_id IS NOT NULL);
  SELECT count(*) FILTER (WHERE s.outcome IN ('failed', 'timed_out', 'lost')) + coalesce(max(y.failures), 0), count(*) FILTER (WHERE s.job_id IS NOT NULL) + coalesce(max(y.unsuccessful), 0),
      count(*) FILTER (WHERE s.outcome = 'skipped') + coalesce(max(y.skips), 0), coalesce(sum(s.count) FILTER (WHERE s.outcome = 'missed'), 0) + coalesce(max(y.missed), 0)
    INTO failures, unsuccessful, skips, missed
    FROM (SELECT * FROM slots s WHERE s.schedule_id = schedule_counts.schedule_id AND s.outcome <> 'succeeded') s
      FULL JOIN (SELECT * FROM tallies y WHERE y.schedule_id = schedule_counts.schedule_id) y ON y.schedule_id = s.schedule_id;
  last_outcome := (SELECT s.outcome FROM slots s WHERE s.schedule_id = schedule_counts.schedule_id AND s.finished_at IS NOT NULL ORDER BY s.slot DESC LIMIT 1);
  SELECT s.error, s.finished_at INTO last_error, last_error_at FROM slots s
    WHERE s.schedule_id = schedule_counts.schedule_id AND s.outcome <> 'succeeded' AND s.outcome IN ('failed', 'timed_out', 'lost') ORDER BY s.slot DESC LIMIT 1;
  overdue := (SELECT min(o.overdue_at) FROM overdue o WHERE o.schedule_id = schedule_counts.schedule_id);
END $$;

-- What a dead-man's switch has to say now: slots that should have ended and have not, until they or a later one ends.
CREATE OR REPLACE VIEW overdue AS
  SELECT o.schedule_id, s.name, s.tenant, o.slot, o.kind, o.due_by, o.overdue_at, o.job_id, o.outcome
  FROM slots o JOIN schedules s ON s.id = o.schedule_id
  WHERE o.overdue_at IS NOT NULL AND o.finished_at IS NULL
    AND NOT EXISTS (SELECT FROM slots l WHERE l.schedule_id = o.schedule_id AND l.slot > o.slot AND l.finished_at IS NOT NULL);

CREATE OR REPLACE VIEW schedule AS
  SELECT s.id, s.name, s.tenant, s.pattern, s.every, s.at, s.tz, s.dst, s.start, s."end", s.max_runs, s.jitter, s.type, s.payload, s.version, s.command, s.role,
    s.queue, s.priority, s.max_attempts, s.retry, s.timeout, s.missed, s.catch_up, s.grace, s.overlap, s.deadline, s.run_on_start, s.enabled,
    s.description, s.category, s.tags, s.context, s.created_by, s.owner, s.hash, s.created_at, s.updated_at,
    CASE WHEN NOT s.enabled THEN 'disabled' WHEN o.orphaned THEN 'orphaned' WHEN num_nonnulls(s.pattern, s.every, s.at) = 0 OR x.next_run IS NULL AND r.on_start THEN 'on_demand'
      WHEN x.next_run IS NULL AND x.held IS NULL THEN 'ended' WHEN coalesce(x.next_run, x.held) <= clock() THEN 'due'
      WHEN c.last_outcome IN ('failed', 'timed_out', 'lost') THEN 'failing' ELSE 'ok' END AS status,
    CASE WHEN NOT o.orphaned THEN coalesce(x.next_run, x.held) END AS next_run, x.last_run, x.last_slot, c.last_outcome, c.last_error, c.last_error_at,
    x.fired AS runs, x.fired - c.unsuccessful - c.running AS successes, c.failures, c.skips, c.missed AS missed_slots, c.running,
    o.orphaned, differs_from_code(s) AS differs_from_code, c.overdue
  FROM schedules s JOIN timers x ON x.schedule_id = s.id LEFT JOIN rhythms r ON r.id = s.rhythm
    CROSS JOIN LATERAL (SELECT s.owner IS NOT NULL AND cardinality(orphans(ARRAY[s.id])) > 0 AS orphaned) o
    CROSS JOIN LATERAL schedule_counts(s.id) c;

CREATE OR REPLACE FUNCTION schedule_list(tenant text DEFAULT NULL, category text DEFAULT NULL, tag text DEFAULT NULL, status text DEFAULT NULL, after text DEFAULT NULL, max int DEFAULT 50)
RETURNS SETOF schedule LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET jit = off AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT v.* FROM (                         -- names first: what else the view shows is found for those alone that are wanted
      SELECT s.id FROM schedules s
      WHERE (schedule_list.tenant IS NULL OR s.tenant = schedule_list.tenant) AND (schedule_list.category IS NULL OR s.category = schedule_list.category)
        AND (schedule_list.tag IS NULL OR schedule_list.tag = ANY (s.tags)) AND (schedule_list.after IS NULL OR s.name > schedule_list.after)
      ORDER BY s.name, s.tenant LIMIT CASE WHEN schedule_list.status IS NULL THEN schedule_list.max END) page
    CROSS JOIN LATERAL (SELECT * FROM schedule x WHERE x.id = page.id OFFSET 0) v
    WHERE schedule_list.status IS NULL OR v.status = schedule_list.status
    LIMIT schedule_list.max;
END $$;

CREATE OR REPLACE FUNCTION schedule_by_name(name text, tenant text DEFAULT 'default') RETURNS SETOF schedule LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT * FROM schedule v WHERE v.name = schedule_by_name.name AND v.tenant = schedule_by_name.tenant $$;

CREATE OR REPLACE VIEW slot AS
  SELECT l.schedule_id, s.name, s.tenant, l.slot, l.kind, l.until, l.count, l.outcome, l.reason, l.job_id, l.fired_at, coalesce(l.started_at, r.started_at) AS started_at,
    l.finished_at, l.finished_at - l.started_at AS duration, l.error,
    (SELECT f.result FROM finished_jobs f WHERE f.id = l.job_id AND f.finished_at = l.finished_at AND f.state = 'succeeded') AS result,
    n.name AS node, n.host, l.due_by, l.overdue_at
  FROM slots l LEFT JOIN schedules s ON s.id = l.schedule_id LEFT JOIN nodes n ON n.epoch = l.epoch LEFT JOIN runs r ON r.job_id = l.job_id AND l.finished_at IS NULL;

CREATE OR REPLACE FUNCTION slot_list(name text, tenant text DEFAULT 'default', before timestamptz DEFAULT NULL, max int DEFAULT 50)
RETURNS SETOF slot LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT v.* FROM slot v
    WHERE v.schedule_id = (SELECT s.id FROM schedules s WHERE s.name = slot_list.name AND s.tenant = slot_list.tenant) AND v.slot < coalesce(slot_list.before, 'infinity')
    ORDER BY v.slot DESC, v.kind LIMIT slot_list.max;
END $$;

-- Slots as they would come, from now on, as if it were enabled.
CREATE OR REPLACE FUNCTION preview_slots(s schedules, n int, after timestamptz, left_over int) RETURNS SETOF timestamptz LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
  slot timestamptz := first_slot(s, after);
BEGIN
  FOR i IN 1 .. least(preview_slots.n, left_over) LOOP
    EXIT WHEN slot IS NULL;
    RETURN NEXT slot;
    slot := first_slot(s, slot);
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION preview_schedule(name text, n int DEFAULT 10, tenant text DEFAULT 'default', now timestamptz DEFAULT NULL) RETURNS SETOF timestamptz
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT p FROM schedules s JOIN timers x ON x.schedule_id = s.id,
      preview_slots(s, preview_schedule.n, greatest(coalesce(preview_schedule.now, clock()), x.last_slot), coalesce(s.max_runs - x.counted, 2147483647)) p
    WHERE s.name = preview_schedule.name AND s.tenant = preview_schedule.tenant;
END $$;

-- Checks the definition as a write would, and stores nothing but a pattern that it has not met before.
CREATE OR REPLACE FUNCTION preview_schedule_from(definition jsonb, n int DEFAULT 10, now timestamptz DEFAULT NULL) RETURNS SETOF timestamptz
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  s schedules := new_schedule(definition, now);
  fault text;
BEGIN
  s.name := coalesce(s.name, 'preview');
  fault := schedule_fault(s);
  IF fault IS NOT NULL THEN PERFORM refuse_schedule(s.name, fault); END IF;
  IF s.pattern IS NOT NULL THEN s.rhythm := rhythm(s.pattern, s.tz, s.dst, coalesce(s.start, s.created_at)); END IF;
  RETURN QUERY SELECT * FROM preview_slots(s, n, s.created_at, coalesce(s.max_runs, 2147483647));
END $$;
