-- A fence: the server's timeline above, the sequence below, so that a failover that lost its tail issues nothing twice.
-- Where the server hides its timeline (some managed ones), the installation's generation stands in for it.
DO $$
BEGIN
  PERFORM pg_walfile_name(pg_current_wal_insert_lsn());
  CREATE OR REPLACE FUNCTION next_fence() RETURNS bigint LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $f$
    SELECT (('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint << 40) + nextval('fence_seq') $f$;
EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function THEN
  CREATE OR REPLACE FUNCTION next_fence() RETURNS bigint LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $f$
    SELECT (generation::bigint << 40) + nextval('fence_seq') FROM installation $f$;
END $$;

-- UUIDv7 for callers who bring no id: milliseconds, then the microseconds within them, then chance.
CREATE OR REPLACE FUNCTION uuid7() RETURNS uuid LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  us bigint := (extract(epoch FROM clock()) * 1000000)::bigint;
BEGIN
  RETURN lpad(to_hex(us / 1000), 12, '0') || '7' || lpad(to_hex((us % 1000) * 4096 / 1000), 3, '0')
      || overlay(right(replace(gen_random_uuid()::text, '-', ''), 16) PLACING to_hex(8 + (random() * 3)::int) FROM 1 FOR 1);
END $$;

-- The time inside a UUIDv7, for pruning partitions; of any other id nothing is known.
CREATE OR REPLACE FUNCTION uuid_time(id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
  SELECT CASE WHEN substr(id::text, 15, 1) = '7'
    THEN to_timestamp(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
    ELSE '-infinity' END $$;

-- History of a job cannot be older than its id, give or take a day of clock error.
CREATE OR REPLACE FUNCTION history_from(id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
  SELECT uuid_time(id) - interval '1 day' $$;
