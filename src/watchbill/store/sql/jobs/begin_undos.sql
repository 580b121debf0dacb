-- Lets jobs undo their steps before they end as dead or canceled. Stores for each of them that
-- undoing has begun, as the step `undo/` with the error of the job, and takes their stop requests
-- back: the undoing is not to be stopped. Returns the endings, in which these jobs are queued again
-- at once. Their next run calls no step that is not stored, and then the undos. The caller has
-- locked the jobs.
CREATE OR REPLACE FUNCTION _begin_undos(endings ending[], t timestamptz)
RETURNS ending[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  undoing uuid[];
BEGIN
  IF NOT EXISTS (SELECT FROM unnest(endings) e WHERE e.state IN ('dead', 'canceled')) THEN
    RETURN endings;
  END IF;
  WITH i AS (
    INSERT INTO steps (
      job_id, tenant, name, seq, kind, state, fence, run, version, tries, started_at, error)
    SELECT
      j.id, j.tenant, 'undo/', u.last + 1, 'undo', 'begun', e.fence, j.run, 1, 1, t,
      CASE
        WHEN e.state = 'canceled' AND e.error->>'kind' IS DISTINCT FROM 'canceled'
          THEN _cancel_error(j.id, e.state)
        ELSE e.error
      END
    FROM unnest(endings) e
    JOIN jobs j ON j.id = e.id AND j.fence = e.fence
    CROSS JOIN LATERAL (
      SELECT max(s.seq) AS last, bool_or(s.has_undo AND s.state = 'done') AS has_undo
      FROM steps s
      WHERE s.job_id = j.id
        AND s.tenant = j.tenant) u
    WHERE e.state IN ('dead', 'canceled')
      AND e.outcome <> 'undone'
      AND u.has_undo
    ON CONFLICT DO NOTHING
    RETURNING job_id)
  SELECT array_agg(i.job_id) INTO undoing FROM i;
  IF undoing IS NULL THEN RETURN endings; END IF;
  UPDATE jobs j
  SET canceling = false
  WHERE j.id = ANY (undoing)
    AND j.canceling;
  DELETE FROM cancels c WHERE c.job_id = ANY (undoing);
  RETURN ARRAY(
    SELECT
      CASE
        WHEN e.id = ANY (undoing) THEN ROW(
          e.id, e.fence, e.outcome,
          CASE WHEN e.outcome IN ('failed', 'timed_out', 'lost') THEN 'failed' ELSE 'queued' END,
          e.age, interval '0', NULL, e.error)::ending
        ELSE e
      END
    FROM unnest(endings) e);
END $$;

-- Says whether the job undoes its steps, or has done so.
CREATE OR REPLACE FUNCTION _is_undoing(job_id uuid, tenant text)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
  SELECT EXISTS (
    SELECT
    FROM steps s
    WHERE s.job_id = _is_undoing.job_id
      AND s.tenant = _is_undoing.tenant
      AND s.name = 'undo/'
      AND s.kind = 'undo')
$$;

-- Returns the stored steps of a job that have an undo and are not undone, the last one first.
CREATE OR REPLACE FUNCTION _list_open_undos(job_id uuid, tenant text)
RETURNS text[]
LANGUAGE sql STABLE
AS $$
  SELECT array_agg(s.name ORDER BY s.seq DESC)
  FROM steps s
  WHERE s.job_id = _list_open_undos.job_id
    AND s.tenant = _list_open_undos.tenant
    AND s.has_undo
    AND s.state = 'done'
    AND NOT EXISTS (
      SELECT
      FROM steps u
      WHERE u.job_id = s.job_id
        AND u.tenant = s.tenant
        AND u.name = 'undo/' || s.name
        AND u.state = 'done')
$$;
