-- Makes a UUIDv7 from a time, in milliseconds and microseconds, and random bits.
CREATE OR REPLACE FUNCTION uuid7(at timestamptz DEFAULT NULL)
RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  us bigint := (extract(epoch FROM coalesce(at, _clock())) * 1000000)::bigint;
BEGIN
  RETURN lpad(to_hex(us / 1000), 12, '0')
    || '7'
    || lpad(to_hex((us % 1000) * 4096 / 1000), 3, '0')
    || overlay(right(replace(gen_random_uuid()::text, '-', ''), 16)
      PLACING to_hex(8 + (random() * 3)::int) FROM 1 FOR 1);
END $$;

-- Returns the time that a UUIDv7 contains; '-infinity' for an id of another kind.
CREATE OR REPLACE FUNCTION _extract_uuid_time(id uuid)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN id IS NULL THEN NULL
    WHEN get_byte(uuid_send(id), 6) >> 4 = 7 THEN
      to_timestamp(
        ('x' || encode(substr(uuid_send(id), 1, 6), 'hex'))::bit(48)::bigint / 1000.0::float8)
    ELSE '-infinity'
  END;

-- Returns the earliest time at which the job with this id can have ended: the time in its id, less
-- a day because clocks may be wrong. A query with this lower bound does not read older partitions
-- of the history.
CREATE OR REPLACE FUNCTION _history_start(id uuid)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN _extract_uuid_time(id) - interval '1 day';
