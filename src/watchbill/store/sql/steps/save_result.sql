-- Stores the result of one step of a running job that is not stored yet: save_steps() for the
-- common case, in which a handler waits for each step. Returns whether it is stored. If not, the
-- caller asks save_steps(), which tells a stale fence from a step that is stored. Locks the job FOR
-- KEY SHARE. It has no SET search_path, as _enqueue_plain(), so every name in it has a schema.
DO $do$
BEGIN
  EXECUTE format($format$
    CREATE OR REPLACE FUNCTION _save_result(
      id uuid,
      fence bigint,
      name text,
      seq int,
      version int,
      digest bigint,
      age float8,
      has_undo boolean,
      result jsonb
    )
    RETURNS boolean
    LANGUAGE plpgsql VOLATILE
    AS $body$
    #variable_conflict use_variable
    DECLARE
      t pg_catalog.timestamptz := %1$I._clock();
    BEGIN
      INSERT INTO %1$I.steps AS s (
        job_id, tenant, name, seq, kind, state, fence, run, version, tries, digest, started_at,
        ended_at, result, has_undo)
      SELECT
        j.id, j.tenant, name, seq, 'run', 'done', fence, j.run, version, 1, digest,
        %1$I._started_at(t, age), t, result, has_undo
      FROM %1$I.jobs j
      WHERE j.id OPERATOR(pg_catalog.=) id
        AND j.fence OPERATOR(pg_catalog.=) fence
        AND fence OPERATOR(pg_catalog.<>) '0'
      FOR KEY SHARE OF j
      ON CONFLICT DO NOTHING;
      RETURN FOUND;
    END $body$;
  $format$, current_schema());
END $do$;
