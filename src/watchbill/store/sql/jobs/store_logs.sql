-- Stores the last log lines of runs that end now, as one text for each run. The caller settles the
-- runs in the same transaction, after this call: a run whose job has another fence by now, and did
-- not end under this one, is left out. Locks nothing.
CREATE OR REPLACE FUNCTION _store_logs(
  ids uuid[],
  fences bigint[],
  texts text[],
  now timestamptz DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  t timestamptz := _clock(now);
  stored int;
BEGIN
  IF _may_be_bound() THEN PERFORM _check_shared_change('_store_logs'); END IF;
  INSERT INTO job_logs (job_id, run, tenant, ended_at, lines)
  SELECT i.id, r.run, r.tenant, t, string_to_array(i.text, E'\n')
  FROM unnest(ids, fences, texts) i(id, fence, text)
  CROSS JOIN LATERAL (
    SELECT j.run, j.tenant FROM jobs j WHERE j.id = i.id AND j.fence = i.fence
    UNION ALL
    -- A transactional handler has ended its job itself.
    SELECT f.run, f.tenant
    FROM finished_jobs f
    WHERE f.id = i.id
      AND f.fence = i.fence
      AND f.finished_at >= _history_start(i.id)
    LIMIT 1) r
  WHERE i.text IS NOT NULL
    -- The statement is sent again if its reply was lost.
    AND NOT EXISTS (
      SELECT
      FROM job_logs l
      WHERE l.job_id = i.id
        AND l.run = r.run
        AND l.tenant = r.tenant);
  GET DIAGNOSTICS stored = ROW_COUNT;
  RETURN stored;
END $$;
