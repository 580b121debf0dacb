-- Counts the unfinished jobs of tenants that have a quota. Every node calls this every five
-- seconds, but it counts only if the last count is old enough: at least four seconds, and twenty
-- times as long as that count took. Returns whether to call again at once, because some jobs of a
-- tenant still lack the tenant's limit key. Locks the row of quota_refresh, and does nothing if
-- another node, or a change of quotas, has locked it. It does not use an advisory lock, because
-- every role could hold that.
CREATE OR REPLACE FUNCTION refresh_quotas(
  at_once boolean DEFAULT false,
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  begun timestamptz := clock_timestamp();
  last quota_refresh;
  has_keyless boolean;
BEGIN
  PERFORM _check_shared_change('refresh_quotas');
  PERFORM _check_isolation('refresh_quotas');
  SELECT * INTO last FROM quota_refresh FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN false; END IF;
  IF EXISTS (SELECT FROM tenants x WHERE NOT _may_have_quota(x.tenant)) THEN
    -- The filter lacks a tenant if the database was restored on a server with other hash functions.
    PERFORM _write_quota_filter();
  END IF;
  has_keyless := _add_missing_tenant_keys(2000);
  -- Skips the count if the last one is recent. If counted_at is in the future, the clock was set
  -- back; that must not stop the counting.
  IF NOT at_once
      AND last.counted_at <= t
      AND t < last.counted_at + greatest(interval '4 seconds', 20 * last.took) THEN
    RETURN has_keyless;
  END IF;
  PERFORM _count_quota_usage(t);
  UPDATE quota_refresh SET counted_at = t, took = clock_timestamp() - begun;
  RETURN has_keyless;
END $$;

-- Counts the unfinished jobs, and deletes the rows of quota_changes that this count includes. One
-- statement does both, because both must read the same snapshot. Forgets enqueues of the future: if
-- the clock was set back, they would fill the quota per minute until the clock has caught up.
CREATE OR REPLACE FUNCTION _count_quota_usage(t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  names text[] := ARRAY(SELECT x.tenant FROM tenants x);
  counted text[] := ARRAY(
    SELECT x.tenant
    FROM tenants x
    WHERE num_nonnulls(x.max_unfinished, x.max_payload_bytes) > 0);
BEGIN
  WITH change AS (
      DELETE FROM quota_changes c
      RETURNING c.tenant, c.at, c.jobs),
    s AS (
      INSERT INTO quota_seconds AS o (tenant, second, jobs)
      SELECT c.tenant, date_trunc('second', c.at), sum(c.jobs)
      FROM change c
      WHERE c.at > t - interval '1 minute'
        AND c.at <= t + interval '1 minute'
      GROUP BY 1, 2
      ON CONFLICT (tenant, second) DO UPDATE SET jobs = o.jobs + EXCLUDED.jobs),
    usage AS (
      SELECT
        j.tenant, count(*) AS unfinished, sum(_payload_size(j.payload, j.meta)) AS payload_bytes
      FROM jobs j
      WHERE j.tenant = ANY (counted)
      GROUP BY 1)
  INSERT INTO quota_usage AS o (tenant, counted_at, unfinished, payload_bytes)
  SELECT n.tenant, t, coalesce(u.unfinished, 0), coalesce(u.payload_bytes, 0)
  FROM unnest(names) n(tenant)
  LEFT JOIN usage u ON u.tenant = n.tenant
  ON CONFLICT (tenant) DO UPDATE
  SET counted_at = EXCLUDED.counted_at,
    unfinished = EXCLUDED.unfinished,
    payload_bytes = EXCLUDED.payload_bytes;
  DELETE FROM quota_seconds s
  WHERE s.second <= t - interval '2 minutes'
    OR s.second > t + interval '1 minute';
  DELETE FROM quota_usage u WHERE u.tenant <> ALL (names);
END $$;

-- Adds the tenant's limit key to jobs that were enqueued before their tenant had a quota of running
-- jobs, at most `max` jobs. Running jobs among them also get a row in holds, which counts them.
-- Returns whether jobs without the key remain. Locks the jobs, skips locked ones, and then locks
-- the states of the keys.
CREATE OR REPLACE FUNCTION _add_missing_tenant_keys(max int)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  names text[] := ARRAY(
    SELECT x.tenant FROM tenants x WHERE x.limits_running AND x.may_lack_keys);
  running pg_snapshot := pg_current_snapshot();
  found_jobs uuid[];
BEGIN
  IF cardinality(names) = 0 THEN RETURN false; END IF;
  UPDATE tenants x
  SET keyless_before = pg_snapshot_xmax(running)
  WHERE x.tenant = ANY (names)
    AND x.keyless_before IS NULL;
  found_jobs := ARRAY(
    SELECT j.id
    FROM jobs j
    WHERE j.tenant = ANY (names)
      AND coalesce(NOT j.limit_keys @> ARRAY[_tenant_key(j.tenant)], true)
    LIMIT max);
  IF cardinality(found_jobs) = 0 THEN
    UPDATE tenants x
    SET may_lack_keys = false, keyless_before = NULL
    WHERE x.tenant = ANY (names)
      AND x.keyless_before <= pg_snapshot_xmin(running);
    RETURN false;
  END IF;
  found_jobs := ARRAY(
    SELECT j.id
    FROM jobs j
    WHERE j.id = ANY (found_jobs)
    FOR UPDATE SKIP LOCKED);
  UPDATE jobs j
  SET limit_keys = _add_tenant_key(j.limit_keys, j.tenant)
  WHERE j.id = ANY (found_jobs);
  PERFORM _make_limit_states(ARRAY(SELECT _tenant_key(n) FROM unnest(names) n));
  PERFORM _lock_limit_states(ARRAY(SELECT _tenant_key(n) FROM unnest(names) n));
  INSERT INTO holds (key, job_id)
  SELECT _tenant_key(j.tenant), j.id
  FROM jobs j
  WHERE j.id = ANY (found_jobs)
    AND j.fence <> 0
  ON CONFLICT DO NOTHING;
  RETURN cardinality(found_jobs) > 0;
END $$;

-- Returns the limit keys with the key of the tenant among them, sorted.
CREATE OR REPLACE FUNCTION _add_tenant_key(limit_keys text[], tenant text)
RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT array_agg(k.key ORDER BY k.key)
  FROM (
    SELECT x COLLATE "C" FROM unnest(limit_keys) x
    UNION
    SELECT _tenant_key(tenant)) k(key)
$$;
