-- A new fence is always greater than all earlier fences, also after a failover to a server that
-- lacks the last transactions, and in a restored copy. The low 40 bits of a fence come from a
-- sequence. The bits above are the timeline plus the generation. The server raises the timeline at
-- each failover. _adopt_database() raises the generation when the data is served from another place
-- than before. If a managed server hides the timeline, it counts as 0.
DO $$
BEGIN
  PERFORM pg_walfile_name(pg_current_wal_insert_lsn());
  CREATE OR REPLACE FUNCTION _server_timeline()
  RETURNS int
  LANGUAGE sql VOLATILE
  RETURN ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int;
EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function THEN
  CREATE OR REPLACE FUNCTION _server_timeline()
  RETURNS int
  LANGUAGE sql VOLATILE
  RETURN 0;
END $$;

CREATE OR REPLACE FUNCTION _make_fence(generation int)
RETURNS bigint
LANGUAGE sql VOLATILE
RETURN ((generation + _server_timeline())::bigint << 40) + nextval('fence_seq');

CREATE OR REPLACE FUNCTION _next_fence()
RETURNS bigint
LANGUAGE sql VOLATILE
RETURN (SELECT _make_fence(i.generation) FROM installation i);

-- Raises the generation if these tables are not the ones that issued the last fence (another
-- database, another server, a restored copy), or if the server was started again since then: it may
-- have been started from a copy of its files. So new fences are greater than all that the original
-- tables issued. Returns the generation. claim() makes the same comparison itself.
--
-- The random part keeps two servers apart that both go on from the same copy, after a failover that
-- left two primaries: fifteen of sixteen such pairs issue different fences.
CREATE OR REPLACE FUNCTION _adopt_database()
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  known int;
  is_copy boolean;
BEGIN
  SELECT
    i.generation,
    (i.server_started_at, i.jobs_oid, i.database_oid) IS DISTINCT FROM (
      pg_postmaster_start_time(), 'jobs'::regclass::oid,
      (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
  INTO known, is_copy
  FROM installation i;
  IF NOT is_copy THEN RETURN known; END IF;
  UPDATE installation i
  SET generation = i.generation + i.timeline + 1 + floor(random() * 16)::int,
    timeline = _server_timeline(),
    server_started_at = pg_postmaster_start_time(),
    database_oid = here.database_oid,
    jobs_oid = 'jobs'::regclass::oid
  FROM (
    SELECT d.oid AS database_oid
    FROM pg_database d
    WHERE d.datname = current_database()) here
  WHERE (i.server_started_at, i.database_oid, i.jobs_oid)
    IS DISTINCT FROM (pg_postmaster_start_time(), here.database_oid, 'jobs'::regclass::oid);
  RETURN (SELECT i.generation FROM installation i);
END $$;
