-- after: limit_keys
-- Returns the column `class` of a job that is not in quarantine:
--   0  a node may prefetch the job
--   1  a node claims it only into a free handler slot: it has a single attempt, or a rate
--   2  it is in quarantine: a node claims it alone
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
        WHERE l.rates IS NOT NULL) THEN 1
      ELSE 0
    END::smallint
$$;
