-- Returns the stored steps of unfinished jobs. `remaining` are the seconds until the wake time of a
-- step that waits.
CREATE OR REPLACE FUNCTION load_steps(ids uuid[], now timestamptz DEFAULT NULL)
RETURNS TABLE (
  id uuid,
  name text,
  kind text,
  state text,
  seq int,
  version int,
  tries int,
  digest bigint,
  remaining float8,
  result jsonb,
  error jsonb,
  has_undo boolean
)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := _clock(now);
BEGIN
  RETURN QUERY
    SELECT
      s.job_id, s.name, s.kind, s.state, s.seq, s.version, s.tries, s.digest,
      extract(epoch FROM s.wake_at - t)::float8, s.result, s.error,
      s.has_undo
    FROM unnest(ids) i(id)
    JOIN jobs j ON j.id = i.id
    JOIN steps s ON s.job_id = j.id AND s.tenant = j.tenant;
END $$;
