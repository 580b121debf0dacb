-- after: job_by_id
-- Lists jobs, newest first, starting after the job `after`. `states` may contain states and words
-- of the column `waits`, such as paused; a job matches if it has one of them. PostgreSQL plans the
-- query at each call, to read only the partitions of these states. Finds running jobs through
-- claims and failed jobs through the index jobs_failed, because they may be rare among millions of
-- queued jobs. With `ids`, lists only these jobs. Bounds of finished_at match only finished jobs.
-- Upper bounds are exclusive.
CREATE OR REPLACE FUNCTION job_list(
  states text[] DEFAULT NULL,
  type text DEFAULT NULL,
  queue text DEFAULT NULL,
  tenant text DEFAULT NULL,
  after uuid DEFAULT NULL,
  message text DEFAULT NULL,
  max int DEFAULT 50,
  ids uuid[] DEFAULT NULL,
  created_after timestamptz DEFAULT NULL,
  created_before timestamptz DEFAULT NULL,
  finished_after timestamptz DEFAULT NULL,
  finished_before timestamptz DEFAULT NULL
)
RETURNS SETOF job
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  wanted text[] := CASE
      WHEN cardinality(states) > 0 THEN states
      ELSE '{blocked,queued,running,suspended,failed,succeeded,dead,canceled}'
    END;
  below uuid := coalesce(after, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  waiting boolean := wanted
    && '{blocked,suspended,queued,ready,scheduled,paused,unsupported,limited,unmatched}';
  unfinished boolean := num_nonnulls(finished_after, finished_before) = 0;
BEGIN
  RETURN QUERY
    SELECT v.*
    FROM (
      (
        SELECT j.id, j.seq
        FROM jobs j
        WHERE waiting
          AND j.id < below
          AND _is_matching_job(j, wanted, type, queue, tenant, message)
          AND unfinished
          AND (ids IS NULL OR j.id = ANY (ids))
          AND (created_after IS NULL OR j.created_at >= created_after)
          AND (created_before IS NULL OR j.created_at < created_before)
        ORDER BY j.id DESC
        LIMIT max)
      UNION ALL
      (
        SELECT j.id, j.seq
        FROM claims c
        CROSS JOIN unnest(c.job_ids) held(id)
        JOIN jobs j ON j.id = held.id AND j.fence = c.fence
        WHERE NOT waiting
          AND 'running' = ANY (wanted)
          AND j.id < below
          AND _is_matching_job(j, wanted, type, queue, tenant, message)
          AND unfinished
          AND (ids IS NULL OR j.id = ANY (ids))
          AND (created_after IS NULL OR j.created_at >= created_after)
          AND (created_before IS NULL OR j.created_at < created_before)
        ORDER BY j.id DESC
        LIMIT max)
      UNION ALL
      (
        SELECT j.id, j.seq
        FROM jobs j
        WHERE NOT waiting
          AND wanted && '{failed,retrying}'
          AND j.failed
          AND j.fence = 0
          AND j.id < below
          AND _is_matching_job(j, wanted, type, queue, tenant, message)
          AND unfinished
          AND (ids IS NULL OR j.id = ANY (ids))
          AND (created_after IS NULL OR j.created_at >= created_after)
          AND (created_before IS NULL OR j.created_at < created_before)
        ORDER BY j.id DESC
        LIMIT max)
      UNION ALL
      (
        SELECT f.id, f.seq
        FROM finished_jobs f
        WHERE f.id < below
          AND f.state = ANY (wanted)
          AND (type IS NULL OR f.type = type)
          AND (queue IS NULL OR f.queue = queue)
          AND (tenant IS NULL OR f.tenant = tenant)
          AND (message IS NULL OR f.error->>'message' = message)
          AND (ids IS NULL OR f.id = ANY (ids))
          AND (created_after IS NULL OR f.created_at >= created_after)
          AND (created_before IS NULL OR f.created_at < created_before)
          AND (finished_after IS NULL OR f.finished_at >= finished_after)
          AND (finished_before IS NULL OR f.finished_at < finished_before)
        ORDER BY f.id DESC
        LIMIT max)
      ORDER BY 1 DESC
      LIMIT max) page(id, seq), _job_by_seq(page.id, page.seq) v
    ORDER BY v.id DESC;
END $$;

CREATE OR REPLACE FUNCTION _read_last_error_message(id uuid, ended_at timestamptz)
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT a.error->>'message'
  FROM attempts a
  WHERE a.job_id = _read_last_error_message.id
    AND a.ended_at = _read_last_error_message.ended_at
  ORDER BY a.run DESC
  LIMIT 1
$$;

CREATE OR REPLACE FUNCTION _is_matching_job(
  j jobs, states text[], type text, queue text, tenant text, message text
)
RETURNS boolean
LANGUAGE sql STABLE
RETURN (
      _job_state((j).fence, (j).wait, (j).failed, (j).wait_key) = ANY (states)
      OR states && '{ready,scheduled,retrying,paused,unsupported,limited,unmatched}'
      AND _describe_job_wait(
        (j).fence, (j).wait, (j).failed, (j).queue, (j).type, (j).lane, (j).wait_key)
        = ANY (states))
    AND (type IS NULL OR (j).type = type)
    AND (queue IS NULL OR (j).queue = queue)
    AND (tenant IS NULL OR (j).tenant = tenant)
    AND (message IS NULL OR _read_last_error_message((j).id, (j).ended_at) = message);
