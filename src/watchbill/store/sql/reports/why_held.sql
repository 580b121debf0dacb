-- after: job_cause
-- Explains what becomes of a job that a node holds: it runs, is asked to stop, or its node is
-- silent. A node sends a beat every third of its lease, so it is silent after half a lease.
CREATE OR REPLACE FUNCTION _explain_held_job(j jobs, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  c claims;
  n nodes;
  last_beat timestamptz;
BEGIN
  SELECT * INTO c FROM claims x WHERE x.fence = j.fence AND j.id = ANY (x.job_ids);
  IF NOT FOUND THEN
    RETURN QUERY
      SELECT
        2,
        'unclaimed',
        'it has the fence of a claim that does not exist: its row was damaged',
        NULL::timestamptz,
        NULL::timestamptz,
        true,
        ARRAY[format('watchbill jobs release %s', j.id)],
        jsonb_build_object('fence', j.fence);
    RETURN;
  END IF;
  SELECT * INTO n FROM nodes x WHERE x.epoch = c.epoch;
  SELECT b.at INTO last_beat FROM beats b WHERE b.epoch = c.epoch;
  IF last_beat + n.lease / 2 > t THEN
    RETURN QUERY SELECT * FROM _explain_run(j, c, n);
  ELSE
    RETURN QUERY SELECT * FROM _explain_silent_node(j, n, coalesce(last_beat, n.ended_at), t);
  END IF;
END $$;

-- Says where a job runs and since when, and who has asked it to stop. A run is recorded when it has
-- lasted for a beat.
CREATE OR REPLACE FUNCTION _explain_run(j jobs, c claims, n nodes)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  r runs;
  stop cancels;
BEGIN
  SELECT * INTO r FROM runs x WHERE x.job_id = j.id AND x.fence = j.fence;
  SELECT * INTO stop FROM cancels x WHERE x.job_id = j.id;
  RETURN QUERY
    SELECT
      1,
      CASE WHEN j.canceling THEN 'stopping' ELSE 'running' END,
      CASE
        WHEN r.started_at IS NULL THEN format(
          'node %s claimed it at %s, and has started it or starts it next',
          n.name, date_trunc('second', c.at))
        ELSE format('it runs on node %s since %s', n.name, date_trunc('second', r.started_at))
      END || CASE
        WHEN stop.job_id IS NULL THEN ''
        ELSE format(
          '; %s asked it to stop at %s',
          coalesce(stop.requested_by, 'unknown'), date_trunc('second', stop.requested_at))
      END,
      r.started_at + make_interval(secs => j.timeout),
      coalesce(r.started_at, c.at),
      false,
      CASE
        WHEN j.canceling THEN ARRAY[format('watchbill jobs cancel --force %s', j.id)]
        ELSE ARRAY[
          format('watchbill jobs cancel %s', j.id), format('watchbill jobs release %s', j.id)]
      END,
      jsonb_strip_nulls(jsonb_build_object(
        'node', n.name, 'claimed_at', c.at, 'started_at', r.started_at, 'progress', r.progress,
        'timeout', j.timeout, 'stop_requested_by', stop.requested_by,
        'stop_requested_at', stop.requested_at));
END $$;

-- Says that the node which holds a job is silent, and when other nodes take the job from it.
CREATE OR REPLACE FUNCTION _explain_silent_node(
  j jobs,
  n nodes,
  last_beat timestamptz,
  t timestamptz
)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  ends_at timestamptz := last_beat + n.lease;
  has_another boolean := EXISTS (
    SELECT
    FROM beats b
    JOIN nodes o USING (epoch)
    WHERE o.epoch <> n.epoch
      AND o.state IN ('active', 'draining')
      AND b.at + o.lease > t);
BEGIN
  RETURN QUERY
    SELECT
      1,
      'silent',
      format(
        'node %s holds it, and has been silent since %s',
        coalesce(n.name, 'unknown'), date_trunc('second', last_beat))
        || CASE
          WHEN has_another THEN format(
            '; another node takes the job from it at %s', date_trunc('second', ends_at))
          ELSE '; no other node is alive that could take the job from it'
        END,
      CASE WHEN has_another THEN ends_at END,
      last_beat,
      NOT has_another,
      CASE WHEN has_another THEN '{}' ELSE ARRAY['watchbill worker'] END,
      jsonb_build_object('node', n.name, 'last_beat', last_beat);
END $$;
