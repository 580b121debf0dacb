-- Returns the session that holds the advisory lock with these two numbers, which pg_locks shows
-- without their sign.
SELECT a.pid, a.usename, a.application_name, coalesce(a.xact_start, a.backend_start)
FROM pg_locks l
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory'
  AND l.granted
  AND l.objsubid = 2
  AND l.database = a.datid
  AND l.classid = %s::bigint::oid
  AND l.objid = (%s::bigint & 4294967295)::oid
  AND a.datname = current_database()
LIMIT 1
