-- Returns the name, in the table limits, of the limit that a key belongs to. The key of a named
-- limit is key:NAME or key:NAME:VALUE. A limit of a task or a tenant has the same name as its key.
-- An ordered key has no limit of its own.
CREATE OR REPLACE FUNCTION _limit_name(key text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN starts_with(key, 'key:') THEN split_part(key, ':', 2) ELSE key END;

-- Returns the prefix of all ordered keys of a type, order:TYPE; the keys are order:TYPE:VALUE. A
-- colon in the type is written as %3A, and % as %25, so that the key of type `a:b` with the value
-- `c` differs from the key of type `a` with the value `b:c`.
CREATE OR REPLACE FUNCTION _order_name(type text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN 'order:' || replace(replace(type, '%', '%25'), ':', '%3A');

-- Returns the column `class` of a job that is not in quarantine: 1 if a node may claim the job only
-- when a handler slot is free, 0 if it may also prefetch it. A job with a single attempt or under a
-- rate is not prefetched.
CREATE OR REPLACE FUNCTION _job_class(max_attempts smallint, limit_keys text[])
RETURNS smallint
LANGUAGE sql STABLE
AS $$
  SELECT CASE
      WHEN _job_class.max_attempts = 1 THEN 1
      WHEN _job_class.limit_keys IS NULL THEN 0
      WHEN EXISTS (
        SELECT
        FROM unnest(_job_class.limit_keys) k(key)
        JOIN limits l ON l.name = _limit_name(k.key)
        WHERE l.count IS NOT NULL) THEN 1
      ELSE 0
    END::smallint
$$;
