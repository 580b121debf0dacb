-- after: why_job stats
-- Sums why jobs of a queue, a type or a tenant do not run, the most frequent cause first. Jobs that
-- wait in the same way are a kind, and the deciding cause of one of them is asked for all: of the
-- 20 most frequent kinds, the others are summed as `other`. Counts all jobs if there are at most
-- 20,000. Otherwise it reads 2,000 pages of jobs, the counts are estimates, `is_estimate` is true,
-- and rare kinds may be missing. Locks nothing.
CREATE OR REPLACE FUNCTION why_jobs(
  queue text DEFAULT NULL,
  type text DEFAULT NULL,
  tenant text DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (
  cause text,
  jobs bigint,
  is_estimate boolean,
  needs_action boolean,
  example uuid,
  reason text,
  way_out text[]
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := _clock(now);
BEGIN
  RETURN QUERY
    WITH kinds AS MATERIALIZED (
        SELECT k.*, row_number() OVER (ORDER BY k.jobs DESC, k.example) AS number
        FROM _list_kinds_of_jobs(why_jobs.queue, why_jobs.type, why_jobs.tenant, t) k),
      asked AS MATERIALIZED (
        SELECT k.jobs, k.is_estimate, k.example, c.*
        FROM kinds k
        CROSS JOIN LATERAL (
          SELECT x.cause, x.needs_action, x.reason, x.way_out
          FROM _list_job_causes(k.example, 5, t) x
          ORDER BY x.rank
          LIMIT 1) c
        WHERE k.number <= 20)
    SELECT
      a.cause,
      sum(a.jobs)::bigint,
      bool_or(a.is_estimate),
      bool_or(a.needs_action),
      (array_agg(a.example ORDER BY a.jobs DESC))[1],
      (array_agg(a.reason ORDER BY a.jobs DESC))[1],
      (array_agg(a.way_out::text ORDER BY a.jobs DESC))[1]::text[]
    FROM asked a
    GROUP BY a.cause
    UNION ALL
    SELECT
      'other', sum(k.jobs)::bigint, true, false, (array_agg(k.example))[1],
      'these jobs wait in other ways, which were not asked for', '{}'
    FROM kinds k
    WHERE k.number > 20
    HAVING count(*) > 0
    ORDER BY 2 DESC, 1;
END $$;

-- Lists the kinds of jobs of a queue, a type or a tenant: what decides why they wait is the same
-- for all jobs of a kind. The example is the newest, because most jobs of a kind are not the first
-- in their order. If a sample finds none, reads the index of ready jobs for those of the queue. A
-- caller that does not see all jobs gets a sample, because it cannot know how many there are.
CREATE OR REPLACE FUNCTION _list_kinds_of_jobs(queue text, type text, tenant text, t timestamptz)
RETURNS TABLE (jobs bigint, is_estimate boolean, example uuid)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  percent real := CASE
      WHEN _acts_for_all_tenants()
        AND (SELECT count(*) FROM (SELECT FROM jobs LIMIT 20001) x) <= 20000 THEN 100
      ELSE _compute_sample_percent(ARRAY['jobs'::regclass])
    END;
BEGIN
  RETURN QUERY
    SELECT (count(*) * 100 / percent)::bigint, percent < 100, max(j.id::text)::uuid
    FROM jobs j TABLESAMPLE SYSTEM (percent)
    WHERE (queue IS NULL OR j.queue = queue)
      AND (type IS NULL OR j.type = type)
      AND (tenant IS NULL OR j.tenant = tenant)
    GROUP BY
      j.fence <> 0, j.canceling, j.wait, j.wait_key, j.queue, j.type, j.version, j.lane, j.class,
      j.limit_keys, j.run_at > t, j.run_at > t + interval '1 hour', j.tenant;
  IF FOUND OR queue IS NULL OR percent = 100 THEN RETURN; END IF;
  RETURN QUERY
    SELECT count(*), true, max(x.id::text)::uuid
    FROM (
      SELECT j.id, j.type, j.version, j.lane, j.class, j.limit_keys
      FROM jobs j
      WHERE j.queue = queue
        AND j.wait IS NULL
        AND (type IS NULL OR j.type = type)
        AND (tenant IS NULL OR j.tenant = tenant)
      LIMIT 1000) x
    GROUP BY x.type, x.version, x.lane, x.class, x.limit_keys;
END $$;
