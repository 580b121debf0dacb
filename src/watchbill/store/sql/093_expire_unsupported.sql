-- Ends jobs as dead if no live node has handled their type for the time `grace`. Locks the jobs;
-- skips locked ones.
CREATE OR REPLACE FUNCTION expire_unsupported(
  grace interval DEFAULT '1 hour',
  max int DEFAULT 1000,
  now timestamptz DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(expire_unsupported.now, _clock());
  endings ending[];
BEGIN
  DELETE FROM unsupported_types u
  WHERE (u.type, u.version) NOT IN (SELECT k.type, k.version FROM _find_wait_keys('unsupported') k);
  UPDATE unsupported_types u
  SET since = t
  WHERE EXISTS (
    SELECT
    FROM node_types nt
    JOIN nodes n USING (epoch)
    WHERE n.state = 'active'
      AND nt.type = u.type
      AND nt.version >= u.version);
  -- Adds types that an earlier call deleted while a settle() marked a job of that type as
  -- unsupported.
  INSERT INTO unsupported_types (type, version, since)
  SELECT DISTINCT k.type, k.version, t
  FROM _find_wait_keys('unsupported') k
  ORDER BY 1, 2
  ON CONFLICT DO NOTHING;
  endings := ARRAY(
    SELECT ROW(
      j.id, 0, 'unsupported', 'dead', NULL, NULL, NULL,
      jsonb_build_object('kind', 'unsupported', 'message',
        format('no live node handles type %s, version %s', j.type, j.version)))::ending
    FROM _find_wait_keys('unsupported') k
    JOIN unsupported_types u ON u.type = k.type AND u.version = k.version
    JOIN jobs j ON j.wait = 'unsupported' AND j.wait_key = k.key
    WHERE greatest(j.run_at, u.since) <= t - expire_unsupported.grace
      AND j.fence = 0
    LIMIT max
    FOR UPDATE OF j SKIP LOCKED);
  PERFORM _announce_freed(e.freed) FROM _finish_jobs(endings, NULL, t) e;
  RETURN cardinality(endings);
END $$;
