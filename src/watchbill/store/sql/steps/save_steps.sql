-- Stores steps of running jobs, of many jobs in one statement. Each array has one value per step:
--   names       unique in the job, and the same in each of its runs
--   kinds       run, sleep, value
--   states      done, failed, raised (an error that the step declares); of a step that is still
--               open: waiting or retrying (until the wake time), begun (and may not begin again)
--   seqs        the order in which the steps of the job are stored
--   versions, digests  of the code and of the arguments: a later run compares them
--   tries       how often the function was called
--   ages        the seconds since the step began
--   delays, wake_ats   of a step that waits: when it is over, in one of these forms. A wake time
--               that is stored stays
--   undos       whether the step is undone if the job dies or is canceled
-- Stores nothing for a job that has another fence now, and returns the places of these steps, from
-- 1. A step that is stored stays as it is, unless it is still open. One that this fence has stored
-- counts as stored now: the reply was lost, and the caller sends it again. Locks the jobs FOR KEY
-- SHARE, as guard() does: nothing takes a job away between the comparison and the commit.
CREATE OR REPLACE FUNCTION save_steps(
  ids uuid[],
  fences bigint[],
  names text[],
  kinds text[],
  states text[],
  seqs bigint[],
  versions bigint[],
  tries bigint[],
  digests bigint[],
  ages float8[] DEFAULT NULL,
  delays interval[] DEFAULT NULL,
  wake_ats timestamptz[] DEFAULT NULL,
  results jsonb[] DEFAULT NULL,
  errors jsonb[] DEFAULT NULL,
  undos boolean[] DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (place int)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := _clock(now);
  missing int[];
BEGIN
  PERFORM _check_isolation('save_steps');
  WITH held AS MATERIALIZED (
      SELECT i.*, j.run, j.tenant
      FROM unnest(
        ids, fences, names, kinds, states, seqs, versions, save_steps.tries, digests, ages, delays,
        wake_ats, results, errors, undos) i(
        id, fence, name, kind, state, seq, version, tries, digest, age, delay, wake_at, result,
        error, has_undo)
      JOIN jobs j ON j.id = i.id AND j.fence = i.fence AND i.fence <> 0
      FOR KEY SHARE OF j),
    stored AS (
      INSERT INTO steps AS s (
        job_id, tenant, name, seq, kind, state, fence, run, version, tries, digest, started_at,
        ended_at, wake_at, result, error, has_undo)
      SELECT
        h.id, h.tenant, h.name, h.seq, h.kind, h.state, h.fence, h.run, h.version, h.tries,
        h.digest, _started_at(t, h.age),
        CASE WHEN h.state NOT IN ('waiting', 'retrying', 'begun') THEN t END,
        coalesce(h.wake_at, t + h.delay), h.result, h.error, coalesce(h.has_undo, false)
      FROM held h
      ON CONFLICT (job_id, tenant, name) DO UPDATE
      SET seq = EXCLUDED.seq,
        state = EXCLUDED.state,
        fence = EXCLUDED.fence,
        run = EXCLUDED.run,
        tries = EXCLUDED.tries,
        ended_at = EXCLUDED.ended_at,
        wake_at = CASE
          WHEN s.kind = 'sleep' THEN coalesce(s.wake_at, EXCLUDED.wake_at)
          ELSE EXCLUDED.wake_at
        END,
        result = EXCLUDED.result,
        error = EXCLUDED.error,
        has_undo = EXCLUDED.has_undo
      WHERE s.ended_at IS NULL
      RETURNING s.job_id, s.name)
  SELECT array_agg(x.place)
  INTO missing
  FROM unnest(ids, names) WITH ORDINALITY x(id, name, place)
  WHERE (x.id, x.name) NOT IN (SELECT y.job_id, y.name FROM stored y);
  IF missing IS NULL THEN RETURN; END IF;
  -- In a statement of its own, which sees what the first sending of the same steps has committed.
  RETURN QUERY
    SELECT m.place
    FROM unnest(missing) m(place)
    WHERE NOT EXISTS (
      SELECT
      FROM steps s
      WHERE s.job_id = ids[m.place]
        AND s.name = names[m.place]
        AND s.fence = fences[m.place]
        AND s.state = states[m.place]);
END $$;
