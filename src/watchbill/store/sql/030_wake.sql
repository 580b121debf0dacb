-- The night porter's bell. An idle worker that sleeps holds this advisory lock exclusively; producers share it until they commit.
-- Whoever cannot share it knows that somebody sleeps, and rings; whoever can leaves the sleeper-to-be no way to miss its row,
-- because the lock is granted only after this transaction has ended.
-- It says `ready QUEUE`; and, to those who keep the time, `later` or `schedules`; to those who look after jobs that wait for others, `unblock`; and to nodes `stop JOB`, and `beat`: a sign of life is wanted.
CREATE OR REPLACE FUNCTION wake_key() RETURNS int LANGUAGE sql STABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
  SELECT 'jobs'::regclass::oid::int $$;

CREATE OR REPLACE FUNCTION wake_channel() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
  SELECT 'watchbill_' || 'jobs'::regclass::oid $$;

CREATE OR REPLACE FUNCTION wake(queue text) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  IF NOT pg_try_advisory_xact_lock_shared(1181707369, 'jobs'::regclass::oid::int) THEN
    PERFORM pg_notify('watchbill_' || 'jobs'::regclass::oid, 'ready ' || queue);
  END IF;
END $$;

-- For a job that is not due yet nobody need look, except those who promote: they look every second, so only for what may be due sooner. A worker that puts a job back
-- for later says nothing: settle tells it when that is due, and it promotes itself.
CREATE OR REPLACE FUNCTION wake_later(due timestamptz, t timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  IF due < t + interval '2 seconds' THEN PERFORM pg_notify('watchbill_' || 'jobs'::regclass::oid, 'later'); END IF;
END $$;
