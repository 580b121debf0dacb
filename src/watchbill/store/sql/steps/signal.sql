-- Sends a signal to an unfinished job. A step of the job that waits for this name reads it, now or
-- later. Returns:
--   stored     no step waits for it yet
--   woken      the job waited for it, and is ready now
--   duplicate  the job has a signal with this key already; nothing is stored
--   finished   the job has ended; nothing is stored
-- NULL if there is no such job. Locks the job FOR NO KEY UPDATE: settle() decides under the lock of
-- the job whether a suspended job has to wait, so one of the two sees what the other has done.
CREATE OR REPLACE FUNCTION signal(
  id uuid,
  name text,
  payload jsonb DEFAULT NULL,
  key text DEFAULT NULL,
  max_payload int DEFAULT 100000,
  now timestamptz DEFAULT NULL
)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  RETURN _store_signal(id, name, payload, key, max_payload, _clock(now));
END $$;

CREATE OR REPLACE FUNCTION _store_signal(
  id uuid,
  name text,
  payload jsonb,
  key text,
  max_payload int,
  t timestamptz
)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  j jobs;
BEGIN
  PERFORM _check_isolation('signal');
  PERFORM _check_signal(name, payload, key, max_payload);
  SELECT * INTO j FROM jobs x WHERE x.id = id FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN CASE WHEN (_named_job(id)).seq IS NOT NULL THEN 'finished' END;
  ELSIF EXISTS (
    SELECT FROM signals g WHERE g.job_id = j.id AND g.tenant = j.tenant AND g.key = key) THEN
    RETURN 'duplicate';
  END IF;
  PERFORM _check_unread_signals(j);
  INSERT INTO signals (job_id, tenant, seq, name, key, payload, sent_by, at)
  SELECT
    j.id, j.tenant, coalesce(max(g.seq), 0) + 1, name, key, payload, _actor(), t
  FROM signals g
  WHERE g.job_id = j.id
    AND g.tenant = j.tenant;
  IF j.fence = 0 AND _is_suspended(j.wait, j.wait_key) AND EXISTS (
    SELECT
    FROM steps s
    WHERE s.job_id = j.id
      AND s.tenant = j.tenant
      AND s.ended_at IS NULL
      AND name = ANY (s.signals)) THEN
    PERFORM _make_suspended_ready(j, t);
    RETURN 'woken';
  END IF;
  RETURN 'stored';
END $$;

-- Raises unless a signal can be like this. A worker reads the signals of a job with all its steps,
-- so no caller can lift the limit on their size.
CREATE OR REPLACE FUNCTION _check_signal(name text, payload jsonb, key text, max_payload int)
RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
  most int := 1000000;
BEGIN
  IF name IS NULL OR length(name) NOT BETWEEN 1 AND 200 THEN
    RAISE EXCEPTION 'name % of the signal is invalid', quote_nullable(left(name, 200))
      USING ERRCODE = 'WB003', HINT = 'give a text of 1 to 200 characters';
  ELSIF length(key) NOT BETWEEN 1 AND 200 THEN
    RAISE EXCEPTION 'key % of the signal is invalid', quote_nullable(left(key, 200))
      USING ERRCODE = 'WB003', HINT = 'give a text of 1 to 200 characters, or NULL';
  ELSIF octet_length(payload::text) > least(max_payload, most) THEN
    RAISE EXCEPTION 'payload of the signal has % bytes, the limit is %',
      octet_length(payload::text), least(max_payload, most)
      USING ERRCODE = 'WB003', HINT = 'store it elsewhere, and send where it is';
  END IF;
END $$;

-- Raises if the job has as many unread signals as it may have.
CREATE OR REPLACE FUNCTION _check_unread_signals(j jobs)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  most int := 10000;
BEGIN
  IF EXISTS (
    SELECT
    FROM signals g
    WHERE g.job_id = j.id
      AND g.tenant = j.tenant
      AND g.read_by IS NULL
    OFFSET most - 1) THEN
    RAISE EXCEPTION 'job % has % unread signals, which is the most that a job may have', j.id, most
      USING ERRCODE = 'WB008',
        HINT = 'let a step of the job read them, or send to jobs of their own';
  END IF;
END $$;
