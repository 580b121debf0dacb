-- docs/explanation/quotas.md explains the quotas of tenants.

-- Returns how much of its quotas a tenant uses: what the last count has found, plus what this
-- transaction and others have enqueued since that count. Reads at most 200 rows of other
-- transactions while the count is fresh, and all of them if it is older than ten seconds, because
-- then no node counts. `n` is the number of rows of quota_changes that this transaction has
-- written.
CREATE OR REPLACE FUNCTION _read_quota_usage(
  tenant text,
  t timestamptz,
  OUT unfinished bigint,
  OUT payload_bytes bigint,
  OUT enqueued bigint, -- in the last minute
  OUT n int,
  OUT total_jobs bigint,
  OUT total_payload_bytes bigint
)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
  own xid8 := coalesce(pg_current_xact_id_if_assigned(), '0'::xid8);
  counted_at timestamptz;
  others record;
BEGIN
  SELECT u.counted_at, u.unfinished, u.payload_bytes INTO counted_at, unfinished, payload_bytes
  FROM quota_usage u
  WHERE u.tenant = tenant;
  SELECT c.n, c.total_jobs, c.total_payload_bytes INTO n, total_jobs, total_payload_bytes
  FROM quota_changes c
  WHERE c.tenant = tenant
    AND c.by = own
  ORDER BY c.n DESC
  LIMIT 1;
  SELECT
    coalesce(sum(c.jobs), 0) AS jobs,
    coalesce(sum(c.payload_bytes), 0) AS payload_bytes,
    coalesce(sum(c.jobs) FILTER (WHERE c.at > t - interval '1 minute'), 0) AS recent
  INTO others
  FROM (
    SELECT x.*
    FROM quota_changes x
    WHERE x.tenant = tenant
      AND x.by <> own
    LIMIT CASE WHEN counted_at > t - interval '10 seconds' THEN 200 END) c;
  n := coalesce(n, 0);
  total_jobs := coalesce(total_jobs, 0);
  total_payload_bytes := coalesce(total_payload_bytes, 0);
  unfinished := coalesce(unfinished, 0) + total_jobs + others.jobs;
  payload_bytes := coalesce(payload_bytes, 0) + total_payload_bytes + others.payload_bytes;
  enqueued := total_jobs + others.recent + (
    SELECT coalesce(sum(s.jobs), 0)
    FROM quota_seconds s
    WHERE s.tenant = tenant
      AND s.second > t - interval '61 seconds');
END $$;

-- Counts new jobs against the quotas of their tenant, and raises if a quota would be exceeded.
-- Locks nothing that another transaction waits for. Our functions do not pass on the `now` of
-- enqueue(), because its caller may give any time; they leave `now` to the clock of the database.
CREATE OR REPLACE FUNCTION _take_quota(
  tenant text,
  jobs bigint,
  payload_bytes bigint,
  now timestamptz DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  q tenants;
  used record;
BEGIN
  IF EXISTS (SELECT FROM erasures e WHERE e.tenant = tenant) THEN
    RAISE EXCEPTION 'tenant % is being erased', quote_literal(tenant)
      USING ERRCODE = 'WB008', HINT = 'enqueue for it when erase_tenant() has ended';
  END IF;
  PERFORM _refuse_moved(tenant);
  SELECT * INTO q FROM tenants x WHERE x.tenant = tenant;
  IF num_nonnulls(q.max_unfinished, q.max_payload_bytes, q.max_per_minute) = 0 THEN RETURN; END IF;
  SELECT * INTO used FROM _read_quota_usage(tenant, t);
  IF used.unfinished + jobs > q.max_unfinished THEN
    PERFORM _refuse_quota(tenant, 'unfinished', q.max_unfinished, used.unfinished, jobs, NULL);
  ELSIF used.payload_bytes + payload_bytes > q.max_payload_bytes THEN
    PERFORM _refuse_quota(
      tenant, 'payload_bytes', q.max_payload_bytes, used.payload_bytes, payload_bytes, NULL);
  ELSIF used.enqueued + jobs > q.max_per_minute THEN
    PERFORM _refuse_quota(
      tenant, 'per_minute', q.max_per_minute, used.enqueued, jobs,
      _find_quota_free_time(tenant, q.max_per_minute - jobs - used.total_jobs, t));
  END IF;
  INSERT INTO quota_changes (
    tenant, by, n, at, jobs, payload_bytes, total_jobs, total_payload_bytes)
  VALUES (
    tenant, pg_current_xact_id(), used.n + 1, t, jobs, payload_bytes, used.total_jobs + jobs,
    used.total_payload_bytes + payload_bytes);
END $$;

-- Returns the time at which other transactions will have enqueued at most `room` jobs in the minute
-- before; NULL if `room` is negative, because then that time never comes.
CREATE OR REPLACE FUNCTION _find_quota_free_time(tenant text, room bigint, t timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
BEGIN
  IF room < 0 THEN RETURN NULL; END IF;
  RETURN (
    SELECT min(x.second) + interval '61 seconds'
    FROM (
      SELECT e.second, sum(e.jobs) OVER (ORDER BY e.second DESC) - e.jobs AS later
      FROM (
        SELECT m.second, sum(m.jobs) AS jobs
        FROM (
          SELECT s.second, s.jobs
          FROM quota_seconds s
          WHERE s.tenant = tenant
            AND s.second > t - interval '61 seconds'
          UNION ALL
          SELECT date_trunc('second', c.at), c.jobs
          FROM quota_changes c
          WHERE c.tenant = tenant
            AND c.by IS DISTINCT FROM pg_current_xact_id_if_assigned()
            AND c.at > t - interval '1 minute') m
        GROUP BY 1) e) x
    WHERE x.later <= room);
END $$;

-- Raises the error for a full quota. The DETAIL is JSON, which programs can read.
CREATE OR REPLACE FUNCTION _refuse_quota(
  tenant text,
  quota text,
  max bigint,
  used bigint,
  wanted bigint,
  frees_at timestamptz
)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  message text := format(
    'the quota %s of tenant %L is full: %s of %s are used, and this needs %s more',
    quota, tenant, used, max, wanted);
BEGIN
  RAISE EXCEPTION '%', message
    USING ERRCODE = 'WB015',
      DETAIL = jsonb_build_object(
        'tenant', tenant, 'quota', quota, 'max', max, 'used', used, 'wanted', wanted,
        'frees_at', frees_at),
      HINT = CASE
        WHEN wanted > max OR quota = 'per_minute' AND frees_at IS NULL THEN
          'it never has room for that many: enqueue fewer in one transaction'
        WHEN quota = 'per_minute' THEN format('it has room again at %s', frees_at)
        ELSE 'it has room when jobs of this tenant have ended; they are counted every few seconds'
      END;
END $$;

-- Returns the bytes of a job's payload and meta as quotas count them.
CREATE OR REPLACE FUNCTION _payload_size(payload jsonb, meta jsonb)
RETURNS bigint
LANGUAGE sql STABLE
RETURN pg_column_size(payload)::bigint + coalesce(pg_column_size(meta), 0);

-- Adds the tenant's limit key to the limit keys of a job, if the tenant has a quota of running
-- jobs.
CREATE OR REPLACE FUNCTION _quota_keys(limit_keys text[], tenant text)
RETURNS text[]
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
BEGIN
  IF EXISTS (SELECT FROM tenants x WHERE x.tenant = tenant AND x.limits_running) THEN
    RETURN _add_tenant_key(limit_keys, tenant);
  END IF;
  RETURN limit_keys;
END $$;
