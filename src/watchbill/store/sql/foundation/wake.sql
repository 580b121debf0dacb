-- A sleeping worker holds the wakeup lock, an advisory lock, exclusively. A producer shares the
-- lock until it commits; if it cannot get the lock, it sends a notification. A worker gets the lock
-- only when the producers that share it have ended, so the worker does not miss their jobs.
-- The notifications are: `ready QUEUE` for workers, and `awake` when the worker that held the lock
-- may not sleep again; `later TIME`, in seconds since 1970, and `unpark` (call promote) for
-- promoters; `schedules` for schedulers; `unblock` for nodes that check blocked jobs; `stop JOB`
-- (call stop_requests) and `beat` (send a heartbeat); `leader` for candidates, when a group has
-- lost its leader (call elect); `tokens` for members of token groups (call member_state).
-- Every role of the database can send these notifications, so they are only hints. If a
-- notification is lost, _survey() finds the same work: every node calls it at least every ten
-- seconds.
CREATE OR REPLACE FUNCTION _wake_lock_key()
RETURNS int
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT 'jobs'::regclass::oid::int $$;

CREATE OR REPLACE FUNCTION _wake_channel()
RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT 'watchbill_' || 'jobs'::regclass::oid $$;

CREATE OR REPLACE FUNCTION _wake_workers(queue text)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF NOT pg_try_advisory_xact_lock_shared(_lock_class_wakeup(), 'jobs'::regclass::oid::int) THEN
    PERFORM pg_notify('watchbill_' || 'jobs'::regclass::oid, 'ready ' || queue);
  END IF;
END $$;

-- Notifies promoters of a delayed job that is due within 15 seconds. Later jobs need no
-- notification: every node calls _survey() at least every ten seconds and learns when the next
-- delayed job is due. settle() does not call this, because the worker itself promotes the job then.
CREATE OR REPLACE FUNCTION _wake_promoters(due timestamptz, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF due < t + interval '15 seconds' THEN
    PERFORM pg_notify(
      'watchbill_' || 'jobs'::regclass::oid, 'later ' || extract(epoch FROM due));
  END IF;
END $$;

-- Notifies sleeping nodes, as _wake_workers() does, that blocked jobs can be checked. A node that
-- does not sleep checks them once a second anyway.
CREATE OR REPLACE FUNCTION _wake_unblockers()
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF NOT pg_try_advisory_xact_lock_shared(_lock_class_wakeup(), _wake_lock_key()) THEN
    PERFORM pg_notify(_wake_channel(), 'unblock');
  END IF;
END $$;

-- Says whether a sleeping worker holds the wakeup lock. A producer that shares the lock does not
-- count.
CREATE OR REPLACE FUNCTION _has_sleeping_worker()
RETURNS boolean
LANGUAGE sql VOLATILE AS $$
  SELECT EXISTS (
    SELECT
    FROM pg_locks l
    WHERE l.locktype = 'advisory'
      AND l.mode = 'ExclusiveLock'
      AND l.granted
      AND l.objsubid = 2
      AND l.classid = _lock_class_wakeup()::bigint::oid
      AND l.objid = 'jobs'::regclass::oid
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
$$;
