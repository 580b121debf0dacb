-- An advisory lock has two numbers, a class and a key. Each function _lock_class_NAME() returns the
-- class of one kind of lock, and takes no lock itself. The classes count up from the text "Watc"
-- read as a number. The key is mostly the oid of a table. The functions are STABLE, because
-- PostgreSQL does not inline them if they are IMMUTABLE.

-- The wakeup lock: a sleeping worker holds it and producers share it: see wake.sql.
CREATE OR REPLACE FUNCTION _lock_class_wakeup()
RETURNS int
LANGUAGE sql STABLE
RETURN 1466004579;

-- A transaction that makes or drops partitions holds a lock of this class.
CREATE OR REPLACE FUNCTION _lock_class_partitions()
RETURNS int
LANGUAGE sql STABLE
RETURN 1466004580;

-- A node that declares schedules, limits or queues holds a lock of this class, one per app.
CREATE OR REPLACE FUNCTION _lock_class_declarations()
RETURNS int
LANGUAGE sql STABLE
RETURN 1466004581;

-- A claim that stores how far it has served the lanes of a fair or routed queue takes a lock of
-- this class, one per queue.
CREATE OR REPLACE FUNCTION _lock_class_turns()
RETURNS int
LANGUAGE sql STABLE
RETURN 1466004582;

-- Takes an advisory lock until the transaction ends. Every role of the database may hold such a
-- lock for as long as it likes, so this function waits two seconds at most, and then raises an
-- error that names the holder.
CREATE OR REPLACE FUNCTION _take_lock(class int, key int)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '2s'
AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(class, key);
EXCEPTION WHEN lock_not_available THEN
  RAISE EXCEPTION 'advisory lock (%, %) is held by %', class, key, _find_lock_holder(class, key)
    USING ERRCODE = 'lock_not_available',
      HINT = 'wait for the end of its transaction, or call pg_terminate_backend(PID)';
END $$;

-- Names the session that holds an advisory lock. PostgreSQL shows the start of that session's
-- transaction only to the session's own role and to monitoring roles.
CREATE OR REPLACE FUNCTION _find_lock_holder(class int, key int)
RETURNS text
LANGUAGE sql STABLE AS $$
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
