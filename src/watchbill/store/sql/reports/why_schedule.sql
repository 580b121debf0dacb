-- Says why a schedule does not fire, or when it fires: lists all reasons that apply, the decisive
-- one first.
CREATE OR REPLACE FUNCTION why_schedule(
  name text,
  tenant text DEFAULT _session_tenant(),
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (fires boolean, reason text, next_run timestamptz)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  s schedules;
  timer timers;
  -- The slot of the schedule's last unfinished job, and how many slots were skipped since then.
  open slots;
  skipped bigint;
  -- The slot at which the schedule fires next if nothing stops it.
  next_slot timestamptz;
BEGIN
  SELECT * INTO s FROM schedules v WHERE v.name = name AND v.tenant = tenant;
  IF NOT FOUND THEN RETURN; END IF;
  SELECT * INTO timer FROM timers y WHERE y.schedule_id = s.id;
  SELECT *
  INTO open
  FROM slots l
  WHERE l.schedule_id = s.id
    AND l.outcome IS NULL
    AND l.job_id IS NOT NULL
  ORDER BY l.fired_at DESC
  LIMIT 1;
  skipped := (
    SELECT count(*)
    FROM slots l
    WHERE l.schedule_id = s.id
      AND l.outcome = 'skipped'
      AND l.slot > open.slot);
  next_slot := coalesce(
    timer.next_run,
    timer.held_slot,
    _find_next_slot(s, CASE
      WHEN s.at IS NULL THEN greatest(t, timer.last_slot)
      ELSE coalesce(timer.last_slot, '-infinity')
    END));
  RETURN QUERY
  WITH obstacles AS MATERIALIZED (
      SELECT * FROM _list_schedule_obstacles(s, timer, next_slot, open, skipped, t)),
    causes AS (
      SELECT o.rank, false AS fires, o.reason, NULL::timestamptz AS next_run
      FROM obstacles o
      UNION ALL
      SELECT 10, true, _explain_due_slot(next_slot, s.tz, t), next_slot
      WHERE next_slot IS NOT NULL
        AND NOT EXISTS (SELECT FROM obstacles)
      UNION ALL
      SELECT n.rank, true, n.reason, NULL
      FROM _list_schedule_notes(s, open, skipped) n)
  SELECT c.fires, c.reason, c.next_run
  FROM causes c
  ORDER BY c.rank, c.reason;
END $$;

-- Lists what keeps a schedule from firing, the decisive reason with the lowest rank.
CREATE OR REPLACE FUNCTION _list_schedule_obstacles(
  s schedules, timer timers, next_slot timestamptz, open slots, skipped bigint, t timestamptz
)
RETURNS TABLE (rank int, reason text)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  on_start boolean := s.run_on_start
    OR coalesce((SELECT r.on_start FROM compiled_patterns r WHERE r.id = s.pattern_id), false);
  -- The next slot if the schedule had no `end`.
  next_without_end timestamptz := _find_slot_after(
    s.pattern_id, s.every, coalesce(s.start, s.created_at), s.at, greatest(t, timer.last_slot));
BEGIN
  RETURN QUERY
  SELECT c.rank, c.reason
  FROM (VALUES
    (1, NOT s.enabled,
      'it is disabled, since ' || _show_in_zone(s.updated_at, s.tz)),
    (2, cardinality(_find_orphans(ARRAY[s.id])) > 0,
      format(
        'it is orphaned: nodes of app %s are alive, and none of them declares it any more',
        s.owner)),
    (3, num_nonnulls(s.pattern, s.every, s.at) = 0,
      CASE
        WHEN s.run_on_start THEN
          'it runs when the cluster starts, and on demand: it has no pattern, interval or time'
        ELSE 'it is on demand: it has no pattern, interval or time'
      END),
    (4, timer.slot_runs >= s.max_runs,
      CASE s.max_runs
        WHEN 1 THEN 'it has made its one run'
        ELSE format('it has made its %s runs', s.max_runs)
      END),
    (5, s."end" < t, 'it ended at ' || _show_in_zone(s."end", s.tz)),
    (6, s.at <= timer.last_slot, 'its only time was ' || _show_in_zone(s.at, s.tz)),
    (7, next_slot IS NULL AND next_without_end IS NOT NULL AND s."end" >= t,
      format(
        'no slot is left before its end, %s; the next would be %s',
        _show_in_zone(s."end", s.tz), _show_in_zone(next_without_end, s.tz))),
    (8, next_slot IS NULL AND next_without_end IS NULL AND s.pattern IS NOT NULL,
      CASE
        WHEN on_start THEN 'it runs when the cluster starts, and at no other time'
        ELSE 'its pattern has no later slot'
      END),
    -- Looks at beats too: if all nodes were killed, none is left that declares the others lost.
    (9,
      NOT EXISTS (
        SELECT
        FROM nodes n
        JOIN beats b USING (epoch)
        WHERE n.state = 'active'
          AND b.at + n.lease > t),
      'no node is alive that could fire it'),
    (9, skipped > 0 AND s.overlap = 'skip',
      format(
        'the run of %s has not ended: job %s is %s, and %s skipped since',
        _show_in_zone(open.slot, s.tz), open.job_id,
        (SELECT j.state FROM job_by_id(open.job_id) j),
        CASE skipped WHEN 1 THEN '1 slot was' ELSE skipped || ' slots were' END))
  ) c(rank, applies, reason)
  WHERE c.applies;
END $$;

-- Returns an instant as the clock of a zone shows it, with the name of the zone.
CREATE OR REPLACE FUNCTION _show_in_zone(at timestamptz, tz text)
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
RETURN to_char(
  at AT TIME ZONE 'UTC' + make_interval(
    secs => (_find_zone_segment(_parse_zone(tz), floor(extract(epoch FROM at))::bigint))[3]),
  'YYYY-MM-DD HH24:MI:SS ') || tz;

CREATE OR REPLACE FUNCTION _explain_due_slot(slot timestamptz, tz text, t timestamptz)
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT CASE
      WHEN slot > t THEN format(
        'it is due at %s, in %s', _show_in_zone(slot, tz), date_trunc('second', slot - t))
      ELSE 'it is due since ' || _show_in_zone(slot, tz) || CASE
        WHEN t - slot > interval '1 minute'
          THEN ', but no scheduler fired it: is a node running?'
        ELSE ''
      END
    END
$$;

-- Lists what else is worth knowing about a schedule, whether it fires or not.
CREATE OR REPLACE FUNCTION _list_schedule_notes(s schedules, open slots, skipped bigint)
RETURNS TABLE (rank int, reason text)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
  SELECT c.rank, c.reason
  FROM (VALUES
    (20, skipped = 0 AND open.job_id IS NOT NULL AND s.overlap <> 'allow',
      format(
        'the run of %s has not ended (job %s): %s',
        _show_in_zone(open.slot, s.tz), open.job_id,
        CASE s.overlap
          WHEN 'skip' THEN 'slots until then are skipped'
          WHEN 'queue' THEN 'the next one waits for it'
          ELSE 'the next one cancels it'
        END)),
    (21,
      s.type IS NOT NULL AND NOT EXISTS (SELECT FROM node_types n WHERE n.type = s.type),
      format('no live node handles its task %s: its jobs wait', s.type)),
    (22,
      EXISTS (
        SELECT
        FROM pauses p
        WHERE (p.queue = s.queue OR p.queue IS NULL)
          AND (p.type = coalesce(s.type, 'watchbill.sql') OR p.type IS NULL)),
      format('its queue %s or its task is paused: its jobs wait', s.queue)),
    (23, _is_schedule_changed(s), 'it was changed after the code declared it')
  ) c(rank, applies, reason)
  WHERE c.applies;
END $$;
