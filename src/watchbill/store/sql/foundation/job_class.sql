-- after: limit_keys
-- Returns the column `class` of a job that is not in quarantine: 1 if a node may claim the job only
-- when a handler slot is free, 0 if it may also prefetch it. A job with a single attempt or under a
-- rate is not prefetched.
CREATE OR REPLACE FUNCTION _job_class(max_attempts smallint, limit_keys text[])
RETURNS smallint
LANGUAGE sql STABLE AS $$
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
