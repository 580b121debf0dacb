-- Renews the lease of a node, records its runs that last longer than a beat, and returns its jobs
-- that have a stop request. running: [{"id": ..., "fence": ..., "age": seconds, "progress":
-- {...}}], or NULL to leave the recorded runs as they are. processed: how many runs have ended on
-- the node so far; NULL leaves the count as it is.
CREATE OR REPLACE FUNCTION heartbeat(
  epoch bigint,
  running jsonb DEFAULT NULL,
  processed bigint DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  IF _may_be_bound() THEN PERFORM _check_shared_change('heartbeat'); END IF;
  UPDATE beats b
  SET at = t, n = b.n + 1, processed = coalesce(processed, b.processed)
  WHERE b.epoch = epoch;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the node with epoch % is lost', epoch
      USING ERRCODE = 'WB001', HINT = 'register again; other nodes run its jobs';
  END IF;
  IF running IS NOT NULL THEN
    PERFORM _record_runs(epoch, running, t);
  END IF;
  RETURN ARRAY(SELECT s.id FROM stop_requests(epoch) s);
END $$;

CREATE OR REPLACE FUNCTION _record_runs(epoch bigint, running jsonb, now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  IF EXISTS (
    SELECT
    FROM jsonb_array_elements(
      CASE jsonb_typeof(running) WHEN 'array' THEN running ELSE '[0]' END) r
    WHERE (
      jsonb_typeof(r->'id'),
      jsonb_typeof(r->'fence'),
      coalesce(jsonb_typeof(r->'age'), 'number')
    ) IS DISTINCT FROM ('string', 'number', 'number')) THEN
    RAISE EXCEPTION 'running % is invalid', running
      USING ERRCODE = 'WB003',
        HINT = 'give an array of objects, as in [{"id": "...", "fence": 7, "age": 12.5}]';
  END IF;
  DELETE FROM runs r
  WHERE r.epoch = epoch
    AND NOT EXISTS (
      SELECT
      FROM jsonb_to_recordset(running) AS x(id uuid, fence bigint)
      WHERE x.id = r.job_id
        AND x.fence = r.fence);
  PERFORM _write_runs(epoch, running, now);
END $$;

-- Shows how far runs are that somebody looks at, between two heartbeats.
CREATE OR REPLACE FUNCTION _show_runs(epoch bigint, running jsonb, now timestamptz DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  IF _may_be_bound() THEN PERFORM _check_shared_change('_show_runs'); END IF;
  IF EXISTS (SELECT FROM beats b WHERE b.epoch = epoch) THEN
    PERFORM _write_runs(epoch, running, t);
  END IF;
END $$;

-- Writes how far these runs are. Without `lines`, those that the run has shown before stay.
CREATE OR REPLACE FUNCTION _write_runs(epoch bigint, running jsonb, now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  -- A job that was released and claimed again may run here twice: the higher fence counts. The late
  -- beat of a frozen node must not overwrite the row of the node that has the job now.
  INSERT INTO runs AS r (job_id, fence, epoch, started_at, seen_at, progress, lines)
  SELECT DISTINCT ON (x.id)
    x.id, x.fence, epoch, _started_at(now, coalesce(x.age, 0)),
    now, x.progress, string_to_array(x.lines, E'\n')
  FROM jsonb_to_recordset(running)
    AS x(id uuid, fence bigint, age float8, progress jsonb, lines text)
  ORDER BY x.id, x.fence DESC
  ON CONFLICT (job_id) DO UPDATE
  SET fence = EXCLUDED.fence,
    epoch = EXCLUDED.epoch,
    seen_at = EXCLUDED.seen_at,
    progress = EXCLUDED.progress,
    lines = coalesce(EXCLUDED.lines, CASE WHEN EXCLUDED.fence = r.fence THEN r.lines END),
    started_at = CASE WHEN r.fence = EXCLUDED.fence THEN r.started_at ELSE EXCLUDED.started_at END
  WHERE EXCLUDED.fence >= r.fence;
END $$;
