-- A fence: above, how often the server's history may have forked; below, the sequence. The timeline counts failovers (a failover that lost its
-- tail issues nothing twice), the generation everything that puts the timeline back: pg_upgrade, a restored dump (see adopt_server).
-- Where the server hides its timeline (some managed ones) it counts as 0, and `watchbill db adopt` raises the generation.
DO $$
BEGIN
  PERFORM pg_walfile_name(pg_current_wal_insert_lsn());
  CREATE OR REPLACE FUNCTION server_timeline() RETURNS int LANGUAGE sql VOLATILE
    RETURN ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int;
EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function THEN
  CREATE OR REPLACE FUNCTION server_timeline() RETURNS int LANGUAGE sql VOLATILE RETURN 0;
END $$;

CREATE OR REPLACE FUNCTION fence_of(generation int) RETURNS bigint LANGUAGE sql VOLATILE
  RETURN ((generation + server_timeline())::bigint << 40) + nextval('fence_seq');

CREATE OR REPLACE FUNCTION next_fence() RETURNS bigint LANGUAGE sql VOLATILE RETURN (SELECT fence_of(i.generation) FROM installation i);

-- Another server holds this data than issued the last epoch, or its timeline went back: step over everything that was issued there.
CREATE OR REPLACE FUNCTION adopt_server() RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  server bigint;
  line int := server_timeline();
BEGIN
  BEGIN
    server := (SELECT c.system_identifier FROM pg_control_system() c);
  EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function THEN
    server := 0;
  END;
  UPDATE installation i SET generation = i.generation + CASE WHEN line < i.timeline OR server <> i.system_identifier THEN i.timeline + 1 ELSE 0 END,
      system_identifier = server, timeline = line
    WHERE (i.system_identifier, i.timeline) IS DISTINCT FROM (server, line);
END $$;

-- UUIDv7 for callers who bring no id: milliseconds, then the microseconds within them, then chance.
CREATE OR REPLACE FUNCTION uuid7(at timestamptz DEFAULT NULL) RETURNS uuid LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  us bigint := (extract(epoch FROM coalesce(uuid7.at, clock())) * 1000000)::bigint;
BEGIN
  RETURN lpad(to_hex(us / 1000), 12, '0') || '7' || lpad(to_hex((us % 1000) * 4096 / 1000), 3, '0')
      || overlay(right(replace(gen_random_uuid()::text, '-', ''), 16) PLACING to_hex(8 + (random() * 3)::int) FROM 1 FOR 1);
END $$;

-- The time inside a UUIDv7, for pruning partitions; of any other id nothing is known.
CREATE OR REPLACE FUNCTION uuid_time(id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE WHEN id IS NULL THEN NULL
    WHEN get_byte(uuid_send(id), 6) >> 4 = 7 THEN to_timestamp(('x' || encode(substr(uuid_send(id), 1, 6), 'hex'))::bit(48)::bigint / 1000.0::float8)
    ELSE '-infinity' END;

-- History of a job cannot be older than its id, give or take a day of clock error.
CREATE OR REPLACE FUNCTION history_from(id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN uuid_time(id) - interval '1 day';
