-- Each function _lock_class_NAME() returns the class of one kind of advisory lock, and takes no
-- lock itself. The class is the first of the two numbers of the lock: "Watc" as four bytes, and the
-- next numbers. The second is mostly the oid of a table. STABLE, because PostgreSQL does not inline
-- them if IMMUTABLE.

-- A sleeping worker holds it and producers share it: see 030_wake.sql.
CREATE OR REPLACE FUNCTION _lock_class_wakeup()
RETURNS int
LANGUAGE sql STABLE
RETURN 1466004579;

-- Held while a transaction makes or drops partitions.
CREATE OR REPLACE FUNCTION _lock_class_partitions()
RETURNS int
LANGUAGE sql STABLE
RETURN 1466004580;

-- Held, per app, while a node declares schedules, limits or queues.
CREATE OR REPLACE FUNCTION _lock_class_declarations()
RETURNS int
LANGUAGE sql STABLE
RETURN 1466004581;

-- Held, per queue, by a claim that has served the lanes of a fair or routed queue.
CREATE OR REPLACE FUNCTION _lock_class_turns()
RETURNS int
LANGUAGE sql STABLE
RETURN 1466004582;

-- Takes an advisory lock until the transaction ends. Every role of the database may hold it for as
-- long as it likes, so this waits two seconds at most, and the error names the holder.
CREATE OR REPLACE FUNCTION _take_lock(class int, key int)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(class, key);
EXCEPTION WHEN lock_not_available THEN
  RAISE EXCEPTION 'advisory lock (%, %) is held by %', class, key, _find_lock_holder(class, key)
    USING ERRCODE = 'lock_not_available',
      HINT = 'wait for the end of its transaction, or call pg_terminate_backend(PID)';
END $$;

-- Names the session that holds an advisory lock. Only its own role and monitoring roles see since
-- when its transaction is open.
CREATE OR REPLACE FUNCTION _find_lock_holder(class int, key int)
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT coalesce(min(format('process %s (role %s, application %L, transaction since %s)',
    a.pid, a.usename, a.application_name, coalesce(a.xact_start::text, 'an unknown time'))),
    'a session that has ended since')
  FROM pg_locks l
  JOIN pg_stat_activity a ON a.pid = l.pid
  WHERE l.locktype = 'advisory'
    AND l.granted
    AND l.objsubid = 2
    AND l.database = a.datid
    AND l.classid = (class::bigint & 4294967295)::oid
    AND l.objid = (key::bigint & 4294967295)::oid
    AND a.datname = current_database()
$$;
