-- Why a schedule does not fire, or when it will: every cause that holds, the decisive one first. Ranks below 10 keep it from firing, in the order in which one
-- would have to clear them away; 10 to 19 say when it fires, if nothing does; from 20 on stands what else one would want to know.
CREATE OR REPLACE FUNCTION why_schedule(name text, tenant text DEFAULT 'default', now timestamptz DEFAULT NULL) RETURNS TABLE (fires boolean, reason text, next_run timestamptz)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(why_schedule.now, clock());
  s schedules;
  x timers;
  open slots;                                            -- the last of its jobs that have not ended
  skipped bigint;                                        -- slots since then
  on_start boolean;
  coming timestamptz;                                    -- its next slot, if it were free to fire
  beyond timestamptz;                                    -- the same, without its end
BEGIN
  SELECT * INTO s FROM schedules v WHERE v.name = why_schedule.name AND v.tenant = why_schedule.tenant;
  IF NOT FOUND THEN RETURN; END IF;
  SELECT * INTO x FROM timers y WHERE y.schedule_id = s.id;
  SELECT * INTO open FROM slots l WHERE l.schedule_id = s.id AND l.outcome IS NULL AND l.job_id IS NOT NULL ORDER BY l.fired_at DESC LIMIT 1;
  skipped := (SELECT count(*) FROM slots l WHERE l.schedule_id = s.id AND l.outcome = 'skipped' AND l.slot > open.slot);
  on_start := s.run_on_start OR coalesce((SELECT r.on_start FROM rhythms r WHERE r.id = s.rhythm), false);
  coming := coalesce(x.next_run, x.held, first_slot(s, CASE WHEN s.at IS NULL THEN greatest(t, x.last_slot) ELSE coalesce(x.last_slot, '-infinity') END));
  beyond := slot_after(s.rhythm, s.every, coalesce(s.start, s.created_at), s.at, greatest(t, x.last_slot));
  RETURN QUERY WITH causes AS MATERIALIZED (
    SELECT c.rank, c.fires, c.reason FROM (VALUES
      (1, NOT s.enabled, false, format('it is disabled, since %s', date_trunc('second', s.updated_at))),
      (2, cardinality(orphans(ARRAY[s.id])) > 0, false, format('it is orphaned: nodes of app %s are alive, and none of them declares it any more', s.owner)),
      (3, num_nonnulls(s.pattern, s.every, s.at) = 0, false, CASE WHEN s.run_on_start THEN 'it runs when the cluster starts, and on demand: it has no pattern, interval or time'
        ELSE 'it is on demand: it has no pattern, interval or time' END),
      (4, x.counted >= s.max_runs, false, CASE s.max_runs WHEN 1 THEN 'it has made its one run' ELSE format('it has made its %s runs', s.max_runs) END),
      (5, s."end" < t, false, format('it ended at %s', s."end")),
      (6, s.at <= x.last_slot, false, format('its one time was %s', s.at)),
      (7, coming IS NULL AND beyond IS NOT NULL AND s."end" >= t, false, format('no slot is left before its end, %s; the next would be %s', s."end", beyond)),
      (8, coming IS NULL AND beyond IS NULL AND s.pattern IS NOT NULL, false,
        CASE WHEN on_start THEN 'it runs when the cluster starts, and at no other time' ELSE 'its pattern has no instant any more' END),
      (9, NOT EXISTS (SELECT FROM nodes n WHERE n.state = 'active'), false, 'no node is alive, so nobody fires it'),
      (9, skipped > 0 AND s.overlap = 'skip', false, format('the run of %s has not ended: job %s is %s, and %s skipped since', date_trunc('second', open.slot), open.job_id,
        (SELECT j.state FROM job_by_id(open.job_id) j), CASE skipped WHEN 1 THEN '1 slot was' ELSE skipped || ' slots were' END)),
      (10, coming > t, true, format('it is due at %s, in %s', coming, date_trunc('second', coming - t))),
      (10, coming <= t, true, format('it is due since %s', coming) || CASE WHEN t - coming > interval '1 minute' THEN ', and nobody fired it: does a scheduler run?' ELSE '' END),
      (20, skipped = 0 AND open.job_id IS NOT NULL AND s.overlap <> 'allow', true, format('the run of %s has not ended (job %s): %s', date_trunc('second', open.slot), open.job_id,
        CASE s.overlap WHEN 'skip' THEN 'slots until then are skipped' WHEN 'queue' THEN 'the next one waits for it' ELSE 'the next one cancels it' END)),
      (21, s.type IS NOT NULL AND NOT EXISTS (SELECT FROM node_types n WHERE n.type = s.type), true, format('no live node handles its task %s: its jobs wait', s.type)),
      (22, EXISTS (SELECT FROM pauses p WHERE (p.queue = s.queue OR p.queue IS NULL) AND (p.type = coalesce(s.type, 'watchbill.sql') OR p.type IS NULL)), true,
        format('its queue %s or its task is paused: its jobs wait', s.queue)),
      (23, differs_from_code(s), true, 'somebody changed it since the code declared it')) c(rank, applies, fires, reason)
    WHERE c.applies)
  SELECT c.fires, c.reason, CASE WHEN c.rank = 10 THEN coming END FROM causes c
    WHERE c.rank <> 10 OR NOT EXISTS (SELECT FROM causes b WHERE b.rank < 10) ORDER BY c.rank, c.reason;
END $$;
