-- Four bytes of a digest as a number.
CREATE OR REPLACE FUNCTION _four_bytes(digest bytea, place int)
RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (get_byte(digest, place)::bigint << 24) + (get_byte(digest, place + 1) << 16)
  + (get_byte(digest, place + 2) << 8) + get_byte(digest, place + 3);

-- The token of a key: a hash of it, modulo the number of tokens. The MD5 counts as a whole, of a
-- SHA-256 the first eight bytes; both are taken four bytes at a time, so that no step exceeds a
-- bigint. watchbill.cluster.hashing computes the same in Python.
CREATE OR REPLACE FUNCTION _token_of(key text, total int, hash text)
RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE _token_of.hash
      WHEN 'md5' THEN
        (((((((_four_bytes(d, 0) % total) << 32) + _four_bytes(d, 4)) % total << 32)
          + _four_bytes(d, 8)) % total << 32) + _four_bytes(d, 12)) % total
      ELSE (((_four_bytes(d, 0) % total) << 32) + _four_bytes(d, 4)) % total
    END::int
  FROM (
    SELECT CASE _token_of.hash
        WHEN 'md5' THEN decode(md5(convert_to(_token_of.key, 'UTF8')), 'hex')
        WHEN 'sha256' THEN sha256(convert_to(_token_of.key, 'UTF8'))
        WHEN 'double_sha256' THEN sha256(sha256(convert_to(_token_of.key, 'UTF8')))
      END AS d) digest
$$;

-- The lane of the jobs of a key: that of its pin, or else that of its token.
CREATE OR REPLACE FUNCTION _route_lane(token_group text, route_key text)
RETURNS int
LANGUAGE plpgsql STABLE AS $$
DECLARE
  g token_groups;
  pin int;
BEGIN
  SELECT * INTO g FROM token_groups x WHERE x.name = token_group;
  IF NOT FOUND THEN PERFORM _raise_no_group(token_group); END IF;
  IF g.pins_version > 0 THEN
    SELECT p.token INTO pin
    FROM pins p
    WHERE p.token_group = g.name
      AND p.key = route_key
      AND p.state <> 'ending'
    LIMIT 1;
  END IF;
  RETURN 1 + coalesce(pin, _token_of(route_key, g.total, g.hash));
END $$;

CREATE OR REPLACE FUNCTION _raise_no_group(name text)
RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RAISE EXCEPTION 'token group % is invalid: it does not exist',
    coalesce(quote_literal(name), 'NULL')
    USING ERRCODE = 'WB003', HINT = 'declare it first with declare_group()';
END $$;

-- Refuses a key or a scope that would not fit into an index. route_by has the same limit.
CREATE OR REPLACE FUNCTION _check_key_sizes(name text, given text[])
RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  size int := (SELECT max(octet_length(x)) FROM unnest(given) x);
BEGIN
  IF size > 1000 THEN
    RAISE EXCEPTION 'a % of % bytes is invalid: the limit is 1000', name, size
      USING ERRCODE = 'WB003', HINT = 'give a shorter text, such as a hash of it';
  END IF;
END $$;

-- Locks the row of a group until the transaction ends, and returns it. All functions that change
-- tokens or pins do this first, so that they run one after the other.
CREATE OR REPLACE FUNCTION _lock_group(name text)
RETURNS token_groups
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  g token_groups;
BEGIN
  PERFORM _check_isolation('a change of a token group');
  SELECT * INTO g FROM token_groups x WHERE x.name = name FOR UPDATE;
  IF NOT FOUND THEN PERFORM _raise_no_group(name); END IF;
  RETURN g;
END $$;

-- Wakes the members of all groups, so that they read what has changed.
CREATE OR REPLACE FUNCTION _wake_members()
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM pg_notify(_wake_channel(), 'tokens');
END $$;

-- Wakes the members of the groups of a node that has ended.
CREATE OR REPLACE FUNCTION _wake_fellow_members(epoch bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  IF EXISTS (SELECT FROM members m WHERE m.epoch = epoch) THEN
    PERFORM _wake_members();
  END IF;
END $$;
