-- How one run ended, and the state that leads to; built under the job's row lock and read by finish() and put_back().
DO $$
BEGIN
  CREATE TYPE ending AS (id uuid, fence bigint, outcome text, state text, age float8, delay interval, result jsonb, error jsonb);
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

CREATE OR REPLACE FUNCTION note(action text, subject text, tenant text, detail jsonb, now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO audit (at, actor, action, subject, tenant, detail)
    VALUES (coalesce(note.now, clock()), coalesce(nullif(current_setting('watchbill.actor', true), ''), session_user), note.action, note.subject, note.tenant, note.detail);
END $$;
